"""Kill commands at random, fill the disk, write twice at once: the same bytes come of it, or a clear error.

``python tests/chaos/chaos.py --kills 100 --seed 1`` (or ``make chaos``). Each command is run undisturbed
first; what it then left is what must be there in the end. In a round it is killed several times at random
moments (SIGKILL) and run to its end. After every kill, what it reads must be unchanged, and what it writes
must be complete or what was there before; after the last run every byte must be as undisturbed, with nothing
left beside it. The same with files that may not grow beyond a random size (a full disk), and with two
processes that write the same output. Exit code 1 if anything is lost. ``cluster.py`` does it to a cluster.
"""

import argparse
import hashlib
import importlib
import itertools
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

MODULES = (
    *("matplotlib.figure", "pandas", "pyarrow.parquet", "requests", "sklearn.linear_model", "torch"),
    *("mgpa.audit.report", "mgpa.cli", "mgpa.studies"),
)
FULL = 12  # runs of each command with a full disk, and
TWICE = 5  # pairs of writers; of those that take longer, fewer
LONG = 2.0

STUDY = """
name = "chaos"
title = "Chaos"
seeds = [17]
[data]
kind = "table"
table = "small.npz"
[gate]
rank = 2
[methods.CF]
method = "closed_form_mgpa"
[methods.LEACE]
method = "leace"
[readers]
restarts = 0
"""


class Command:
    """A command, run in copies of this process, which has imported everything already.

    Parameters
    ----------
    name : str
        For the report.
    arguments : list of str
        Of mgpa.
    outputs : list of str
        What it writes, relative to the folder it is run in.
    old : dict of str to str
        What stands in the place of an output before, by the name of the file to copy.
    share : float
        How many of a hundred kills it gets.
    """

    def __init__(self, name, arguments, outputs, old=None, share=20):
        self.name, self.arguments, self.outputs, self.old = name, arguments, outputs, old or {}
        self.share = share

    def prepare(self, folder):
        """Put back what was there before the first run."""
        for output in self.outputs:
            path = folder / output
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for output, source in self.old.items():
            shutil.copy(folder / source, folder / output)

    def start(self, folder, size=None):
        """Start it, and return the process and where it says something: no file, which could not grow."""
        said, says = os.pipe()
        process = os.fork()
        if process:
            os.close(says)
            return process, said
        os.dup2(says, 1)
        os.dup2(says, 2)
        os.chdir(folder)
        if size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        code = 1
        try:
            from mgpa.cli import main

            code = main(self.arguments)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)

    def run(self, folder, size=None):
        """Run it to its end, and return the exit code and what it said."""
        return ended(*self.start(folder, size))

    def left(self, folder):
        """Return the content of what it wrote."""
        found = {}
        for output in self.outputs:
            path = folder / output
            for file in sorted(path.rglob("*")) if path.is_dir() else [path] if path.exists() else []:
                if file.is_file():
                    found[str(file.relative_to(folder))] = digest(file)
        return found


def ended(process, said):
    """Return the exit code of a process, and what it said."""
    with open(said, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), text


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def unfinished(folder):
    return [str(path) for path in folder.rglob("*") if ".mgpa-" in path.name]


class Report:
    """What happened, counted; what must not happen, printed."""

    def __init__(self):
        self.counts, self.bad = Counter(), 0

    def require(self, holds, what):
        if not holds:
            self.bad += 1
            print(f"LOST: {what}", flush=True)


def kill_at_random(command, folder, expected, seconds, n_kills, rng, report):
    """Kill a command several times, a few in a round, and let it finish each round."""
    inputs = {path: digest(path) for path in folder.rglob("small*") if path.is_file()}
    inputs |= {path: digest(path) for path in (folder / "small_parts").iterdir()}
    left = n_kills
    while left:
        command.prepare(folder)
        before = command.left(folder)
        for _ in range(min(left, rng.choice((1, 2, 4)))):
            process, said = command.start(folder)
            time.sleep(rng.random() * seconds)
            os.kill(process, signal.SIGKILL)
            code, _ = ended(process, said)
            report.counts[f"{command.name}: {'killed' if code == -9 else 'done before'}"] += 1
            left -= code == -9
            now = command.left(folder)
            for name in command.outputs:
                path = folder / name
                if name in command.old:
                    same = now.get(name) in (before[name], expected[name])
                    report.require(same, f"{command.name}: {name} after a kill")
            for path, content in inputs.items():
                report.require(path.exists() and digest(path) == content, f"{command.name}: {path} changed")
            if not left:
                break
        finish(command, folder, expected, "after kills", report)


def finish(command, folder, expected, when, report):
    """Run a command to its end, unless it says that its output is there already, and see what it left."""
    code, text = command.run(folder)
    there = code == 2 and "exists; pass --overwrite" in text
    report.require(code == 0 or there, f"{command.name} {when}: exit code {code}: {text[-3000:]}")
    check(command, folder, expected, when, report)


def check(command, folder, expected, when, report):
    now = command.left(folder)
    differing = [name for name in {**expected, **now} if expected.get(name) != now.get(name)]
    differing = [name for name in differing if ".mgpa-" not in name]
    report.require(not differing, f"{command.name}: {', '.join(differing[:5])} differ {when}")
    report.require(not unfinished(folder), f"{command.name}: {unfinished(folder)[:3]} left {when}")


def fill_the_disk(command, folder, expected, n_runs, rng, report):
    """Let no file grow beyond a random size: an error that says so, and the next run is as undisturbed."""
    largest = max((folder / name).stat().st_size for name in expected)
    for _ in range(n_runs):
        command.prepare(folder)
        before = command.left(folder)
        code, text = command.run(folder, size=rng.randrange(1, largest))
        report.counts[f"{command.name}, disk full: {'error' if code == 2 else f'exit code {code}'}"] += 1
        clear = code == 0 or (code == 2 and "Traceback" not in text)
        report.require(clear, f"{command.name}: exit code {code} with a full disk: {text[-3000:]}")
        now = command.left(folder)
        for name in command.old:
            report.require(now.get(name) in (before[name], expected[name]), f"{name} with a full disk")
        finish(command, folder, expected, "after a full disk", report)


def write_twice(command, folder, expected, n_runs, rng, report):
    """Start two at once: both write the same, or one says that the other is there."""
    for _ in range(n_runs):
        command.prepare(folder)
        processes = [command.start(folder)]
        time.sleep(rng.random() * 0.05)
        processes.append(command.start(folder))
        ends = [ended(*process) for process in processes]
        codes = sorted(code for code, _ in ends)
        report.counts[f"{command.name}, two writers: exit codes {codes}"] += 1
        clear = set(codes) <= {0, 2} and 0 in codes and not any("Traceback" in text for _, text in ends)
        report.require(clear, f"{command.name}, two writers: {ends}"[-3000:])
        check(command, folder, expected, "after two writers", report)


def serve(files):
    """Serve files in a process of its own, and return it with the address of a list of them."""
    receive, send = os.pipe()
    process = os.fork()
    if process == 0:
        from server import Server, serve_manifest

        server = Server()
        for name, content in files.items():
            server.files[f"/files/{name}"] = content
        address = serve_manifest(server, files)
        os.write(send, address.encode())
        while True:
            time.sleep(60)
    return process, os.read(receive, 1000).decode()


def prepare(folder):
    """Write what the commands read, in a copy of this process."""
    process = os.fork()
    if process == 0:
        from mgpa.tables import TableWriter, write_table
        from simulated import simulated_table

        table = simulated_table(n_people=12)
        write_table(table, folder / "small.npz")
        write_table(table, folder / "small.parquet")
        bounds = [len(table) * i // 9 for i in range(10)]
        sizes = [b - a for a, b in itertools.pairwise(bounds)]
        with TableWriter(folder / "small_parts", table, rows=sizes) as writer:
            for i in range(9):
                writer.write(i, table.take(slice(bounds[i], bounds[i + 1])))
        (folder / "study.toml").write_text(STUDY)
        os._exit(0)
    os.waitpid(process, 0)
    Command("", ["fit", "small.parquet", "--out", "small.safetensors"], []).run(folder)
    Command("", ["fit", "small.parquet", "--method", "leace", "--out", "old.safetensors"], []).run(folder)
    Command("", ["apply", "old.safetensors", "small.parquet", "--out", "old.parquet"], []).run(folder)


def commands(address):
    fit = ["fit", "small_parts", "--out", "new.safetensors", "--overwrite"]
    apply = ["apply", "small.safetensors", "small_parts", "--out"]
    audit = ["audit", "small.npz", "--out", "audited", "--quick", "--methods", "leace"]
    fetch = ["data", "fetch", "wearable_ssvep", "--from", address, "--out", "got"]
    return [
        Command("fit", fit, ["new.safetensors"], {"new.safetensors": "old.safetensors"}),
        Command(
            "apply to a file",
            [*apply, "new.parquet", "--overwrite"],
            ["new.parquet"],
            {"new.parquet": "old.parquet"},
        ),
        Command("apply to a folder", [*apply, "new_parts"], ["new_parts"]),
        Command("audit", audit, ["audited"], share=10),
        Command("study", ["study", "run", "study.toml", "--out", "studied"], ["studied"], share=10),
        Command("download", fetch, ["got"]),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    rng, report = random.Random(options.seed), Report()
    os.environ["OMP_NUM_THREADS"] = "1"
    # Before there are copies of this process. Nothing is computed here, so there are no threads to lose.
    for module in MODULES:
        importlib.import_module(module)
    files = {f"R{i:03d}.mat": rng.randbytes(2_000_000) for i in range(6)}
    server, address = serve(files)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            prepare(folder)
            chosen = [c for c in commands(address) if not options.only or c.name in options.only]
            for command in chosen:
                command.prepare(folder)
                started = time.monotonic()
                code, text = command.run(folder)
                report.require(code == 0, f"{command.name} undisturbed: {text}")
                seconds, expected = time.monotonic() - started, command.left(folder)
                kills = round(options.kills * command.share / sum(c.share for c in chosen))
                kill_at_random(command, folder, expected, seconds, kills, rng, report)
                fill_the_disk(command, folder, expected, FULL if seconds < LONG else 2, rng, report)
                write_twice(command, folder, expected, TWICE if seconds < LONG else 1, rng, report)
                print(f"{command.name}: {seconds:.1f} s undisturbed, {kills} kills", flush=True)
        finally:
            os.kill(server, signal.SIGKILL)
    for what, n in sorted(report.counts.items()):
        print(f"{n:>5}  {what}")
    print(f"{report.bad} lost or wrong")
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main())
