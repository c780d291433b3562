"""Time and memory of fits against the number of rows n and of features d, each fit in a process of its own.

python benchmarks/growth.py                          # the table of docs/performance.md (minutes)
python benchmarks/growth.py leace --rows 500 --features 8192 65536
python benchmarks/growth.py --rows 500 2000 --features 512

Memory is the peak of the process, everything in it, and in brackets what the fit added. A method that would
need more memory than there is refuses, and says how much.
"""

import argparse
import os
import subprocess
import sys

METHODS = (
    "closed_form_mgpa", "closed_form_mgpa_paper", "leace", "oracle_leace", "splince", "inlp", "ncm", "combat",
    "pisco", "featmap", "coral", "quadratic_leace",
)  # fmt: skip
SIZES = [(10_000, 64), (10_000, 512), (10_000, 4096), (500, 512), (500, 8192), (500, 65_536)]
LIMIT = 600.0  # seconds for a fit

CHILD = """
import resource, sys, time
import numpy as np
import mgpa.errors
from mgpa.baselines import make

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

name, n, d = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng, m = np.random.default_rng(0), 100
source, task = np.arange(n) % 2, rng.integers(2, size=n)
X = rng.standard_normal((n, d), dtype=np.float32)
X[source == 1, :3] += 1.0
X[:, -1] += task
A = rng.standard_normal((m, d), dtype=np.float32)
B = rng.standard_normal((m, d), dtype=np.float32)
B *= 0.1
B += A
B[:, :3] += 1.0
pairs = (A, B)
model = mgpa.ClosedFormMGPA.paper() if name == "closed_form_mgpa_paper" else make(name)
before, start, began = peak(), time.perf_counter(), time.process_time()
try:
    model.fit(X, task, source=source, pairs=pairs).to_map()
except mgpa.errors.NotEnoughMemory as error:
    print("refused", str(error).splitlines()[0])
else:
    print("done", time.perf_counter() - start, time.process_time() - began, peak(), peak() - before)
"""


def measure(name, n, d):
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, name, str(n), str(d)], capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT:.0f} s"
    word, _, said = done.stdout.partition(" ")
    if word == "done":
        seconds, processor, peak, added = map(float, said.split())
        return f"{seconds:.2f} s ({processor:.2f} s of processor), {peak:.0f} MiB ({added:.0f})"
    return f"refused: {said.strip()}" if word == "refused" else f"failed: {done.stderr.strip()[-300:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--features", type=int, nargs="+")
    options = parser.parse_args()
    sizes = SIZES
    if options.rows or options.features:
        sizes = [(n, d) for n in options.rows or [500] for d in options.features or [512]]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for n, d in sizes:
        size = (n + 200) * d * 4 / 2**20
        print(f"\n{n} rows x {d} features; rows and 100 pairs take {size:.0f} MiB", flush=True)
        for name in options.methods:
            print(f"  {name:<24}{measure(name, n, d)}", flush=True)


if __name__ == "__main__":
    main()
