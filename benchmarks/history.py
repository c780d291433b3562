"""What was measured at which commit, on which machine, and what has become slower since.

    python benchmarks/run.py --history benchmarks/history.jsonl      # measure, append a line, compare
    python benchmarks/history.py benchmarks/history.jsonl            # compare the last lines of each machine

A line holds the commit, the date, the machine in words, its state during the run and every ratio. Ratios
are within one run, so they can be compared between days; between machines they cannot.
"""

import argparse
import json
import os
import subprocess
from datetime import date
from pathlib import Path

# A ratio may grow by this much before it counts as slower: machines are shared.
TOLERANCE = 0.25


def machine(device="cpu"):
    """Return this machine in words: its processor or GPU, and how many cores this process may use."""
    import platform

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        lines = [line.partition(":") for line in information.read_text().splitlines()]
        name = next((value.strip() for key, _, value in lines if key.strip() == "model name"), name)
    words = f"{name}, {cores} core{'s' * (cores != 1)}"
    if device != "cpu":
        import torch

        words = f"{torch.cuda.get_device_name()} with {words}"
    threads = os.environ.get("OMP_NUM_THREADS")
    return words if threads is None else f"{words}, OMP_NUM_THREADS={threads}"


def commit():
    """Return the commit of this checkout, with a plus sign if files differ from it."""
    root = Path(__file__).parents[1]

    def git(*words):
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout

    try:
        head = git("rev-parse", "--short", "HEAD").strip()
    except (OSError, subprocess.CalledProcessError):  # a copy of the tree without its history
        return os.environ.get("BENCH_COMMIT", "unknown")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/run.py").strip()
    return head + "+" * bool(changed)


def read(path):
    """Return the lines of a history; a file that is not there is empty."""
    path = Path(path)
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def record(path, ratios, device="cpu", state=None):
    """Append a line for this commit and machine, or complete the one there is; return it.

    ``state`` is the machine's during the run (quiet.py): cores, threads, load, what others used of it.
    """
    line = {"commit": commit(), "date": str(date.today()), "machine": machine(device)}
    line |= {"state": state, "ratios": ratios}
    kept = []
    for other in read(path):
        if (other["commit"], other["machine"]) == (line["commit"], line["machine"]):
            line["ratios"] = other["ratios"] | ratios
        else:
            kept.append(other)
    text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in [*kept, line])
    Path(path).write_text(text, "utf-8")
    return line


def regressions(lines):
    """Return sentences on what the last line has slower than the one before it on the same machine.

    A ratio that the line before lacks is compared with the last line that has it.
    """
    if not lines:
        return []
    *earlier, last = lines
    before = {}
    for line in earlier:
        if line["machine"] == last["machine"]:
            before |= {name: (ratio, line["commit"]) for name, ratio in line["ratios"].items()}
    return [
        f"{name}: ratio {ratio:.2f}, was {before[name][0]:.2f} at {before[name][1]} "
        f"({ratio / before[name][0] - 1:+.0%})"
        for name, ratio in last["ratios"].items()
        if name in before and ratio > (1 + TOLERANCE) * before[name][0]
    ]


def verdict(lines):
    """Return a few lines of text: what regressed on the machine of the last line."""
    if all(line["machine"] != lines[-1]["machine"] for line in lines[:-1]):
        return f"The first line of {lines[-1]['machine']}: nothing to compare with."
    slower = regressions(lines)
    if slower:
        return "\n".join([f"Slower by more than {TOLERANCE:.0%} on {lines[-1]['machine']}:", *slower])
    return f"Nothing is slower by more than {TOLERANCE:.0%} than it was on {lines[-1]['machine']}."


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    lines = read(parser.parse_args().file)
    for words in dict.fromkeys(line["machine"] for line in lines):
        print(verdict([line for line in lines if line["machine"] == words]))


if __name__ == "__main__":
    main()
