"""Damage files in every way, and see that nothing crashes, hangs, or is read for something else.

``python tests/fuzz/fuzz.py --mutations 100000 --minutes 15 --seed 1`` (or ``make fuzz``). Every mutation is
made from the seed, the target and its number, so that any of them can be made again: ``--target maps --first
4711 --mutations 1``. Targets are opened in a process of their own, which may crash or hang; that is counted,
and the next mutation is tried in a new one. Exit code 1 if anything went wrong.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

HANG = 60.0  # seconds for one mutation
MEMORY = 6 * 2**30
COUNTS = struct.Struct("<8q")


def work(name, first, stop, seed, board, folder):
    """Try mutations, noting on the board which is being tried and what became of those before."""
    from targets import OUTCOMES, TARGETS, outcome

    if sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    # Made anew each time, so that every process damages the same bytes.
    random.seed(0)
    target = TARGETS[name][0](Path(folder))
    counts = list(COUNTS.unpack(os.pread(board, COUNTS.size, 0)))
    for i in range(first, stop):
        counts[0] = i
        os.pwrite(board, COUNTS.pack(*counts), 0)
        result, error = outcome(target, random.Random(f"{seed}/{name}/{i}"))
        counts[1 + OUTCOMES.index(result)] += 1
        if result in ("wrong", "fault"):
            print(f"{name} {i}: {result}", flush=True)
        if error is not None:
            traceback.print_exception(error, limit=-4)
    counts[0] = stop
    os.pwrite(board, COUNTS.pack(*counts), 0)


def run(name, first, stop, seed, until):
    """Return how many mutations of a target ended how, watching the process that tries them."""
    from targets import OUTCOMES

    ends = {"crash": 0, "hang": 0}
    with tempfile.TemporaryFile() as stream, tempfile.TemporaryDirectory() as folder:
        board = stream.fileno()
        os.pwrite(board, COUNTS.pack(first, *[0] * 7), 0)
        at = first
        while at < stop and time.monotonic() < until:
            end = watch([name, at, stop, seed, board, folder], board, until)
            at = COUNTS.unpack(os.pread(board, COUNTS.size, 0))[0]
            if end in ends:
                print(f"{name} {at}: {end}", flush=True)
                ends[end] += 1
                at += 1
        counts = COUNTS.unpack(os.pread(board, COUNTS.size, 0))[1:6]
    return dict(zip(OUTCOMES, counts, strict=True)) | ends


def watch(arguments, board, until):
    """Return how a process that tries mutations ended: done, crash, hang, or out of time."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--work", json.dumps(arguments)],
        pass_fds=[board],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    seen, since = None, time.monotonic()
    while True:
        try:
            return "crash" if process.wait(0.5) else "done"
        except subprocess.TimeoutExpired:
            now = COUNTS.unpack(os.pread(board, COUNTS.size, 0))
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > HANG or time.monotonic() > until:
                process.kill()
                process.wait()
                return "hang" if time.monotonic() - since > HANG else "out of time"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*json.loads(options.work))
        return 0
    from targets import TARGETS

    names = [options.target] if options.target else list(TARGETS)
    share = {name: 1.0 if options.target else TARGETS[name][1] / 100 for name in names}
    bad, begun = 0, time.monotonic()
    last = begun + 60 * options.minutes
    columns = ("refused", "same", "read", "wrong", "fault", "crash", "hang")
    print(f"{'target':<10}{'mutations':>10}" + "".join(f"{name:>9}" for name in columns) + "  seconds")
    total = dict.fromkeys(columns, 0)
    for name in names:
        started = time.monotonic()
        n = round(options.mutations * share[name])
        # So much of the time that is left as there are targets to share it.
        until = started + (last - started) / (len(names) - names.index(name))
        counts = run(name, options.first, options.first + n, options.seed, until)
        total = {column: total[column] + counts[column] for column in columns}
        _print(name, counts, time.monotonic() - started)
        bad += sum(counts[column] for column in ("wrong", "fault", "crash", "hang"))
    _print("all", total, time.monotonic() - begun)
    return 1 if bad else 0


def _print(name, counts, seconds):
    line = f"{name:<10}{sum(counts.values()):>10}" + "".join(f"{n:>9}" for n in counts.values())
    print(f"{line}{seconds:>9.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
