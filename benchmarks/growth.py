"""Time and memory of fits as one size grows, each fit in a process of its own.

    python benchmarks/growth.py                          # all curves (minutes)
    python benchmarks/growth.py pairs people             # some of: rows features pairs sources people ...
    python benchmarks/growth.py --json growth.json       # for the picture of docs/performance.md, by page.py

Rows are float32, of two sources with a gain and a shift between them, unless the curve is of sources. Memory
is what the fit added to the peak of its process. The limit is the least work that a fit contains: the Gram
products of every source's rows. A method that would need more memory than there is refuses; peers, through
their own packages, are left out where one fit takes longer than :data:`LONGEST`.
"""

import argparse
import json
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import history
import quiet

LONGEST = 20.0  # seconds of one process
SHARE = 0.8  # of the machine's memory, for one fit
OURS = ("MGPA()", "closed form")
PEERS = ("LEACE (concept-erasure)", "CORAL (skada)", "ComBat (combatlearn)", "PDS (chemotools)")
# Of every curve: its sizes, what else is fixed, and who is measured.
CURVES = {
    "rows": ((1_000, 10_000, 100_000, 1_000_000), {"d": 128, "pairs": 300}, (*OURS, *PEERS[:3], "limit")),
    "features": ((64, 512, 4_096, 65_536), {"n": 500, "pairs": 100}, (*OURS, *PEERS, "limit")),
    "pairs": ((100, 1_000, 10_000, 100_000), {"n": 10_000, "d": 128}, (*OURS, PEERS[3], "limit")),
    "sources": ((2, 6, 12, 30), {"n": 12_000, "d": 64, "pairs": 60}, (*OURS, PEERS[0], PEERS[2], "limit")),
    "people": ((5, 50, 500, 5_000), {"n": 50_000, "d": 64, "pairs": 5_000}, (*OURS, "limit")),
    "tokens": ((4, 16, 64, 256), {"n": 200, "d": 128, "pairs": 100}, (OURS[1], "limit")),
    "stages": ((6, 24, 96), {"n": 2_000, "d": 512}, ("staged transform", "limit")),
}
NAMES = {"rows": "n", "features": "d"}


def world(n=10_000, d=128, pairs=300, sources=2, people=0, tokens=0):
    """Return rows, sources, participants, pair ids, and the views of every pair by source."""
    import numpy as np

    rng = np.random.default_rng(0)
    width = d * max(1, tokens)
    gain = 1.0 + np.outer(np.arange(sources), np.arange(width) < max(1, width // 16)) / max(1, sources - 1)
    gain = gain.astype(np.float32)
    shift = (0.3 * np.arange(sources)[:, None] * rng.standard_normal((1, width))).astype(np.float32)
    source = rng.integers(0, sources, n)
    X = rng.standard_normal((n, width), dtype=np.float32)
    X = X * gain[source] + shift[source]
    who = rng.integers(0, people, n) if people else None
    if people:
        X += 0.3 * rng.standard_normal((people, width), dtype=np.float32)[who]
    events = rng.standard_normal((pairs, width), dtype=np.float32)
    views = [
        (events + np.float32(0.1) * rng.standard_normal(events.shape, dtype=np.float32)) * gain[k] + shift[k]
        for k in range(sources)
    ]
    whose = rng.integers(0, people, pairs) if people else None
    return X, source, who, views, whose


def fit_of(name, n, d, tokens=0, sources=2, **sizes):
    """Return the function that is measured: one fit of a method, by its own package."""
    import numpy as np

    X, source, who, views, whose = world(n=n, d=d, tokens=tokens, sources=sources, **sizes)
    if name == "limit":
        parts = [X[source == k].astype(np.float64) for k in range(sources)]
        return lambda: [rows.T @ rows if len(rows) >= rows.shape[1] else rows @ rows.T for rows in parts]
    if name in OURS:
        import mgpa

        model = mgpa.MGPA() if name == OURS[0] else mgpa.ClosedFormMGPA()
        if tokens:
            X, views = X.reshape(n, tokens, d), [view.reshape(-1, tokens, d) for view in views]
            model = mgpa.JointTokens(model)
        if sources == 2:
            return lambda: model.fit(X, source=source, pairs=tuple(views), groups=who, pair_groups=whose)
        ids = np.concatenate([np.full(n, -1), *[np.arange(len(views[0]))] * sources])
        source = np.concatenate([source, np.repeat(np.arange(sources), len(views[0]))])
        X = np.concatenate([X, *views])
        return lambda: model.fit(X, source=source, pair_id=ids)
    return peer_fit(name, X.astype(np.float64), source, views)


def peer_fit(name, X, source, views):
    """Return a fit of a peer's method."""
    import numpy as np

    if name == PEERS[0]:
        import torch
        from concept_erasure import LeaceEraser

        Z = torch.tensor(np.eye(source.max() + 1)[source])
        return lambda: LeaceEraser.fit(torch.tensor(X), Z)
    if name == PEERS[1]:
        from skada import CORALAdapter

        order = np.argsort(source, kind="stable")
        domain = np.where(source[order] == 0, 1, -2)
        return lambda: CORALAdapter().fit(X[order], sample_domain=domain)
    if name == PEERS[2]:
        import pandas as pd
        from combatlearn import ComBat

        frame, batch = pd.DataFrame(X), pd.Series(source.astype(str))
        return lambda: ComBat(batch=batch, method="johnson").fit(frame)
    from chemotools.adaptation import PiecewiseDirectStandardization

    model = PiecewiseDirectStandardization(window_length=5, n_components=2)
    A, B = (view.astype(np.float64) for view in views)
    return lambda: model.fit(B, X_source=A)


def stages_of(name, n, d, stages):
    """Return one transform by a map of stages, or the product that it contains."""
    import numpy as np

    import run

    m = run.staged_map(n_stages=stages).warm_up()
    X = np.random.default_rng(1).normal(size=(n, d)).astype(np.float32)
    first = m._weights(X.dtype).first[:-1]
    return (lambda: m.transform(X)) if name == "staged transform" else (lambda: X @ first)


def child(name, curve, size):
    """Measure one fit, here, and print it as JSON."""
    import contextlib
    import os
    import resource
    import time
    import warnings

    from mgpa.errors import NotEnoughMemory

    def memory(kind):
        """Return what Linux says about the memory of this process, elsewhere its peak so far, in MiB."""
        try:
            found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return int(found[1]) / 1024

    warnings.simplefilter("ignore")
    most = int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    resource.setrlimit(
        resource.RLIMIT_AS, (most, most)
    )  # a peer that needs more fails, and the machine stays
    make = stages_of if curve == "stages" else fit_of
    times = []
    try:
        function = make(name, **CURVES[curve][1] | {NAMES.get(curve, curve): size})
        before = memory("VmRSS")
        with contextlib.suppress(OSError):  # the peak starts here, not where the rows were made
            Path("/proc/self/clear_refs").write_text("5")
        with contextlib.redirect_stdout(open(os.devnull, "w")):
            while not times or (sum(times) < 1.0 and len(times) < 3):
                start = time.perf_counter()
                function()
                times.append(time.perf_counter() - start)
    except (NotEnoughMemory, MemoryError, RuntimeError) as error:  # torch's is a RuntimeError
        words = (str(error).splitlines() or [type(error).__name__])[0][:120]
        return print(json.dumps({"refused": "not enough memory" if "memory" in words else words}))
    peak = memory("VmHWM")
    return print(json.dumps({"seconds": min(times), "added": max(0.0, peak - before), "peak": peak}))


def measure(name, curve, size):
    """Return what a child process measured: seconds and MiB, or why there are none."""
    command = [sys.executable, __file__, "--child", name, curve, str(size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return {"refused": f"more than {LONGEST:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    return {"refused": (done.stderr.strip().splitlines() or ["killed"])[-1][:120]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("curves", nargs="*", help=f"some of: {' '.join(CURVES)}")
    parser.add_argument("--json", type=Path, help="write all points and the machine's state")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, curve, size = options.child
        child(name, curve, int(size))
        return
    watch, points = quiet.Watch(), []
    for curve in options.curves or CURVES:
        sizes, fixed, names = CURVES[curve]
        print(f"\n{curve}: {', '.join(f'{value} {key}' for key, value in fixed.items())}", flush=True)
        for name in names:
            refused = False
            for size in sizes:
                found = {"refused": "the size before was"} if refused else measure(name, curve, size)
                refused = "refused" in found
                points.append({"curve": curve, "method": name, "size": size} | found)
                words = found.get("refused") or f"{found['seconds']:.3f} s, {found['added']:.0f} MiB added"
                print(f"  {name:<26}{size:>9}  {words}", flush=True)
        if options.json:  # what there is so far
            facts = {"machine": history.machine(), "commit": history.commit(), "date": str(date.today())}
            quiet.save(options.json, **facts, state=watch.state(), points=points)


if __name__ == "__main__":
    quiet.pin()
    main()
