"""No user's file is lost, and no damaged or hostile file gives a wrong answer."""

import errno
import importlib.util
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import mgpa
from mgpa._common.files import write_atomically
from mgpa.tables import Table, TableError, apply_to_file, apply_to_table, fit_table, open_table, write_table
from simulated import in_parts, simulated_table

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def table():
    return simulated_table(n_people=8)


@pytest.fixture
def identity(table):
    return mgpa.maps.AffineMap.identity(table.X.shape[1])


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# What is there stays there.


def test_a_folder_of_foreign_parquet_files_is_never_replaced(table, identity, tmp_path):
    given = write_table(table, tmp_path / "t.parquet")
    folder = tmp_path / "results"
    folder.mkdir()
    pq.write_table(pa.table({"X": [[1.0]]}), folder / "other.parquet")
    (folder / "thesis.tex").write_text("…")
    before = content(folder)
    for write in (
        lambda: apply_to_file(identity, given, folder, overwrite=True),
        lambda: in_parts(table, folder, overwrite=True),
    ):
        with pytest.raises(FileExistsError, match="files that mgpa did not write"):
            write()
    assert content(folder) == before


def test_what_is_read_is_never_written(table, identity, tmp_path):
    parts = in_parts(table, tmp_path / "parts")
    single = write_table(table, tmp_path / "t.parquet")
    (tmp_path / "link").symlink_to(parts)
    os.link(single, tmp_path / "same.parquet")
    before = content(tmp_path)
    for given, out in (
        (parts, parts),
        (parts, tmp_path / "link"),
        (single, tmp_path / "same.parquet"),
        (parts, tmp_path / "link" / "x.parquet"),
        (parts, parts / "new"),
        (next(parts.glob("part-00000-*")), parts),
    ):
        with pytest.raises(ValueError, match=r"overlaps the input.*name another output"):
            apply_to_file(identity, given, out, overwrite=True)
    assert content(tmp_path) == before


def special_files(folder):
    os.mkfifo(folder / "pipe.npz")
    (folder / "link.npz").symlink_to(folder / "pipe.npz")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s.npz"))
    (folder / "null.npz").symlink_to("/dev/null")  # a link, so that a failing test cannot break the machine
    return [folder / name for name in ("pipe.npz", "link.npz", "s.npz", "null.npz")]


def test_devices_pipes_and_sockets_are_not_replaced(table, identity, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    given = write_table(table, Path("t.parquet"))
    for path in special_files(Path()):
        kind = path.stat().st_mode
        for write in (
            lambda p: write_table(table, p, overwrite=True),
            lambda p: apply_to_file(identity, given, p, overwrite=True),
            lambda p: identity.save(p),
            lambda p: write_atomically(p, b""),
        ):
            with pytest.raises(FileExistsError, match="is a device, pipe or socket"):
                write(path)
        if importlib.util.find_spec("onnx"):
            with pytest.raises(FileExistsError, match="is a device, pipe or socket"):
                identity.to_onnx(path)
        assert path.stat().st_mode == kind


# What was lost is noticed.


def test_a_full_disk_is_named_with_the_file_and_replaces_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "m").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device; nothing was replaced: '.*m'"):
        write_atomically(tmp_path / "m", b"new")
    assert (tmp_path / "m").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m"]


# What opening takes is bounded by the file.

LIMITED = """
import resource, sys
import numpy, pyarrow.parquet
from mgpa.tables.files import TableError, open_table
import mgpa.tables.parquet
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**29,) * 2)
try:
    file = open_table(sys.argv[1])
    file.survey()
    file.read()
except TableError as error:
    print("TableError:", error)
"""


def refused(path):
    """What a process with half a gigabyte to spare, and half a minute, says about a file."""
    command = [sys.executable, "-c", LIMITED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def repeated_text(path):
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 10**6]))
    pq.write_table(pa.table({"X": [[1.0]] * 4000, "label": text}), path, compression="zstd")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="needs resource limits")
def test_long_texts_that_many_rows_share_are_refused_before_memory_is_taken(tmp_path):
    assert f"TableError: {tmp_path}" in (said := refused(repeated_text(tmp_path / "t.parquet")))
    assert "label has a text of 1000000 characters" in said


def test_small_files_that_claim_much_are_refused_before_memory_is_taken(tmp_path):
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**20, 32)}
    archive = zipfile.ZipFile(tmp_path / "t.npz", "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("X.npy", "w", force_zip64=True) as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for _ in range(16):
            stream.write(bytes(2**24))
    n = 2**24
    for i, lists in enumerate(([0, n], np.arange(0, n + 1, 2**12))):
        X = pa.ListArray.from_arrays(lists, pa.array(np.ones(n)))
        pq.write_table(pa.table({"X": X}), tmp_path / f"{i}.parquet", compression="zstd")
    for name, claimed in (("t.npz", 268435584), ("0.parquet", 2**27), ("1.parquet", 2**27)):
        with pytest.raises(TableError, match=rf"{name}: claims {claimed} bytes of numbers and has"):
            open_table(tmp_path / name)


def test_archives_whose_compression_python_unfolds_without_bound_are_refused(tmp_path):
    archive = zipfile.ZipFile(tmp_path / "t.npz", "w", zipfile.ZIP_BZIP2)
    with archive, archive.open("X.npy", "w") as stream:
        np.lib.format.write_array(stream, np.ones((4, 2)))
    with pytest.raises(TableError, match="compressed in a way that numpy does not write"):
        open_table(tmp_path / "t.npz")


def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "t.parquet")
    assert "a device, pipe or socket, not a table" in refused(tmp_path / "t.parquet")


def test_a_pipe_is_no_study(tmp_path):
    studies = pytest.importorskip("mgpa.paper.studies.load")
    os.mkfifo(tmp_path / "study.toml")
    with pytest.raises(ValueError, match=r"study\.toml is a device, pipe or socket"):
        studies.load_study(tmp_path / "study.toml")


# Ids are exact, and features are who they say they are.


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
    with pytest.raises(ValueError, match="X is bfloat16, not precise enough"):
        Table(np.ones((2, 2), dtypes.bfloat16))
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="X is bfloat16, not precise enough"):
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
        apply_to_table(m, open_table(path, embedding=swapped).read())
    with pytest.raises(TableError, match=f"{d - 1} of them instead of {d}"):
        apply_to_table(m, open_table(path, embedding=names[:-1], columns=["source"]).read())
    stored = write_table(open_table(path, embedding=swapped).read(), tmp_path / "stored.npz")
    with pytest.raises(TableError, match="in another order"):
        apply_to_file(m, stored, tmp_path / "out.npz")
    with pytest.raises(TableError, match="The table of pairs has other features"):
        fit_table(mgpa.ClosedFormMGPA(), file, pairs=stored)
    with pytest.raises(TableError, match="Table 1 has other features than the first"):
        Table.concatenate([file.read(), open_table(stored).read()])
    right = apply_to_table(m, open_table(path, embedding=names).read())
    nameless = apply_to_table(m, table)
    assert np.array_equal(right.X, nameless.X)
    assert ("feature_names" in right.info) == (components is None)
    apply_to_table(m, right, force=True)
    use = m.transform if components is None else m.from_raw
    with pytest.raises(ValueError, match="fitted on"):
        use(pd.DataFrame(table.X, columns=swapped))
