"""Nothing that somebody has is lost, and no damaged or hostile file gives a wrong answer."""

import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mgpa
from mgpa._common.files import clear_leftovers, replacing, require_distinct_paths, write_atomically
from mgpa.tables import Table, correct_file, fit_table
from mgpa.tables.files import TableError, TableWriter, open_table, write_table
from simulated import simulated_table

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
zarr = pytest.importorskip("zarr")
pq = pytest.importorskip("pyarrow.parquet")

FORMATS = ("npz", "parquet", "zarr")


@pytest.fixture
def table():
    return simulated_table(n_people=8)


@pytest.fixture
def identity(table):
    return mgpa.AffineMap.identity(table.X.shape[1])


def in_parts(table, path, n_parts=3, **options):
    bounds = np.linspace(0, len(table), n_parts + 1).astype(int)
    with TableWriter(path, table, rows=np.diff(bounds).tolist(), **options) as writer:
        for i in range(n_parts):
            writer.write(i, table.take(slice(bounds[i], bounds[i + 1])))
    return path


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# What is there stays there.


def test_a_folder_of_foreign_parquet_files_is_never_replaced(table, identity, tmp_path):
    given = write_table(table, tmp_path / "t.parquet")
    folder = tmp_path / "results"
    folder.mkdir()
    pq.write_table(pa.table({"X": [[1.0]]}), folder / "somebody.parquet")
    (folder / "thesis.tex").write_text("…")
    before = content(folder)
    for write in (
        lambda: correct_file(identity, given, folder, overwrite=True),
        lambda: in_parts(table, folder, overwrite=True),
        lambda: correct_file(identity, given, folder.rename(tmp_path / "r.zarr"), overwrite=True),
    ):
        with pytest.raises(FileExistsError, match="remove it yourself"):
            write()
    assert [*content(tmp_path / "r.zarr").values()] == [*before.values()]


@pytest.mark.parametrize("suffix", ["", ".zarr"])
@pytest.mark.parametrize("place", ["notes.txt", "more/notes.txt", "X/c/0/notes.txt"])
def test_a_table_with_a_foreign_file_in_its_folder_is_not_replaced(table, identity, tmp_path, suffix, place):
    out = in_parts(table, tmp_path / f"out{suffix}", 1)
    given = write_table(table, tmp_path / "t.parquet")
    foreign = out / place
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_text("mine")
    with pytest.raises(FileExistsError, match=r"1 files that are no part of the table .*notes\.txt"):
        correct_file(identity, given, out, overwrite=True)
    if suffix:
        with pytest.raises(FileExistsError, match="no part of the table"):
            write_table(table, out, overwrite=True)
    assert foreign.read_text() == "mine"
    foreign.unlink()
    correct_file(identity, given, out, overwrite=True)
    assert "corrected_by" in open_table(out).info


def test_unfinished_output_never_takes_the_place_of_something_else(table, tmp_path):
    mine = tmp_path / "out.partial" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(FileExistsError, match="holds something else"):
        TableWriter(tmp_path / "out", table, [len(table)])
    assert mine.read_text() == "mine"
    mine.unlink()
    mine.parent.rmdir()
    writer = TableWriter(tmp_path / "out", table, [len(table)])
    mine.write_text("mine")
    writer.write(0, table)
    writer.finish()
    assert mine.read_text() == "mine"


def test_what_is_read_is_never_written(table, identity, tmp_path):
    parts = in_parts(table, tmp_path / "parts")
    single = write_table(table, tmp_path / "t.parquet")
    (tmp_path / "link").symlink_to(parts)
    os.link(single, tmp_path / "same.parquet")
    before = content(tmp_path)
    for given, out, message in (
        (parts, parts, "is what is read"),
        (parts, tmp_path / "link", "is what is read"),
        (single, tmp_path / "same.parquet", "is what is read"),
        (parts, tmp_path / "link" / "x.parquet", "lies in"),
        (parts, parts / "new", "lies in"),
        (parts / "part-00000.parquet", parts, "holds"),
    ):
        with pytest.raises(ValueError, match=f"{message}.*name another output"):
            correct_file(identity, given, out, overwrite=True)
    assert content(tmp_path) == before


def test_paths_that_differ_are_distinct(tmp_path):
    require_distinct_paths(tmp_path / "a", tmp_path / "b", tmp_path / "a-and-more", tmp_path / "c" / "a")


def special_files(folder):
    os.mkfifo(folder / "pipe.npz")
    (folder / "link.npz").symlink_to(folder / "pipe.npz")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s.npz"))
    (folder / "null.npz").symlink_to("/dev/null")  # by a link, lest a failing test break the machine
    return [folder / name for name in ("pipe.npz", "link.npz", "s.npz", "null.npz")]


def test_devices_pipes_and_sockets_are_not_replaced(table, identity, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    given = write_table(table, Path("t.parquet"))
    for path in special_files(Path()):
        kind = path.stat().st_mode
        for write in (
            lambda p: write_table(table, p, overwrite=True),
            lambda p: TableWriter(p, table, [len(table)], overwrite=True),
            lambda p: correct_file(identity, given, p, overwrite=True),
            lambda p: identity.save(p),
            lambda p: write_atomically(p, b""),
        ):
            with pytest.raises(FileExistsError, match="is a (device|named pipe|socket)"):
                write(path)
        if pytest.importorskip("onnx"):
            with pytest.raises(FileExistsError, match="is a (device|named pipe|socket)"):
                identity.to_onnx(path)
        assert path.stat().st_mode == kind


# What a killed process leaves.

WRITE = """
import itertools, sys
import numpy as np
from mgpa.tables.files import write_table
from mgpa.tables import Table
def stream():
    for i in itertools.count():
        yield Table(np.ones((20_000, 64)))
        print(i, flush=True)
write_table(stream(), sys.argv[1])
"""


@pytest.mark.parametrize("suffix", ["parquet", "zarr"])
def test_the_next_write_clears_what_a_killed_one_left(table, tmp_path, suffix):
    command = [sys.executable, "-c", WRITE, str(tmp_path / f"t.{suffix}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while int(process.stdout.readline()) < 4:
            pass
        clear_leftovers(tmp_path)
        assert len(list(tmp_path.iterdir())) == 1  # it is still at work
        process.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / ".0123.tmp").touch()  # somebody else's
    write_table(table, tmp_path / "other.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".0123.tmp", "other.npz"]


def test_leftovers_of_other_machines_and_of_running_processes_stay(tmp_path):
    with replacing(tmp_path / "a") as temporary:
        ours = temporary.name
        temporary.touch()
        elsewhere = tmp_path / ours.replace(ours.split("-")[1], "00000000").replace(
            str(os.getpid()), "999999999"
        )
        elsewhere.touch()
        clear_leftovers(tmp_path)
        assert temporary.exists()
        assert elsewhere.exists()


def test_a_folder_that_was_only_moved_aside_comes_back(table, tmp_path):
    path = in_parts(table, tmp_path / "t")
    with replacing(tmp_path / "a") as temporary:
        temporary.touch()
        dead = temporary.name.replace(f"-{os.getpid()}-", "-999999999-").removesuffix(".tmp")
    path.rename(tmp_path / f".t{dead}.old")  # killed between two renames
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        TableWriter(path, table, [len(table)])
    assert open_table(path).n_rows == len(table)
    in_parts(table, tmp_path / "old").rename(
        tmp_path / f".t{dead}.old"
    )  # killed before it removed the old one
    write_table(table, tmp_path / "other.npz")
    assert not (tmp_path / f".t{dead}.old").exists()


def test_interrupted_work_does_not_go_on_with_another_input_whatever_part_of_it_changed(
    table, identity, tmp_path, monkeypatch
):
    import mgpa.tables.correcting as correcting

    folder = tmp_path / "many"
    folder.mkdir()
    one = Table(np.ones((1, table.X.shape[1])))
    write_table(one, folder / "0000.parquet")
    for i in range(1, 1100):
        os.link(folder / "0000.parquet", folder / f"{i:04d}.parquet")
    original = correcting.write_corrected

    def stopped(m, part, writer, i):
        if i == 2:
            raise KeyboardInterrupt
        return original(m, part, writer, i)

    monkeypatch.setattr(correcting, "write_corrected", stopped)
    with pytest.raises(KeyboardInterrupt):
        correct_file(identity, folder, tmp_path / "out")
    (folder / "1099.parquet").unlink()
    write_table(replace(one, X=one.X * 2), folder / "1099.parquet")
    monkeypatch.setattr(correcting, "write_corrected", original)
    with pytest.raises(FileExistsError, match="another job"):
        correct_file(identity, folder, tmp_path / "out")


def test_a_writer_that_was_killed_after_all_was_in_place_starts_over(table, tmp_path):
    path = in_parts(table, tmp_path / "t", job="a")
    bounds = np.linspace(0, len(table), 4).astype(int)
    writer = TableWriter(path, table, np.diff(bounds).tolist(), overwrite=True, job="a")
    writer.table.rmdir()
    (writer.partial / "done" / "0").touch()
    in_parts(table, path, overwrite=True, job="a")
    assert open_table(path).n_rows == len(table)
    assert not writer.partial.exists()
