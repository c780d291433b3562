"""Kill commands at random moments, and count: nothing is lost, and the next run finishes the work.

``python tests/chaos.py --kills 100 --seed 1`` (or ``make chaos``). Each command is run undisturbed once. Then
it is killed (SIGKILL) at random moments of that time and run to its end. After every kill its inputs must be
unchanged and its output must be absent, complete, or refused with one clear error; after the last run it must
hold the undisturbed run's rows. Exit code 1 if anything is lost.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mgpa.maps import load_map
from mgpa.tables import TableError, TableWriter, open_table, simulate_table, write_table

STUDY = """
name = "chaos"
title = "Chaos"
seeds = [17]
[data]
kind = "table"
table = "table.parquet"
[gate]
rank = 2
[methods.CF]
method = "closed_form_mgpa"
[readers]
restarts = 0
"""
COMMANDS = {
    "fit": ["fit", "table.parquet", "--out", "new.safetensors"],
    "apply": ["apply", "map.safetensors", "parts", "--out", "corrected"],
    "apply to a file": ["apply", "map.safetensors", "parts", "--out", "corrected.parquet"],
    "convert": ["convert", "table.parquet", "--out", "converted.csv"],
    "audit": ["audit", "table.parquet", "--out", "audit", "--quick"],
    "study": ["study", "run", "study.toml", "--out", "study"],
}


def prepare(folder):
    """Write what the commands read."""
    table = simulate_table(40)
    write_table(table, folder / "table.parquet")
    bounds = np.linspace(0, len(table), 41).astype(int)
    with TableWriter(folder / "parts", table, np.diff(bounds).tolist()) as writer:
        for i in range(40):
            writer.write(i, table.take(slice(bounds[i], bounds[i + 1])))
    (folder / "study.toml").write_text(STUDY)
    run(folder, ["fit", "table.parquet", "--out", "map.safetensors"])


def run(folder, arguments, kill_after=None):
    """Run mgpa, to its end or until it is killed; return the exit code."""
    command = [sys.executable, "-m", "mgpa", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if kill_after is not None:
        time.sleep(kill_after)
        process.send_signal(signal.SIGKILL)
    said = process.communicate()[1].decode()
    assert "Traceback" not in said, said
    return process.returncode


def digests(folder):
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.rglob("*") if f.is_file()}


def content(path):
    """Return what an output holds; None if it is absent or refused as unfinished."""
    if path.suffix == ".safetensors":
        return load_map(path).transform(np.eye(16)).tobytes() if path.exists() else None
    if path.name in ("audit", "study"):
        results = sorted(path.rglob("*.csv"))
        return [file.read_bytes() for file in results] or None
    try:
        return open_table(path, embedding="f" if path.suffix == ".csv" else None).read().X.tobytes()
    except (FileNotFoundError, TableError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, counts, lost = random.Random(options.seed), dict.fromkeys(COMMANDS, 0), 0
    os.environ |= {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        inputs, expected, seconds = digests(folder), {}, {}
        outputs = {name: folder / command[command.index("--out") + 1] for name, command in COMMANDS.items()}
        while sum(counts.values()) < options.kills:
            for name, command in COMMANDS.items():
                out = outputs[name]
                if name not in expected:
                    start = time.monotonic()
                    assert run(folder, command) == 0, name
                    seconds[name], expected[name] = time.monotonic() - start, content(out)
                shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
                for _ in range(2):
                    run(folder, command, kill_after=rng.uniform(0.3, 1) * seconds[name])
                    counts[name] += 1
                    there = content(out) if "audit" not in name and "study" not in name else None
                    lost += there not in (None, expected[name])
                finished = run(folder, command)  # 2: what was killed had just finished
                lost += finished not in (0, 2) or content(out) != expected[name]
                now = digests(folder)
                lost += any(now.get(file) != digest for file, digest in inputs.items())
                print(f"{name}: {counts[name]} kills, {lost} lost", flush=True)
                shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    print(f"{sum(counts.values())} kills, {lost} lost")
    return int(lost > 0)


if __name__ == "__main__":
    raise SystemExit(main())
