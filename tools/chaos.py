"""Kill commands at random moments, and count: nothing is lost, and the next run finishes the work.

``python tools/chaos.py --kills 100 --seed 1`` (or ``make chaos``). Each command runs in a fork of one process
that has loaded everything, first undisturbed. Then it is killed (SIGKILL) twice, at a random moment and just
before a random change to files (an open for writing, a rename, a link, a removal), and run to its end. After
every kill the inputs must be unchanged and the output absent, complete, or refused with one clear error;
after the last run it must hold the undisturbed run's rows. Exit code 1 if anything is lost.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads do not survive a fork

import numpy as np

import mgpa.audit.plots
import mgpa.audit.report
import mgpa.cli
import mgpa.paper.datasets.catalogue
import mgpa.paper.studies.results
from mgpa.maps import load_map
from mgpa.tables import TableError, TableWriter, open_table, simulate_table, write_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from server import FILES, Server, serve_osf

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
    "audit": ["audit", "table.parquet", "--out", "audit", "--quick", "--methods", "closed_form_mgpa"],
    "study": ["study", "run", "study.toml", "--out", "study"],
    "fetch": ["data", "fetch", "wearable_ssvep", "--from", "osf:ab3de", "--out", "fetched"],
}
CHANGES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")


def prepare(folder):
    """Write what the commands read."""
    table = simulate_table(16)
    write_table(table, folder / "table.parquet")
    bounds = np.linspace(0, len(table), 41).astype(int)
    with TableWriter(folder / "parts", table, np.diff(bounds).tolist()) as writer:
        for i in range(40):
            writer.write(i, table.take(slice(bounds[i], bounds[i + 1])))
    (folder / "study.toml").write_text(STUDY)
    assert run(folder, ["fit", "table.parquet", "--out", "map.safetensors"])[0] == 0


def run(folder, arguments, *, seconds=None, changes=None):
    """Run mgpa to its end, or until it is killed; return the exit code and how often it changed files."""
    log = folder.parent / "log"
    receive, send = os.pipe()
    if (child := os.fork()) == 0:
        with open(log, "w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.chdir(folder)
        count = 0

        def watch(event, details):
            nonlocal count
            if event in CHANGES or (event == "open" and set(str(details[1])) & set("wax+")):
                if count == changes:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

        sys.addaudithook(watch)
        code = mgpa.cli.main(arguments)
        os.write(send, str(count).encode())
        os._exit(code)
    os.close(send)
    if seconds is not None:
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with os.fdopen(receive) as pipe:
        count = int(pipe.read() or 0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert "Traceback" not in log.read_text(), log.read_text()
    return code, count


def digests(folder):
    """Return the checksum of every file."""
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.rglob("*") if f.is_file()}


def content(path):
    """Return what an output holds, by file; empty if it is absent or refused as unfinished."""
    if path.suffix == ".safetensors":
        return {"map": load_map(path).transform(np.eye(16)).tobytes()} if path.exists() else {}
    if path.name == "fetched":
        return {name: (path / name).read_bytes() for name in FILES if (path / name).exists()}
    if path.name in ("audit", "study"):
        return {file.name: file.read_bytes() for file in sorted(path.rglob("*.csv"))}
    try:
        return {"X": open_table(path, embedding="f" if path.suffix == ".csv" else None).read().X.tobytes()}
    except (FileNotFoundError, TableError):
        return {}


def remove(path):
    """Remove a file or a folder."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def main():
    """Kill every command in turn, until there are enough kills."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, counts, lost = random.Random(options.seed), dict.fromkeys(COMMANDS, 0), 0
    os.environ["MGPA_OSF_API"] = serve_osf(Server())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "work"
        folder.mkdir()
        prepare(folder)
        inputs, expected, times, changes = digests(folder), {}, {}, {}
        outputs = {name: folder / command[command.index("--out") + 1] for name, command in COMMANDS.items()}
        while sum(counts.values()) < options.kills:
            for name, command in COMMANDS.items():
                out = outputs[name]
                if name not in expected:
                    start = time.monotonic()
                    code, changes[name] = run(folder, command)
                    times[name], expected[name] = time.monotonic() - start, content(out)
                    assert (code, not expected[name]) == (0, False), (folder.parent / "log").read_text()
                    remove(out)
                for when in ("seconds", "changes"):
                    at = rng.uniform(0, times[name]) if when == "seconds" else rng.randrange(changes[name])
                    start = time.monotonic()
                    code, _ = run(folder, command, **{when: at})
                    lost += not content(out).items() <= expected[name].items()
                    counts[name] += code == -signal.SIGKILL
                    if code == 0:  # it was faster than the first time
                        times[name] = min(times[name], time.monotonic() - start)
                        remove(out)
                finished, _ = run(folder, command)  # 2: what was killed had just finished
                lost += finished not in (0, 2) or content(out) != expected[name]
                now = digests(folder)
                lost += any(now.get(file) != digest for file, digest in inputs.items())
                print(f"{name}: {counts[name]} kills, {lost} lost ({times[name]:.1f} s)", flush=True)
                remove(out)
    print(f"{sum(counts.values())} kills, {lost} lost: {counts}")
    return int(lost > 0)


if __name__ == "__main__":
    raise SystemExit(main())
