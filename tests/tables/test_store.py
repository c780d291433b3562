"""A folder of Parquet files: one version or an error, whoever writes, reads, replaces or is killed."""

import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import mgpa
from mgpa._common.files import ABANDONED_AFTER, clear_abandoned, replacing
from mgpa.errors import OutputExists
from mgpa.tables import Table, TableError, TableWriter, apply_to_file, apply_to_table, open_table, write_table
from mgpa.tables.parquet import INDEX
from simulated import in_parts, simulated_table

pytest.importorskip("pyarrow")


@pytest.fixture(params=["file", "memory"])
def place(request, tmp_path):
    return tmp_path / "t" if request.param == "file" else f"{request.getfixturevalue('memory')}/t"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "t"


def version(i, n=30):
    """Rows that show which version of a table they are of."""
    return Table(np.full((n, 4), float(i)), source=np.arange(n) % 2, other={"row": np.arange(n)})


def versions(table):
    """The versions of a table's rows; more than one is a mixture."""
    assert table.other["row"].tolist() == list(range(len(table)))
    return set(table.X.ravel().tolist())


def parts_of(path):
    return sorted(file for file in path.iterdir() if file.name.startswith("part-"))


# One version or an error


def test_a_table_replaced_while_it_is_read_is_one_version_or_an_error(place):
    in_parts(version(0), place, 3)
    for i in range(1, 6):
        file = open_table(place)
        batches = file.batches(10)
        first = next(batches)
        in_parts(version(i), place, 3, overwrite=True)
        with pytest.raises(TableError, match=r"missing|Nothing found|open"):
            list(batches)
        assert versions(first.take(slice(0, 0))) == set()
        assert versions(open_table(place).read()) == {float(i)}


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_a_file_replaced_while_it_is_read_is_one_version_or_an_error(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("mgpa.tables.layout.MAX_CHUNK_ROWS", 2)
    path = write_table(version(0), tmp_path / f"t.{suffix}")
    file = open_table(path)
    write_table(version(1), path, overwrite=True)
    if suffix == "npz":
        assert versions(file.read()) == {0.0}
    else:
        with pytest.raises(TableError, match="open the table again"):
            file.read()


def test_parts_exchanged_between_positions_or_tables_are_noticed(folder, tmp_path):
    in_parts(version(0), folder, 3)
    other = in_parts(version(1), tmp_path / "other", 3)
    first, second, third = parts_of(folder)
    for source in (second, parts_of(other)[0]):
        kept = first.read_bytes()
        shutil.copy(source, first)
        with pytest.raises(TableError, match="changed after it was opened or indexed"):
            open_table(folder)
        first.write_bytes(kept)
    file = open_table(folder)
    shutil.copy(parts_of(other)[2], third)
    with pytest.raises(TableError, match="changed after it was opened or indexed"):
        file.read()
    third.unlink()
    for use in (file.read, lambda: open_table(folder)):
        with pytest.raises(TableError, match=r"missing|No such file"):
            use()


def test_an_index_that_lost_or_changed_something_is_refused(folder):
    in_parts(version(0), folder, 3)
    index = folder / INDEX
    text = index.read_bytes()
    for damaged in (b"", b"{}", text[:-30], text.replace(b'"rows": 10', b'"rows": 11', 1)):
        index.write_bytes(damaged)
        with pytest.raises(TableError, match="damaged: its index"):
            open_table(folder)
    index.unlink()
    with pytest.raises(TableError, match=r"its index _mgpa_index\.json is missing"):
        open_table(folder)


def test_an_unfinished_table_is_not_a_table_and_is_finished_later(place):
    rows = version(0)
    writer = TableWriter(place, rows, [10, 20], job="a")
    writer.write(0, rows.take(slice(0, 10)), lambda: "x")
    with pytest.raises(TableError, match="has not finished"):
        open_table(place)
    with pytest.raises(TableError, match=r"1 of 2 parts are not written yet \(first: 1\)"):
        writer.finish()
    again = TableWriter(place, rows, [10, 20], job="a")
    assert again.find(1, lambda: "x") is None
    assert again.find(0, lambda: "y") is None  # made of other rows
    assert TableWriter(place, rows, [10, 20], job="b").find(0, lambda: "x") is None
    found = pickle.loads(pickle.dumps(again)).find(0, lambda: "x")
    again.written[0] = found
    again.write(1, rows.take(slice(10, 30)))
    again.finish()
    assert versions(open_table(place).read()) == {0.0}


def test_of_two_writers_one_finishes_and_the_other_says_so(place):
    first, second = (TableWriter(place, version(i), [30]) for i in range(2))
    first.write(0, version(0))
    second.write(0, version(1))
    first.finish()
    with pytest.raises(TableError, match="another process wrote a table there"):
        second.finish()
    third = TableWriter(place, version(2), [30], overwrite=True)
    third.write(0, version(2))
    third.overwrite = False
    with pytest.raises(OutputExists):
        third.finish()
    assert versions(open_table(place).read()) == {0.0}


# What is there stays there


def test_other_files_in_a_folder_stay_whenever_they_appear(folder):
    in_parts(version(0), folder, 2)

    def rows():
        (folder / "notes.txt").write_text("mine")
        (folder / "more").mkdir()
        yield version(1)

    write_table(rows(), folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "more").is_dir()
    assert versions(open_table(folder).read()) == {1.0}


@pytest.mark.parametrize("name", ["t.npz", "t.parquet", "t.csv", "t"])
def test_a_file_that_appears_while_a_table_is_written_is_not_replaced(tmp_path, name):
    path = tmp_path / name

    def rows():
        if name == "t":
            in_parts(version(5), path, 2)
        else:
            path.write_text("mine")
        yield version(0)

    with pytest.raises(OutputExists):
        write_table(rows(), path)
    assert versions(open_table(path).read()) == {5.0} if name == "t" else path.read_text() == "mine"


def test_unfinished_files_of_other_processes_stay_for_a_day(tmp_path):
    """Whatever their host and process are called: two containers can share both."""
    with replacing(tmp_path / "a") as temporary:
        temporary.touch()
        clear_abandoned(tmp_path)
        write_table(version(0), tmp_path / "other.npz")
        assert temporary.exists()
        old = time.time() - ABANDONED_AFTER - 10
        os.utime(temporary, (old, old))
        clear_abandoned(tmp_path)
        assert not temporary.exists()
        temporary.touch()


# Resuming


@pytest.fixture
def m():
    return mgpa.maps.AffineMap.identity(4)


def interrupt(monkeypatch, after):
    """Make a correction stop after n parts."""
    import mgpa.tables.rows as correcting

    original, done = correcting.write_corrected, []

    def stopped(*arguments):
        if len(done) == after:
            raise KeyboardInterrupt
        done.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(correcting, "write_corrected", stopped)


def test_resuming_keeps_finished_parts_whose_rows_are_the_same(m, tmp_path, monkeypatch):
    rows, out = version(3), tmp_path / "out"
    given = in_parts(rows, tmp_path / "given", 5)
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            apply_to_file(m, given, out)
    finished = {file.name: file.stat().st_mtime_ns for file in parts_of(out)}
    assert len(finished) == 3
    apply_to_file(m, given, out)
    at = {file.name: file.stat().st_mtime_ns for file in parts_of(out)}
    assert len(at) == 5
    assert finished.items() <= at.items()
    assert np.array_equal(open_table(out).read().X, rows.X)


@pytest.mark.parametrize("changed", ["X", "column"])
def test_resuming_after_the_input_changed_takes_none_of_the_old_rows(m, tmp_path, monkeypatch, changed):
    """The new input has the size and the times of the old one: only what is in it tells."""
    given, out = write_table(version(1), tmp_path / "t.parquet"), tmp_path / "out"
    monkeypatch.setattr("mgpa.tables.layout.MAX_CHUNK_ROWS", 2)
    write_table(version(1), given, overwrite=True)
    before = given.stat()
    with monkeypatch.context() as patch:
        interrupt(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            apply_to_file(m, given, out)
    table = version(2) if changed == "X" else replace(version(1), source=(np.arange(30) + 1) % 2)
    write_table(table, given, overwrite=True)
    assert given.stat().st_size == before.st_size or changed == "column"
    os.utime(given, ns=(before.st_atime_ns, before.st_mtime_ns))
    apply_to_file(m, given, out)
    found = open_table(out).read()
    assert np.array_equal(found.X, table.X)
    assert np.array_equal(found.source, table.source)


# Random interleavings


class Killed(BaseException):
    """What nothing catches, as nothing catches SIGKILL."""


def interleave(place, steps, seed):
    """Writers that begin, go on, finish or are killed, readers that open and read, in a random order."""
    rng, number = np.random.default_rng(seed), itertools.count(1)
    published, writers, readers = None, [], []
    counts = dict.fromkeys(["begun", "finished", "refused", "killed", "read", "errors"], 0)
    for _ in range(steps):
        action = rng.choice(["begin", "write", "write", "write", "finish", "kill", "open", "read", "read"])
        if action == "begin" and len(writers) < 3:
            i = float(next(number))
            with suppress(OutputExists):
                overwrite = bool(rng.integers(4))
                writers.append((i, TableWriter(place, version(i), [10, 20], overwrite=overwrite)))
                counts["begun"] += 1
        elif action == "write" and writers:
            i, writer = writers[0]
            part = int(rng.integers(2)) if len(writer.written) != 1 else 1 - next(iter(writer.written))
            writer.write(part, version(i).take(slice(0, 10) if part == 0 else slice(10, 30)))
        elif action == "finish" and writers:
            i, writer = writers.pop(0)
            try:
                writer.finish()
                published = i
                counts["finished"] += 1
            except (TableError, OutputExists):
                counts["refused"] += 1
        elif action == "kill" and writers:
            i, writer = writers.pop()

            def dies(i=i):
                yield version(i).take(slice(0, 5))
                raise Killed

            with suppress(Killed):
                writer.write(0, dies())
            counts["killed"] += 1
        elif action == "open" and len(readers) < 4:
            try:
                file = open_table(place)
                assert published is not None
                readers.append((published, file, file.batches(7)))
            except (FileNotFoundError, TableError):
                assert published is None
        elif action == "read" and readers:
            at = rng.integers(len(readers))
            i, file, batches = readers[at]
            try:
                rows = next(batches, None) if rng.integers(2) else file.read()
                assert rows is None or set(rows.X.ravel().tolist()) == {i}
                counts["read"] += 1
            except TableError:
                assert published != i
                counts["errors"] += 1
                rows = None
            if rows is None:
                readers.pop(at)
    if published is not None:
        assert versions(open_table(place).read()) == {published}
    return counts


@pytest.mark.parametrize("seed", range(3))
def test_any_interleaving_of_writers_readers_and_kills_shows_one_version_or_an_error(place, seed):
    counts = interleave(place, 150, seed)
    assert min(counts["finished"], counts["killed"], counts["read"]) > 0


@pytest.mark.slow
def test_ten_thousand_steps_of_writers_readers_and_kills(folder):
    counts = interleave(folder, 10_000, 7)
    assert min(counts.values()) > 20


def test_a_reader_among_writers_in_other_processes_sees_one_version(folder):
    in_parts(version(0), folder, 3)
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from test_store import in_parts, version
from mgpa.tables import TableError
for i in range(40):
    try:
        in_parts(version(float(sys.argv[1]) * 1000 + i), {str(folder)!r}, 3, overwrite=True)
    except TableError as error:
        assert "another process" in str(error)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    writers = [subprocess.Popen([sys.executable, "-c", script, str(i)], env=environment) for i in range(2)]
    read = errors = 0
    while any(writer.poll() is None for writer in writers):
        try:
            assert len(versions(open_table(folder).read())) == 1
            read += 1
        except TableError:
            errors += 1
    assert [writer.wait() for writer in writers] == [0, 0]
    assert read > 0
    assert len(versions(open_table(folder).read())) == 1
    assert len(parts_of(folder)) == 3


def test_a_killed_apply_goes_on_where_it_was(tmp_path):
    table = simulated_table(n_people=40)
    given = in_parts(table, tmp_path / "given", 200)
    fitted = mgpa.tables.fit_table(mgpa.ClosedFormMGPA(), table).to_map()
    fitted.save(tmp_path / "m.safetensors")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "mgpa", "apply", tmp_path / "m.safetensors", given, "--out", out]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and (not out.exists() or len(parts_of(out)) < 5):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    finished = {file.name for file in parts_of(out)}
    with pytest.raises(TableError, match="has not finished"):
        open_table(out)
    apply_to_file(fitted, given, out)
    assert finished <= {file.name for file in parts_of(out)}
    np.testing.assert_allclose(open_table(out).read().X, apply_to_table(fitted, table).X, rtol=1e-12)
