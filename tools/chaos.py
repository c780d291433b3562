"""Trials of what reliability.md promises: nothing lost, no traceback, no hang, bounded memory.

``python tools/chaos.py --kills 100 --seed 1`` (or ``make chaos``), and any of the others:

--kills N
    Each command runs in a fork of a process that has loaded everything, first undisturbed. Then it is
    stopped (SIGKILL, SIGINT or SIGTERM) at a random moment, and just before a random change to files (an
    open for writing, a rename, a link, a removal), and run to its end. After every stop the inputs must be
    unchanged and the output absent, complete, or refused with one clear error; exit code 0 must mean that the
    output is there; three seconds later no process of the command may be left; and the last run must give the
    undisturbed run's rows. Of a parallel audit, workers are killed, too, which must be one error.
--tables N
    Tables made to hurt (odd descriptions, names, texts, types; damaged bytes), each given to a command.
--flips
    Every bit of a small archive and of a small Parquet file.
--calls N
    Calls of estimators, maps and tables with odd arguments.
--soak MINUTES
    Reads, writes, fits and corrections in one process, whose memory and descriptors must not grow.

Exit code 1 if anything is lost, ends in a traceback, takes 30 s, or takes 2 GB for a file below 1 MB.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads do not survive a fork

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mgpa
import mgpa.audit.plots
import mgpa.audit.report
import mgpa.cli
import mgpa.paper.datasets.catalogue
import mgpa.paper.studies.results
from mgpa.maps import load_map
from mgpa.tables import (
    Table,
    TableError,
    TableWriter,
    apply_to_table,
    fit_table,
    open_table,
    simulate_table,
    write_table,
)

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
AUDIT = ["audit", "table.parquet", "--quick", "--methods", "closed_form_mgpa"]
COMMANDS = {
    "fit": ["fit", "table.parquet", "--out", "new.safetensors"],
    "apply": ["apply", "map.safetensors", "parts", "--out", "corrected"],
    "apply to a file": ["apply", "map.safetensors", "parts", "--out", "corrected.parquet"],
    "apply to CSV": ["apply", "map.safetensors", "parts", "--out", "corrected.csv"],
    "convert": ["convert", "table.parquet", "--out", "converted.csv"],
    "convert to npz": ["convert", "table.parquet", "--out", "converted.npz"],
    "select": ["select", "map.safetensors", "table.parquet", "--budget", "0.01", "--out", "half.safetensors"],
    "simulate": ["simulate", "--out", "simulated.parquet"],
    "audit": [*AUDIT, "--out", "audit"],
    "parallel audit": [*AUDIT, "--out", "parallel", "--jobs", "2"],
    "study": ["study", "run", "study.toml", "--out", "study"],
    "fetch": ["data", "fetch", "wearable_ssvep", "--from", "osf:ab3de", "--out", "fetched"],
}
CHANGES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")
STOPS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
SECONDS, BYTES = 30, 2 * 2**30
EXPECTED = (ValueError, TypeError, ImportError, OSError, RuntimeError, NotImplementedError)


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


def run(folder, arguments, *, seconds=None, changes=None, stop=signal.SIGKILL, worker=False, limit=None):
    """Run mgpa to its end, or until it is stopped.

    Return the exit code (None: it hung), how often it changed files, the memory it took, and what it said.
    """
    log = folder.parent / "log"
    receive, send = os.pipe()
    if (child := os.fork()) == 0:
        os.close(receive)
        run_in_child(
            folder, arguments, log, send, changes, stop, ends_workers=worker or "--jobs" in arguments
        )
    os.close(send)
    start, stopped = time.monotonic(), False
    while not (ended := os.wait4(child, os.WNOHANG))[0]:
        now = time.monotonic() - start
        if seconds is not None and now >= seconds and not stopped:
            others = workers_of(child) if worker else [child]
            if others:
                stopped = True
                with suppress(ProcessLookupError):
                    os.kill(random.choice(others), signal.SIGKILL if worker else stop)
        if limit is not None and now > limit:
            os.killpg(child, signal.SIGKILL)
            os.wait4(child, 0)
            return None, 0, 0, log.read_text(errors="replace")
        time.sleep(0.002)
    with os.fdopen(receive) as pipe:
        os.set_blocking(pipe.fileno(), False)  # a worker may still hold the other end
        before, count, *_ = [*map(int, pipe.read().split()), 0, 0]
    said = log.read_text(errors="replace")
    return os.waitstatus_to_exitcode(ended[1]), count, 1024 * ended[2].ru_maxrss - before, said


def run_in_child(folder, arguments, log, send, changes, stop, ends_workers):
    """Run mgpa in this fork, which ends; write its memory at the start and its changes of files to a pipe."""
    os.setsid()
    os.write(send, f"{resident()} ".encode())
    with open(log, "w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    os.chdir(folder)
    count = 0

    def watch(event, details):
        nonlocal count
        if event in CHANGES or (event == "open" and set(str(details[1])) & set("wax+")):
            count += 1
            if count - 1 == changes:
                os.kill(os.getpid(), stop)

    sys.addaudithook(watch)
    code = 1
    try:
        code = mgpa.cli.main(arguments)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(send, str(count).encode())
    if ends_workers:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True, kill_workers=True)
    os._exit(code)


def workers_of(leader):
    """Return the workers in the session of a process; not joblib's resource trackers."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[3] == str(leader) and b"popen_loky" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def resident():
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def digests(folder):
    """Return the checksum of every file."""
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.rglob("*") if f.is_file()}


def content(path):
    """Return what an output holds, by file; empty if it is absent or refused as unfinished."""
    if path.suffix == ".safetensors":
        return {"map": load_map(path).transform(np.eye(16)).tobytes()} if path.exists() else {}
    if path.name == "fetched":
        return {name: (path / name).read_bytes() for name in FILES if (path / name).exists()}
    if path.name in ("audit", "parallel", "study"):
        return {file.name: file.read_bytes() for file in sorted(path.rglob("*.csv"))}
    try:
        return {"X": open_table(path, embedding="f" if path.suffix == ".csv" else None).read().X.tobytes()}
    except (FileNotFoundError, TableError):
        return {}


def remove(path):
    """Remove a file or a folder."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def try_kills(folder, kills, rng, only):
    """Stop every command in turn, until there are enough stops; return how often what went wrong."""
    prepare(folder)
    trials = [StoppedCommand(folder, name) for name in COMMANDS if not only or name in only]
    wrong, counts = Counter(), Counter()
    while counts.total() < kills:
        for trial in trials:
            for when in (
                ("seconds", "changes", "worker") if "--jobs" in trial.command else ("seconds", "changes")
            ):
                trial.stop(when, rng, wrong, counts)
            print(f"{counts.total()} stops, {wrong.total()} wrong; {trial.name}", flush=True)
    print(f"{counts.total()} stops: {dict(sorted(counts.items()))}")
    return wrong


class StoppedCommand:
    """A command, what it writes when nobody stops it, how long that takes, and how often it changes files."""

    def __init__(self, folder, name):
        self.folder, self.name, self.command = folder, name, COMMANDS[name]
        self.out = folder / self.command[self.command.index("--out") + 1]
        self.inputs = digests(folder)
        start = time.monotonic()
        code, self.changes, _, said = run(folder, self.command)
        self.seconds, self.expected = time.monotonic() - start, content(self.out)
        assert (code, not self.expected) == (0, False), said
        remove(self.out)

    def stop(self, when, rng, wrong, counts):
        """Run and stop it at a random moment, look at what is left, and run it to its end."""
        stop, worker = rng.choice(STOPS), when == "worker"
        at = rng.randrange(self.changes) if when == "changes" else rng.uniform(0, self.seconds)
        how = {"worker": True, "seconds": at} if worker else {when: at, "stop": stop}
        moment = f"{'a worker killed' if worker else stop.name} at {when} {at:.2f}"

        def note(what, said):
            wrong[what] += 1
            print(f"{what.upper()}: {self.name}, {moment}: {said[-2000:]}", flush=True)

        start = time.monotonic()
        code, _, _, said = run(self.folder, self.command, limit=self.seconds * 5 + SECONDS, **how)
        if code is None:
            note("hung", said)
            return
        if "Traceback" in said or code == 1:
            note("traceback", said)
        made = content(self.out)
        if not made.items() <= self.expected.items() or (code == 0 and made != self.expected):
            note("lost", said)
        if code < 0 and not worker and (left := self.left_over()):
            note("left over", str(left))
        if code == 0:  # it was faster than the first time
            self.seconds = min(self.seconds, time.monotonic() - start)
        else:
            counts[f"{self.name}, {'worker' if worker else stop.name}"] += 1
            finished, _, _, said = run(self.folder, self.command)
            # 2: what was killed without a word had just finished
            ends = (0, 2) if stop == signal.SIGKILL and not worker else (0,)
            if finished not in ends or content(self.out) != self.expected:
                note("lost", f"exit code {code} and then {finished}: {said}")
            now = digests(self.folder)
            if any(now.get(file) != digest for file, digest in self.inputs.items()):
                note("lost", "an input changed")
        remove(self.out)

    def left_over(self):
        """Return the processes that still work in the folder after three seconds."""
        end = time.monotonic() + 3
        while (left := working_in(self.folder)) and time.monotonic() < end:
            time.sleep(0.05)
        return left


def working_in(folder):
    """Return processes that work in the folder, except this one."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and Path(os.readlink(entry / "cwd")) == folder:
                found.append((int(entry.name), (entry / "cmdline").read_bytes()[:80]))
    return found


# Tables made to hurt.


def nested(depth, rng):
    """Return lists and dicts inside each other."""
    value = rng.choice([1, "x", None, [], {}])
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def odd_value(rng):
    """Return something unexpected that JSON can hold."""
    return rng.choice(
        [
            lambda: rng.choice(["", "eegpt", "\x1b[2J", "x" * 10**5, "\u202e", "\ud83d"]),
            lambda: rng.choice([0, -1, 1.5, 10**30, 1e308, True, None]),
            lambda: [rng.choice(["a", 1, None, [], {}]) for _ in range(rng.randrange(20))],
            lambda: {str(rng.choice(["name", "checkpoint", "sha256", ""])): odd_value(rng) for _ in range(3)},
            lambda: nested(rng.randrange(1, 300), rng),
        ]
    )()


def odd_info(rng):
    """Return what a table may say about itself, with the names that mgpa reads."""
    names = ["encoder", "feature_names", "unit", "source_column", "corrected_by", "coordinates", "decimal"]
    return {rng.choice([*names, "signals", "x"]): odd_value(rng) for _ in range(rng.randrange(1, 4))}


def odd_column(rng, n):
    """Return a column of n rows, as Arrow holds it."""
    return rng.choice(
        [
            lambda: pa.array([rng.choice(["a", "", "\x1b", "é" * 100, None]) for _ in range(n)]),
            lambda: pa.array([rng.choice([1, -1, 2**62, None]) for _ in range(n)]),
            lambda: pa.array([rng.choice([1.0, float("nan"), float("inf"), None]) for _ in range(n)]),
            lambda: pa.array([[1] * rng.randrange(4) for _ in range(n)]),
            lambda: pa.array([{"a": 1}] * n),
            lambda: pa.array([None] * n),
            lambda: pa.array(["x" * rng.choice([10, 10**5, 10**6])] * n).dictionary_encode(),
            lambda: pa.array([b"\xff\xfe"] * n),
            lambda: pa.array([rng.randrange(2**40) for _ in range(n)]).cast(pa.timestamp("ns")),
            lambda: pa.array([rng.choice([True, False, None]) for _ in range(n)]),
        ]
    )()


def hostile_table(rng, folder, sound):
    """Write a table made to hurt; return its name."""
    kind = rng.choice(["npz", "parquet", "csv", "bytes", "bytes", "npz array", "zip"])
    n = rng.choice([0, 1, 3, 40, 3000])
    names = ["source", "label", "participant", "pair_id", "role", "note", "X", "embedding", "mgpa", ""]
    names += ["x" * 70_000, "x" * 2000, "a\x1b[2J", "\u202e", "a/b", "../up", "f0", "f1", "f2"]
    chosen = rng.sample(names if rng.random() < 0.5 else names[:6], rng.randrange(1, 6))
    if kind == "bytes":
        name, data = rng.choice(sorted(sound.items()))
        (folder / name).write_bytes(damaged(rng, data))
        return name
    if kind == "csv":
        write_hostile_csv(rng, folder / "t.csv", chosen, n)
        return "t.csv"
    head = json.dumps(
        {
            "format": rng.choice([1] * 9 + [2, "1", None]),
            "shape": rng.choice([[4]] * 9 + [[2, 2], [0], [-1], [2**62], ["4"], 4, [1e400]]),
            "info": rng.choice([{}, {}, odd_info(rng), odd_info(rng), odd_value(rng)]),
        }
    )
    if kind == "parquet":
        write_hostile_parquet(rng, folder / "t.parquet", chosen, n, head)
        return "t.parquet"
    write_hostile_archive(rng, folder / "t.npz", chosen, n, head, plain=kind == "npz array")
    return "t.npz"


def damaged(rng, sound):
    """Return bytes some of which are changed, perhaps cut off."""
    data = bytearray(sound)
    for _ in range(rng.choice([1, 1, 5, 200])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return data[: rng.choice([len(data), rng.randrange(len(data))])]


def write_hostile_csv(rng, path, names, n):
    """Write a CSV file of n lines with odd cells."""
    cells = ["1", "2.5", "", "NA", "nan", "1e999", "x" * 10**5, '"', "1,5", "\x00", "\x1b[2J", "=1+1"]
    lines = [",".join(rng.choice(cells) for _ in range(rng.randrange(1, 8))) for _ in range(n)]
    text = ",".join(names) + "\n" + "\n".join(lines)
    coding = rng.choice(["utf-8", "utf-16", "latin-1"])
    path.write_bytes(text.encode(coding, "replace"))


def write_hostile_parquet(rng, path, names, n, head):
    """Write a Parquet file with odd columns and this description."""
    columns = {name: odd_column(rng, n) for name in names if name not in ("X", "embedding")}
    X = rng.choice(
        [lambda: pa.array([[rng.gauss(0, 1) for _ in range(4)] for _ in range(n)])] * 5
        + [
            lambda: pa.array([[1.0, 2.0, 3.0, 4.0]] * n),
            lambda: pa.array([[float(i), 2.0, 3.0, 4.0] for i in range(n)]),
            lambda: pa.array([[1.0] * rng.randrange(5) for _ in range(n)], pa.list_(pa.float64())),
            lambda: pa.array([[]] * n, pa.list_(pa.float32())),
            lambda: odd_column(rng, n),
        ]
    )()
    if rng.random() < 0.7:
        columns |= {"source": pa.array([rng.choice(["a", "b"]) for _ in range(n)])}
    made = pa.table(columns | {"X": X})
    with suppress(UnicodeEncodeError):
        made = made.replace_schema_metadata({b"mgpa": head.encode()})
    pq.write_table(made, path, compression="zstd", use_dictionary=rng.random() < 0.7)


def write_hostile_archive(rng, path, names, n, head, plain):
    """Write an archive of arrays whose headers claim odd types and shapes, or, if plain, numbers."""
    with zipfile.ZipFile(path, "w", rng.choice([0, 8])) as archive:
        for name in {*names, "X"} - {"mgpa"}:
            dtype = rng.choice(
                ["<f8", ">f4", "<i8", "|b1", "<U3", "|S4", "|V2", "|O", "<M8[s]", "<c16", "<f2"]
            )
            shape = rng.choice([(n,), (n, 4), (n, 2, 2), (), (2**40,), (n, 0), (-1,)])
            header = {"descr": dtype, "fortran_order": rng.random() < 0.2, "shape": shape}
            if plain:
                header = {"descr": "<f8", "fortran_order": False, "shape": (n, 4) if name == "X" else (n,)}
            with suppress(ValueError, struct.error), archive.open(f"{name[:60_000]}.npy", "w") as stream:
                np.lib.format.write_array_header_1_0(stream, header)
                size = 8 * n * (4 if name == "X" else 1) if plain else rng.randrange(5000)
                stream.write(rng.randbytes(size) if rng.random() < 0.5 else bytes(size))
        with archive.open("mgpa.npy", "w") as stream, suppress(UnicodeEncodeError):
            np.lib.format.write_array(stream, np.array(head))


def try_tables(folder, n, rng):
    """Give tables made to hurt to commands; return how often what went wrong."""
    wrong, codes, most = Counter(), Counter(), 0
    table = simulate_table(4)
    sound = {}
    for name in ("t.npz", "t.parquet", "t.csv"):
        sound[name] = write_table(table, folder / name).read_bytes()
        (folder / name).unlink()
    m = fit_table(mgpa.ClosedFormMGPA(), simulate_table(6)).to_map()
    m.save(folder / "map.safetensors")
    for i in range(n):
        name = hostile_table(rng, folder, sound)
        embedding = rng.choice([[], ["--embedding", "f"], ["--embedding", "numeric"]])
        command = rng.choice(
            [
                ["inspect", name],
                ["convert", name, "--out", "new.parquet", *embedding],
                ["convert", name, "--out", "new.npz", *embedding],
                ["convert", name, "--out", "new.csv", *embedding],
                ["fit", name, "--out", "new.safetensors", "--method", "leace", *embedding],
                ["fit", name, "--out", "new.safetensors", *embedding],
                ["apply", "map.safetensors", name, "--out", "new.parquet", *embedding],
                ["check-pairs", name, *embedding],
            ]
        )
        code, _, memory, said = run(folder, command, limit=SECONDS)
        codes[code] += 1
        most = max(most, memory)
        size = (folder / name).stat().st_size
        what = None
        if code is None:
            what = "hung"
        elif "Traceback" in said or code not in (0, 2):
            what = "traceback"
        elif memory > BYTES and size < 2**20:
            what = "memory"
        elif not said.isprintable() and not said.replace("\n", "").replace("\r", "").isprintable():
            what = "control characters"
        if what:
            wrong[what] += 1
            kept = Path(tempfile.gettempdir()) / f"hostile-{i}-{name}"
            shutil.copy(folder / name, kept)
            print(f"{what.upper()}: {' '.join(command)} ({kept}): {said[-1500:]}", flush=True)
        for made in folder.glob("new.*"):
            remove(made)
        (folder / name).unlink()
        if i % 500 == 499:
            print(f"{i + 1} tables, {wrong.total()} wrong", flush=True)
    print(f"{n} tables: exit codes {dict(codes)}, at most {most / 2**20:.0f} MiB; {dict(wrong)} wrong")
    return wrong


def try_flips(folder):
    """Flip every bit of two small files; return how often what was read differs, or another error came."""
    wrong, table = Counter(), simulate_table(4).take(slice(0, 12))
    table = table.with_columns(note=[f"n{i % 3}" for i in range(12)], age=np.arange(12.0))
    for name in ("t.npz", "t.parquet"):
        sound, counts = write_table(table, folder / name).read_bytes(), Counter()
        for at in range(8 * len(sound)):
            flipped = bytearray(sound)
            flipped[at // 8] ^= 1 << at % 8
            (folder / name).write_bytes(flipped)
            try:
                read = open_table(folder / name).read()
                columns = {"X": read.X, **read.columns}
                same = read.info == table.info and columns.keys() == {"X", *table.columns}
                same = same and all(
                    np.array_equal(v, table.X if k == "X" else table.columns[k]) for k, v in columns.items()
                )
                counts["unnoticed, nothing changed" if same else "unnoticed, changed"] += 1
            except TableError:
                counts["noticed"] += 1
            except Exception as error:
                counts[f"{type(error).__name__}"] += 1
                print(f"{name}, bit {at}: {error!r}")
        print(f"{name}: {8 * len(sound)} flips: {dict(counts)}", flush=True)
        wrong.update({k: v for k, v in counts.items() if k not in ("noticed", "unnoticed, nothing changed")})
    return wrong


# Calls with odd arguments.


def odd_rows(rng, X):
    """Return rows as a user may pass them."""
    n = len(X)
    forms = [
        lambda: X,
        lambda: X[: n // 2],
        lambda: X.astype(rng.choice(["f4", "f2", "i4", "c16", "U8", "O"])),
        lambda: np.asfortranarray(X),
        lambda: X[:, ::2],
        lambda: X[0],
        lambda: X[None],
        lambda: X[:0],
        lambda: np.where(rng.random() < 0.5, np.nan, np.inf) * X,
        lambda: X * rng.choice([0, 1e300, 1e-300]),
        lambda: X.tolist(),
        lambda: rng.choice([None, "X", 3, {}, [], [[]], object()]),
    ]
    with suppress(ImportError):
        import torch

        forms += [lambda: torch.as_tensor(X), lambda: torch.as_tensor(X).to_sparse()]
        forms += [lambda: torch.as_tensor(X).to("meta"), lambda: torch.as_tensor(X).half()]
    with suppress(ImportError):
        import pandas

        forms += [lambda: pandas.DataFrame(X), lambda: pandas.DataFrame(X).astype(object)]
    return X if rng.random() < 0.5 else rng.choice(forms)()


def odd_labels(rng, values):
    """Return labels as a user may pass them."""
    n = len(values)
    return rng.choice(
        [
            *[lambda: values] * 25,
            lambda: values[: n // 2],
            lambda: None,
            lambda: np.zeros(n),
            lambda: np.full(n, np.nan),
            lambda: np.arange(n),
            lambda: [None] * n,
            lambda: values.astype(object),
            lambda: values[:, None],
            lambda: rng.choice(["ab", 3, {}, [[1], [2, 3]], object()]),
            lambda: [b"\xff"] * n,
        ]
    )()


def cheap_methods(table):
    """Return the methods that are fitted in a moment: the others take too long for thousands of calls."""
    cheap = []
    for name in [m.name for m in mgpa.baselines.list_methods() if not m.extra]:
        start = time.monotonic()
        with warnings.catch_warnings(), suppress(*EXPECTED), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            fit_table(mgpa.baselines.make_method(name), table)
        cheap += [name] if time.monotonic() - start < 0.3 else []
    return cheap


def odd_fit(rng, what, name, table):
    """Fit a method with odd arguments, and correct odd rows."""
    rows, ids = odd_rows(rng, table.X), np.asarray(table.pair_id)
    model = mgpa.baselines.make_method(name)
    given = {"source": odd_labels(rng, table.source), "y": odd_labels(rng, table.label)}
    if what == "pairs":
        given["pairs"] = (odd_rows(rng, table.X[:20]), odd_rows(rng, table.X[20:40]))
    elif rng.random() < 0.7:
        given["pair_id"] = odd_labels(rng, ids)
    if rng.random() < 0.3:
        given["groups"] = odd_labels(rng, table.participant)
    fit = model.partial_fit if what == "partial" and hasattr(model, "partial_fit") else model.fit
    fit(rows, given.pop("y"), **given)
    if hasattr(model, "transform"):  # what corrects predictions has none
        model.transform(odd_rows(rng, table.X))


def odd_call(rng, what, name, table, fitted):
    """Call one function with odd arguments."""
    if what in ("fit", "pairs", "partial"):
        odd_fit(rng, what, name, table)
        return
    rows = odd_rows(rng, table.X)
    if what == "transform":
        m = rng.choice(fitted)
        m.transform(rows, **({} if m.source_blind else {"source": odd_labels(rng, table.source)}))
    elif what == "check":
        rng.choice(fitted).check(rows, odd_labels(rng, table.source))
    else:
        columns = {k: odd_labels(rng, v) for k, v in table.columns.items() if rng.random() < 0.5}
        made = Table.from_columns({"X": rows, **columns}, rng.choice([{}, {}, odd_info(rng)]))
        apply_to_table(rng.choice(fitted[:2]), made)


def try_calls(n, rng):
    """Call estimators, maps and tables with odd arguments; return how often another error came."""
    wrong, results = Counter(), Counter()
    table = simulate_table(5)
    fitted = [
        fit_table(mgpa.baselines.make_method(name), table).to_map() for name in ("mgpa", "leace", "combat")
    ]
    cheap = cheap_methods(table)
    print(f"methods: {', '.join(cheap)}", flush=True)
    for i in range(n):
        what = rng.choice(["fit", "fit", "transform", "check", "table", "partial", "pairs"])
        name, start = rng.choice(cheap), time.monotonic()
        try:
            with (
                warnings.catch_warnings(),
                np.errstate(all="ignore"),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                warnings.simplefilter("ignore")
                odd_call(rng, what, name, table, fitted)
            results["a result"] += 1
        except EXPECTED as error:
            results["an error in words"] += 1
            home = type(error).__module__
            if "torch" in home or (isinstance(error, RuntimeError) and not home.startswith("mgpa")):
                wrong["foreign error"] += 1
                print(f"FOREIGN: {what} {name}: {error!r:.300}", flush=True)
        except Exception as error:
            wrong[type(error).__name__] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{where.filename}:{where.lineno}"
            print(f"{type(error).__name__}: {what} {name}: {error} at {place}", flush=True)
        if time.monotonic() - start > SECONDS:
            wrong["hung"] += 1
            print(f"HUNG: {what} {name}, call {i}", flush=True)
        if i % 500 == 499:
            print(f"{i + 1} calls, {wrong.total()} wrong", flush=True)
    print(f"{n} calls: {dict(results)}; {dict(wrong)} wrong")
    return wrong


def soak(folder, minutes, rng):
    """Read, write, fit and correct for a while; return whether memory or descriptors grew."""
    table = simulate_table(8)
    m = fit_table(mgpa.MGPA(), table).to_map()

    def state():
        return resident() / 2**20, len(os.listdir("/proc/self/fd"))

    def operations():
        path = folder / rng.choice(["t.npz", "t.parquet", "t.csv", "t"])
        yield lambda: write_table(table, path, overwrite=True)
        yield lambda: apply_to_table(
            m, open_table(path, embedding="f" if path.suffix == ".csv" else None).read()
        )
        yield lambda: load_map(m.save(folder / "m.safetensors")).check(table.X)
        yield lambda: fit_table(
            mgpa.baselines.make_method(rng.choice(["mgpa", "closed_form_mgpa", "leace"])), table
        )
        yield lambda: [*open_table(path, embedding="f" if path.suffix == ".csv" else None).batches(20)]
        yield lambda: mgpa.cli.main(["inspect", str(folder / "m.safetensors")])
        yield lambda: mgpa.cli.main(["fit", str(path), "--out", str(path)])

    end, done, states = time.monotonic() + 60 * minutes, 0, []
    while time.monotonic() < end:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            for operation in operations():
                operation()
                done += 1
        if done % 2100 == 0 or not states:
            states.append(state())
            print(f"{done} operations, {states[-1][0]:.0f} MiB, {states[-1][1]} descriptors", flush=True)
    # What libraries load and cache at first is not growth.
    quarter = states[len(states) // 4]
    last = state()
    print(f"{done} operations in {minutes} minutes; MiB and descriptors: {quarter} after a quarter, {last}")
    return Counter(
        {"memory grew": last[0] > 1.1 * quarter[0] + 50, "descriptors grew": last[1] > quarter[1] + 5}
    )


def main():
    """Do the trials that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="kill only these commands")
    parser.add_argument("--tables", type=int, default=0)
    parser.add_argument("--flips", action="store_true")
    parser.add_argument("--calls", type=int, default=0)
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not any((options.kills, options.tables, options.flips, options.calls, options.soak)):
        options.kills = 100
    os.environ["MGPA_OSF_API"] = serve_osf(Server())
    wrong = Counter()
    trials = {
        "kills": lambda folder, rng: try_kills(folder, options.kills, rng, options.only),
        "tables": lambda folder, rng: try_tables(folder, options.tables, rng),
        "flips": lambda folder, rng: try_flips(folder),
        "calls": lambda folder, rng: try_calls(options.calls, rng),
        "soak": lambda folder, rng: soak(folder, options.soak, rng),
    }
    for name, trial in trials.items():
        if getattr(options, name):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "work"
                folder.mkdir()
                wrong += trial(folder, random.Random(options.seed))
    print(f"wrong: {dict(wrong) or 'nothing'}")
    return int(wrong.total() > 0)


if __name__ == "__main__":
    raise SystemExit(main())
