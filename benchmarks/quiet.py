"""A quiet measure: pinned cores and threads, turns with the bare work, and what else the machine did.

    python benchmarks/quiet.py --out numbers       # run.py, peers.py and growth.py, one after another
    python benchmarks/page.py numbers              # their tables and picture, into docs/performance.md

Every script that imports this begins again with as many threads as it may use cores, and pinned to them. A
ratio below :data:`PHYSICAL` of the bare work says that something else kept the bare work waiting: such a line
is "busy", whatever its aim.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

PHYSICAL = 0.95  # of the bare work: nothing is faster than what it cannot avoid
LOUD = 0.1  # of the cores' time in other processes: from there on numbers are not to be believed
# Seconds for which OpenBLAS's threads keep a core busy after a product, to see whether another one follows.
BUSY_AFTER = 0.15
SHORT = 5e-4  # seconds of a run with one thread of BLAS, as that of a single row
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
SCRIPTS = (("run.py", "speed.json"), ("peers.py", "peers.json"), ("growth.py", "growth.json"))


def pin():
    """Pin this process to its first cores, with one thread for each; starts it again if threads differ.

    To two cores, or as many as the variable ``BENCH_CORES`` says.
    """
    if not hasattr(os, "sched_setaffinity"):  # elsewhere than on Linux the environment has to do
        return
    cores = sorted(os.sched_getaffinity(0))[: int(os.environ.get("BENCH_CORES", "2"))]
    os.sched_setaffinity(0, cores)
    wanted = dict.fromkeys(THREADS, str(len(cores)))
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)


def processor_seconds():
    """Return what all processes of the machine have used so far, in seconds; NaN where nothing tells."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return float("nan")
    user, nice, system, _, _, irq, soft, *rest = map(int, first)
    return (user + nice + system + irq + soft + sum(rest[:1])) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """Return what this process and those it has waited for have used so far, in seconds."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


class Watch:
    """The machine's state from here on: which cores, what others used of the machine, the load."""

    def __init__(self):
        self.start = time.perf_counter(), processor_seconds(), own_seconds()

    def state(self):
        """Return the state as a dictionary for JSON."""
        began, all_began, own_began = self.start
        seconds, n_all = time.perf_counter() - began, os.cpu_count() or 1
        others = (processor_seconds() - all_began - own_seconds() + own_began) / (seconds * n_all)
        return {
            "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "seconds": round(seconds, 1),
            "load": round(os.getloadavg()[0], 2),
            "others": round(max(0.0, others), 3),
            "quiet": bool(others < LOUD),
        }


def shortest(functions, repeats=5, prepare=None):
    """Return the shortest run of each function, in seconds; they take turns, the first one does not count.

    After each run that can have used several threads of BLAS, there is a pause until these sleep.
    """
    times = []
    for _ in range(repeats + 1):
        turn = []
        for function in functions:
            if prepare is not None:
                prepare()
            start = time.perf_counter()
            function()
            turn.append(time.perf_counter() - start)
            if turn[-1] > SHORT:
                time.sleep(BUSY_AFTER)
        times.append(turn)
    return [min(column) for column in zip(*times[1:], strict=True)]


def verdict(ratio, measured, aim):
    """Return "met", "not met", or "busy" where the bare work took longer than what contains it."""
    if ratio is not None and ratio < PHYSICAL:
        return "busy"
    if aim is None:
        return ""
    return "met" if measured <= aim else "not met"


def save(path, **facts):
    """Write facts as JSON."""
    Path(path).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", "utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the numbers, as JSON")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for script, name in SCRIPTS:
        start = time.perf_counter()
        command = [sys.executable, str(Path(__file__).with_name(script)), "--json", str(folder / name)]
        command += ["--history", str(folder / "history.jsonl")] if script == "run.py" else []
        code = subprocess.run(command, check=False).returncode
        print(f"{script}: {time.perf_counter() - start:.0f} s, exit status {code}", flush=True)


if __name__ == "__main__":
    main()
