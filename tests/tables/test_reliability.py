"""Nothing that somebody has is lost, and no damaged or hostile file gives a wrong answer."""

import errno
import importlib.util
import io
import json
import os
import shutil
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
from mgpa.tables import Table, correct, correct_file, fit_table
from mgpa.tables.files import TableError, TableWriter, open_table, write_table
from mgpa.tables.files.drafts import LocalDraft
from simulated import in_parts, simulated_table

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
    others = tmp_path / "b", tmp_path / "a-and-more", tmp_path / "c" / "a"
    require_distinct_paths(tmp_path / "a", *others)
    with pytest.raises(ValueError, match="name another output"):
        require_distinct_paths(tmp_path / "a", *others, tmp_path / "a")


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
            with pytest.raises(FileExistsError, match=r"is a (device|named pipe|socket)"):
                write(path)
        if importlib.util.find_spec("onnx"):
            with pytest.raises(FileExistsError, match=r"is a (device|named pipe|socket)"):
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
    writer.draft.table.rmdir()
    (writer.partial / "done" / "0").touch()
    in_parts(table, path, overwrite=True, job="a")
    assert open_table(path).n_rows == len(table)
    assert not writer.partial.exists()


# What was lost is noticed.


def test_a_zarr_table_that_lost_a_column_is_refused(table, tmp_path):
    path = write_table(table, tmp_path / "t.zarr")
    (path / "role" / "zarr.json").unlink()  # without roles, everybody is fitted on
    with pytest.raises(TableError, match="damaged: role was written and is missing"):
        fit_table(mgpa.ClosedFormMGPA(), path)


def test_a_zarr_column_that_changed_its_type_is_refused(table, tmp_path):
    path = write_table(table, tmp_path / "t.zarr")
    described = path / "X" / "zarr.json"
    described.write_text(described.read_text().replace('"float64"', '"int64"'))
    # Earlier versions of zarr notice it themselves: the value that fills chunks is no whole number.
    with pytest.raises(
        TableError, match=r"damaged: X was written as float64 and is int64|Expected an integer"
    ):
        open_table(path)
    described.write_text(described.read_text().replace('"int64"', '"float64"').replace('"little"', '"big"'))
    with pytest.raises(
        TableError, match=r"damaged: X/zarr\.json, which describes the table, is not as it was"
    ):
        open_table(path)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_folder_that_lost_a_part_is_refused(table, tmp_path, lost):
    path = in_parts(table, tmp_path / "t")
    (path / f"part-{lost:05d}.parquet").unlink()
    with pytest.raises(TableError, match=r"damaged: (part-\d+\.parquet was written as part|3 parts with)"):
        open_table(path)


def test_parts_of_different_tables_are_not_taken_for_one(table, tmp_path):
    first = in_parts(table, tmp_path / "a", job="a")
    second = in_parts(replace(table, X=-table.X), tmp_path / "b", job="b")
    shutil.copy(second / "part-00001.parquet", first)
    with pytest.raises(TableError, match=r"part-00001\.parquet was not written with the other parts"):
        open_table(first)
    shutil.copy(second / "part-00001.parquet", second / "part-00003.parquet")
    with pytest.raises(
        TableError, match=r"part-00003\.parquet was written as part 1 of 3 and is part 3 here"
    ):
        open_table(second)
    write_table(table, second / "part-00003.parquet", overwrite=True)
    with pytest.raises(TableError, match=r"part-00003\.parquet was not written with the other parts"):
        open_table(second)


def test_an_archive_that_lost_a_column_is_refused(table, tmp_path):
    path = write_table(table, tmp_path / "t.npz")
    whole = path.read_bytes()
    directory = whole.rindex(b"role.npy")
    path.write_bytes(whole[:directory] + b"role.npx" + whole[directory + 8 :])
    with pytest.raises(TableError, match="damaged: role was written and is missing"):
        open_table(path)
    directory = whole.rindex(b"mgpa.npy")
    path.write_bytes(whole[:directory] + b"mgpa.npx" + whole[directory + 8 :])
    with pytest.raises(TableError, match="damaged: its description is not as it was written"):
        open_table(path)


def test_two_writers_that_begin_at_the_same_moment_write_one_table(tmp_path):
    first, second = (LocalDraft(tmp_path / "t") for _ in range(2))

    def create(place):
        place.mkdir()
        if not second.partial.exists():
            second.begin("the plan", lambda place: place.mkdir())

    first.begin("the plan", create)
    second.mark(0)
    assert first.done == {0}
    assert [path.name for path in tmp_path.iterdir()] == ["t.partial"]
    with pytest.raises(FileExistsError, match="unfinished output of another job"):
        first.begin("another plan", create)


@pytest.mark.parametrize("name", ["t", "t.zarr"])
def test_of_two_writers_of_a_table_one_finishes_and_the_other_says_so(table, tmp_path, name):
    first = TableWriter(tmp_path / name, table, [len(table)])
    second = TableWriter(tmp_path / name, table, [len(table)])

    def rows():
        first.write(0, table)  # while the second is at the same part
        first.finish()
        yield table

    with pytest.raises(FileExistsError, match=r"\.partial is gone while part 0 was written into it"):
        second.write(0, rows())
    with pytest.raises(FileExistsError, match=r"\.partial is gone before it was moved to its place"):
        second.finish()
    assert np.array_equal(open_table(tmp_path / name).read().X, table.X)
    assert os.listdir(tmp_path) == [name]
    if name == "t":
        assert [path.name for path in (tmp_path / "t").iterdir()] == ["part-00000.parquet"]


@pytest.mark.parametrize("removed", [["done/0"], ["done/0", "done"], ["done/0", "done", "plan.json"]])
def test_a_writer_killed_while_it_cleared_up_is_no_obstacle(table, tmp_path, removed):
    writer = TableWriter(tmp_path / "t", table, [len(table)])
    shutil.copytree(tmp_path / "t.partial", tmp_path / "copy")
    with writer:
        writer.write(0, table)
    (tmp_path / "copy").replace(tmp_path / "t.partial")
    shutil.rmtree(tmp_path / "t.partial" / "table")  # it is in its place
    (tmp_path / "t.partial" / "done" / "0").touch()
    for name in removed:
        path = tmp_path / "t.partial" / name
        path.rmdir() if path.is_dir() else path.unlink()
    with TableWriter(tmp_path / "t", table, [len(table)], overwrite=True) as again:
        again.write(0, table)
    assert os.listdir(tmp_path) == ["t"]


def test_a_full_disk_is_named_with_the_file_and_replaces_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "m").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device; nothing was replaced: '.*m'"):
        write_atomically(tmp_path / "m", b"new")
    assert (tmp_path / "m").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m"]


def test_a_damaged_parquet_footer_is_refused_before_pyarrow_sees_it(table, tmp_path, monkeypatch):
    path = write_table(table, tmp_path / "t.parquet")
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    assert len(pq.read_table(path)) == len(table)  # which does not mind the digest
    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetFile", lambda *_, **__: pytest.fail("pyarrow was given it"))
        for i in range(len(content) - length - 8, len(content)):
            path.write_bytes(content[:i] + bytes([content[i] ^ 1 << i % 8]) + content[i + 1 :])
            with pytest.raises(TableError, match="damaged"):
                open_table(path)
    path.write_bytes(content)
    assert open_table(path).verified
    pq.write_table(pq.read_table(path), tmp_path / "foreign.parquet")
    assert not open_table(tmp_path / "foreign.parquet").verified


def test_every_bit_of_what_describes_a_zarr_table_counts(table, tmp_path):
    path = write_table(replace(table, info={"encoder": {"name": "a"}}), tmp_path / "t.zarr")
    described = path / "zarr.json"
    described.write_text(described.read_text().replace('"name": "a"', '"name": "b"'))
    with pytest.raises(TableError, match=r"damaged: zarr\.json, which describes the table"):
        open_table(path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_files_that_other_tools_made_of_ours_open_and_say_that_nothing_vouches_for_them(
    table, tmp_path, suffix
):
    path, other = write_table(table, tmp_path / f"t.{suffix}"), tmp_path / f"other.{suffix}"
    if suffix == "npz":
        with np.load(path) as arrays:
            np.savez(other, **{name: arrays[name] for name in arrays.files if name != "role"})
    elif suffix == "parquet":
        pq.write_table(pq.read_table(path).drop_columns("role").slice(0, 50), other)
    else:
        xr = pytest.importorskip("xarray")
        data = xr.open_zarr(path, consolidated=False).load().drop_vars("role").isel(row=slice(0, 50))
        for variable in data.variables.values():
            variable.encoding.clear()
        data.to_zarr(other, zarr_format=3, consolidated=False)
    file = open_table(other)
    assert not file.verified
    assert "role" not in file.columns
    assert file.info == table.info
    assert open_table(path).verified
    assert open_table(in_parts(table, tmp_path / "parts")).verified


def test_tables_written_before_there_were_manifests_open(table, tmp_path):
    head = {"format": 1, "shape": [table.X.shape[1]], "info": {"encoder": "e"}}
    np.savez(tmp_path / "t.npz", X=table.X, source=table.source, mgpa=np.array(json.dumps(head)))
    data = pa.table({"embedding": table.X.tolist(), "source": table.source})
    pq.write_table(data.replace_schema_metadata({"mgpa": json.dumps(head)}), tmp_path / "t.parquet")
    path = write_table(Table(table.X, source=table.source, info={"encoder": "e"}), tmp_path / "t.zarr")
    (path / "X" / "mgpa.json").unlink()
    for suffix in FORMATS:
        file = open_table(tmp_path / f"t.{suffix}")
        assert not file.verified
        assert file.info == {"encoder": "e"}
        assert np.array_equal(file.read().X, table.X)


# What opening takes is bounded by the file.

LIMITED = """
import resource, sys
import numpy, pyarrow.parquet, zarr
from mgpa.tables.files import TableError, open_table
import mgpa.tables.files.parquet, mgpa.tables.files.zarr
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**29,) * 2)
try:
    file = open_table(sys.argv[1])
    file.check()
    file.read()
except TableError as error:
    print("TableError:", error)
"""


def refused(path):
    """What a process with half a gigabyte to spare, and half a minute, says about a file."""
    command = [sys.executable, "-c", LIMITED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def zarr_claiming(path, shape, chunks):
    group = zarr.create_group(str(path))
    group.create_array("X", shape=shape, chunks=chunks, dtype="f4")
    return path


def compressed_by_column(path):
    header = io.BytesIO()
    shape = (2**20, 32)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": True, "shape": shape})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("X.npy", "w", force_zip64=True) as stream,
    ):
        stream.write(header.getvalue())
        for _ in range(16):
            stream.write(bytes(2**24))
    return path


def repeated_text(path):
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 10**6]))
    pq.write_table(pa.table({"X": [[1.0]] * 4000, "note": text}), path, compression="zstd")
    return path


def repeated_numbers(path, lists):
    n = 2**24
    X = pa.ListArray.from_arrays(lists(n), pa.array(np.ones(n)))
    pq.write_table(pa.table({"X": X}), path, compression="zstd")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="needs resource limits")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: zarr_claiming(p / "t.zarr", (10**15, 4), (1000, 4)), "claims 16000000000000000 bytes"),
        (lambda p: zarr_claiming(p / "t.zarr", (10, 4), (10**12, 4)), "claims 16000000000000 bytes"),
        (lambda p: compressed_by_column(p / "t.npz"), "claims 268435584 bytes"),
        (lambda p: repeated_text(p / "t.parquet"), "note has text of 1000000 characters"),
    ],
)
def test_small_files_that_claim_much_are_refused_before_memory_is_taken(tmp_path, make, message):
    assert f"TableError: {tmp_path}" in (said := refused(make(tmp_path)))
    assert message in said


@pytest.mark.parametrize("lists", [lambda n: [0, n], lambda n: np.arange(0, n + 1, 2**12)])
def test_a_small_parquet_file_that_unfolds_into_far_more_is_refused(tmp_path, lists):
    said = refused(repeated_numbers(tmp_path / "t.parquet", lists))
    assert "TableError" in said
    assert "claims 134217728 bytes" in said


def test_archives_whose_compression_python_unfolds_without_bound_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.npz", "w", zipfile.ZIP_BZIP2) as archive:
        header = io.BytesIO()
        np.lib.format.write_array(header, np.ones((4, 2)))
        archive.writestr("X.npy", header.getvalue())
    with pytest.raises(TableError, match="compressed as numpy never does"):
        open_table(tmp_path / "t.npz")


def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "t.parquet")
    assert "a named pipe, not a table" in refused(tmp_path / "t.parquet")
    path = write_table(Table(np.ones((4, 2))), tmp_path / "t.zarr")
    chunk = path / "X" / "c" / "0" / "0"
    chunk.unlink()
    os.mkfifo(chunk)
    assert "X/c/0/0 is a named pipe, not a file" in refused(path)


def test_a_pipe_is_no_study(tmp_path):
    pytest.importorskip("pydantic")
    os.mkfifo(tmp_path / "study.toml")
    script = f"""
from mgpa.studies import load_study
load_study({str(tmp_path / "study.toml")!r})
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "study.toml is a named pipe, not a file" in done.stderr


# Ids are exact, and features are who they say they are.


def csv(path, ids, people=None):
    people = ["001"] * len(ids) if people is None else people
    lines = [f"{i}.5,{i},{i % 2},{people[i]},{pair}" for i, pair in enumerate(ids)]
    path.write_text("\n".join(["f0,f1,source,subject,event", *lines]) + "\n")
    return path


NAMES = {"subject": "participant", "event": "pair_id"}


def test_long_ids_of_a_csv_file_stay_apart(tmp_path):
    ids = [str(10**16 + 2 * (i // 2) + 1) for i in range(160)]
    assert len(set(ids)) == 80
    path = csv(tmp_path / "raw.csv", [*ids, ""])
    table = Table.from_csv(path, embedding="f", rename=NAMES)
    assert len(np.unique(table.pair_id[:-1])) == 80
    assert table.pair_id[-1] == ""
    with pytest.raises(ValueError, match=r"pair_id is 1e\+16 in row 0; .*Read ids as text"):
        Table.from_frame(pd.read_csv(path), embedding="f", rename=NAMES)


def test_participants_of_a_csv_file_keep_their_zeros_and_their_names(tmp_path):
    path = csv(tmp_path / "raw.csv", ["-1", "", "-1.0", "007", "7"], ["001", "1", "NA", "Nan", "1.0"])
    table = Table.from_csv(path, embedding="f", rename=NAMES)
    assert table.participant.tolist() == ["001", "1", "NA", "Nan", "1.0"]
    assert table.pair_id.tolist() == ["", "", "", "007", "7"]
    assert table.source.dtype.kind == "i"
    with pytest.raises(TableError, match=r"subject is missing in 1 rows \(first: row 1\)"):
        Table.from_csv(csv(path, ["1", "1"], ["a", ""]), embedding="f", rename=NAMES)
    with pytest.raises(ValueError, match="participant is 'nan', a missing value as text"):
        Table.from_csv(csv(path, ["1", "1"], ["a", "nan"]), embedding="f", rename=NAMES)


def test_ids_that_a_float_cannot_tell_apart_are_refused():
    X = np.ones((2, 2))
    for ids in ([2.0**53, 1], [2.0**63, 1], [1e300, 1], [np.inf, 1], [2**63, -1], np.array([2**24, 1], "f4")):
        with pytest.raises(ValueError, match=r"pair_id is .* in row 0; .*Read ids as text"):
            Table(X, pair_id=ids)
        with pytest.raises(ValueError, match=r"participant is .* in row 0"):
            Table(X, participant=np.array(ids, "f8" if isinstance(ids, list) else "f4"))
    assert Table(X, pair_id=[2.0**53 - 1, np.nan]).pair_id.tolist() == [2**53 - 1, -1]
    assert Table(X, pair_id=np.array([2**64 - 1, 1], "u8")).pair_id.tolist() == [2**64 - 1, 1]
    assert Table(X, participant=[1.0, 2.0]).participant.tolist() == ["1", "2"]


def test_masked_values_are_not_taken_for_data(identity):
    X = np.ma.masked_array(np.random.default_rng(0).normal(size=(4, 8)), mask=np.eye(4, 8))
    labels = np.ma.masked_array([0, 1, 0, 1], mask=[1, 0, 0, 0])
    for use in (
        lambda: Table(X),
        lambda: identity.transform(X),
        lambda: mgpa.ClosedFormMGPA().fit(X, source=[0, 1, 0, 1], pair_id=[0, 0, 1, 1]),
        lambda: Table(X.data, source=labels),
        lambda: Table(X.data, pair_id=labels),
        lambda: Table(X.data, other={"age": labels}),
    ):
        with pytest.raises(ValueError, match=r"(X|source|pair_id|age) has [14] masked values"):
            use()
    unmasked = np.ma.masked_array(X.data, mask=False)
    assert np.array_equal(Table(unmasked).X, X.data)


def test_bfloat16_is_refused_in_words(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.zeros((4, 3), "V2"))  # what numpy makes of it
    with pytest.raises(TableError, match="raw 2-byte values, as bfloat16 becomes; save float32"):
        open_table(tmp_path / "t.npz")
    dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(ValueError, match="X is bfloat16, too coarse"):
        Table(np.ones((2, 2), dtypes.bfloat16))
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="X is bfloat16, too coarse"):
        Table(torch.ones(2, 2, dtype=torch.bfloat16))


def named(table, path, order=None):
    """A table as others have it, a column a feature."""
    names = [f"f{i}" for i in range(table.X.shape[1])]
    data = pd.DataFrame(table.X, columns=names)[order or names].assign(**table.columns)
    data.to_parquet(path)
    return path


@pytest.mark.parametrize("components", [None, 4])
def test_permuted_features_are_refused(table, tmp_path, components):
    d = table.X.shape[1]
    names = [f"f{i}" for i in range(d)]
    path = named(table, tmp_path / "t.parquet")
    file = open_table(path, embedding="f")
    assert file.info["feature_names"] == names
    m = fit_table(mgpa.ClosedFormMGPA(), file, components=components).to_map()
    m = mgpa.load_map(m.save(tmp_path / "m.safetensors"))
    assert m.info.feature_names == tuple(names)
    swapped = [names[1], names[0], *names[2:]]
    with pytest.raises(TableError, match=r"in another order: 'f1' instead of 'f0', 'f0' instead of 'f1'"):
        correct(m, open_table(path, embedding=swapped).read())
    with pytest.raises(TableError, match=f"{d - 1} of them instead of {d}"):
        correct(m, open_table(path, embedding=names[:-1], columns=["source"]).read())
    stored = write_table(open_table(path, embedding=swapped).read(), tmp_path / "stored.npz")
    with pytest.raises(TableError, match="in another order"):
        correct_file(m, stored, tmp_path / "out.npz")
    with pytest.raises(TableError, match="The table of pairs has other features"):
        fit_table(mgpa.ClosedFormMGPA(), file, pairs=stored)
    with pytest.raises(TableError, match="Table 1 has other features than the first"):
        Table.concatenate([file.read(), open_table(stored).read()])
    right = correct(m, open_table(path, embedding=names).read())
    nameless = correct(m, table)
    assert np.array_equal(right.X, nameless.X)
    assert ("feature_names" in right.info) == (components is None)
    correct(m, right, force=True)
    use = m.transform if components is None else m.from_raw
    with pytest.raises(ValueError, match="fitted on"):
        use(pd.DataFrame(table.X, columns=swapped))
