"""Tables from file to file: memory against the number of rows, throughput against reading and writing alone.

python benchmarks/scale.py                 # 10^5, 10^6 rows, then the two ratios
python benchmarks/scale.py --rows 10000000 # the long one; needs some gigabytes of disk
python benchmarks/scale.py --workers       # one Dask worker against two
python benchmarks/scale.py --participants 150000  # fits of many participants; 3 GB of disk, a minute a fit
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

D, PART = 64, 50_000

CHILD = """
import resource, sys, time
import mgpa
from mgpa.tables import apply_to_file, fit_table
idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
start = time.perf_counter()
m = fit_table(mgpa.ClosedFormMGPA(), sys.argv[1]).to_map()
middle = time.perf_counter()
apply_to_file(m, sys.argv[1], sys.argv[2])
end = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
m.save(sys.argv[3])
print(idle, peak, middle - start, end - middle)
"""

FIT = """
import resource, sys, time
import mgpa
from mgpa.tables import fit_table
idle, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time()
m = fit_table(getattr(mgpa, sys.argv[2])(), sys.argv[1]).to_map()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(idle, peak, time.process_time() - start)
"""


def write_input(path, n, d=D, part=PART):
    from mgpa.tables import Table, TableWriter

    rng = np.random.default_rng(0)
    like = Table(np.zeros((0, d), np.float32), source=np.zeros(0, int), pair_id=np.zeros(0, int))
    rows = [part] * (n // part)
    with TableWriter(path, like, rows=rows) as writer:
        for i, size in enumerate(rows):
            source, ids = rng.integers(2, size=size), np.full(size, -1)
            if i == 0:
                source[:400], ids[:400] = np.tile([0, 1], 200), np.repeat(np.arange(200), 2)
            X = rng.normal(size=(size, d)).astype(np.float32)
            X[:, :3] += source[:, None]
            writer.write(i, Table(X, source=source, pair_id=ids))


def write_people(path, n, d, *, n_people, n_pairs, n_parts=30):
    """Write rows of many people, some of them pairs, on two devices that differ in gain and shift."""
    from mgpa.tables import Table, TableWriter

    rng, per, pairs = np.random.default_rng(0), n // n_parts, n_pairs // n_parts
    gain = np.where(np.arange(d) < d // 8, 1.6, 1.0).astype(np.float32)
    like = Table(
        np.zeros((0, d), np.float32), source=np.zeros(0, "U3"), pair_id=np.zeros(0, int),
        participant=np.zeros(0, "U8"),
    )  # fmt: skip
    with TableWriter(path, like, rows=[per] * n_parts) as writer:
        for i in range(n_parts):
            whose = (i * per + np.arange(per)) * n_people // n
            X = rng.standard_normal((per, d), dtype=np.float32)
            X += 0.5 * rng.standard_normal((whose[-1] - whose[0] + 1, d), dtype=np.float32)[whose - whose[0]]
            source, ids = rng.integers(0, 2, per), np.full(per, -1)
            first = np.arange(pairs) * (per // pairs)
            X[first + 1] = X[first] + 0.1 * rng.standard_normal((pairs, d), dtype=np.float32)
            ids[first] = ids[first + 1] = i * pairs + np.arange(pairs)
            whose[first + 1], source[first], source[first + 1] = whose[first], 0, 1
            X[source == 1] = X[source == 1] * gain + np.float32(0.2)
            names = np.char.add("P", whose.astype(str)).astype("U8")
            devices = np.array(["dry", "wet"])[source]
            writer.write(i, Table(X, source=devices, pair_id=ids, participant=names))


def copy_files(source, target):
    """Read every Parquet file and write it again: the work that cannot be avoided."""
    import pyarrow.parquet as parquet

    target.mkdir()
    for path in sorted(Path(source).glob("*.parquet")):
        parquet.write_table(parquet.read_table(path), target / path.name)


def memory(sizes, folder):
    print(f"{'rows':>10}{'table':>12}{'idle':>10}{'peak':>10}{'fit':>10}{'apply':>10}")
    for n in sizes:
        source, out, m = folder / f"in{n}", folder / f"out{n}", folder / f"m{n}.safetensors"
        write_input(source, n)
        done = subprocess.run(
            [sys.executable, "-c", CHILD, source, out, m], capture_output=True, text=True, check=True
        )
        idle, peak, fit, apply = map(float, done.stdout.split())
        size = n * D * 4 / 2**20
        print(
            f"{n:>10}{size:>8.0f} MiB{idle:>6.0f} MiB{peak:>6.0f} MiB{fit:>8.2f} s{apply:>8.2f} s",
            flush=True,
        )


def participants(folder, n_people, d=256):
    """Fits of 20 rows and .4 pairs a participant in 30 parts, in processor time against the rows' Gram."""
    n = 20 * n_people
    write_people(folder / "people", n, d, n_people=n_people, n_pairs=int(0.4 * n_people))
    block, times = np.random.default_rng(0).normal(size=(10_000, d)), []
    for _ in range(5):
        start = time.process_time()
        block.T @ block
        times.append(time.process_time() - start)
    gram = min(times) * n / len(block)
    for name in ("MGPA", "ClosedFormMGPA"):
        command = [sys.executable, "-c", FIT, folder / "people", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        idle, peak, seconds = map(float, done.stdout.split())
        ratio = f"{seconds:.1f} s, {seconds / gram:.1f} x the Gram of its rows"
        memory = f"peak {peak:.0f} MiB, idle {idle:.0f} MiB"
        print(f"{name}: {n} x {d}, {n_people} participants: {ratio}; {memory}", flush=True)


def throughput(folder, n=1_000_000):
    import mgpa
    from mgpa.tables import apply_to_file, fit_table

    source = folder / "throughput"
    write_input(source, n)
    m = fit_table(mgpa.ClosedFormMGPA(), source).to_map()
    copying, applying = [], []
    for i in range(3):
        start = time.perf_counter()
        copy_files(source, folder / f"copy{i}")
        copying.append(time.perf_counter() - start)
        start = time.perf_counter()
        apply_to_file(m, source, folder / f"applied{i}")
        applying.append(time.perf_counter() - start)
    share = min(copying) / min(applying)
    print(
        f"apply {min(applying):.2f} s, reading and writing the same files {min(copying):.2f} s: "
        f"{100 * share:.0f} % of its throughput (aim 70 %)"
    )


def workers(folder, d=256, n_stages=20):
    """A correction that costs more than its files: IGBP's networks, one thread each."""
    from distributed import Client, LocalCluster

    import mgpa
    from mgpa.tables import apply_to_file

    rng = np.random.default_rng(0)

    def weights(*shape):
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    m = mgpa.maps.ProjectiveMap(
        center=np.zeros(d),
        scale=np.ones(d),
        hidden_weight=weights(n_stages, d, d),
        hidden_bias=weights(n_stages, d),
        output_weight=weights(n_stages, 2, d),
        output_bias=weights(n_stages, 2),
    )
    source, times = folder / "wide", []
    write_input(source, 80_000, d, part=4_000)
    for k in (1, 2):
        local = LocalCluster(n_workers=k, threads_per_worker=1, dashboard_address=None)
        with local as cluster, Client(cluster) as client:
            client.wait_for_workers(k)
            apply_to_file(m, source, folder / f"warm{k}", client=client)
            start = time.perf_counter()
            apply_to_file(m, source, folder / f"out{k}", client=client)
            times.append(time.perf_counter() - start)
    gain = times[0] / times[1]
    print(f"one worker {times[0]:.2f} s, two {times[1]:.2f} s: {gain:.2f} times as fast (aim 1.7)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--participants", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.workers:
            os.environ["OMP_NUM_THREADS"] = "1"
            workers(Path(folder))
            return
        if options.participants:
            participants(Path(folder), options.participants)
            return
        memory(options.rows, Path(folder))
        throughput(Path(folder))


if __name__ == "__main__":
    main()
