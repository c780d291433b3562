"""Tables by address: the same as files, read in ranges, and nothing half-written that looks like a table."""

import json
import socket
import threading
from contextlib import suppress

import numpy as np
import pytest

import mgpa
from mgpa.errors import OutputExists, StoreError
from mgpa.tables import Table, TableError, apply_to_file, apply_to_table, fit_table, open_table, write_table
from mgpa.tables.parquet import INDEX
from simulated import in_parts, simulated_table
from stores import names_at, objects_at, store_of

pytest.importorskip("pyarrow")
fsspec = pytest.importorskip("fsspec")

FORMATS = ("t.npz", "t.parquet", "t")


@pytest.fixture(scope="module")
def table():
    return simulated_table(n_people=8)


@pytest.fixture(scope="module")
def m(table):
    return fit_table(mgpa.ClosedFormMGPA(), table).to_map()


@pytest.fixture(params=["memory", "s3"])
def store(request):
    return request.getfixturevalue(request.param)


def assert_same(first, second):
    np.testing.assert_array_equal(first.X, second.X)
    assert first.X.dtype == second.X.dtype
    assert first.columns.keys() == second.columns.keys()
    for name, values in first.columns.items():
        np.testing.assert_array_equal(values, second.columns[name])


# The same as files


def test_what_is_written_fitted_and_corrected_by_address_is_that_of_files(table, m, store):
    for name in FORMATS:
        address = f"{store}/{name}"
        assert str(write_table(table, address)) == address
        file = open_table(address)
        assert_same(file.read(), table)
        assert_same(Table.concatenate(file.batches(max_rows=50)), table)
        assert_same(file.read([3, 1, 100]), table.take([3, 1, 100]))
        fitted = fit_table(mgpa.ClosedFormMGPA(), address).to_map()
        assert str(fitted.save(f"{store}/{name}.safetensors")) == f"{store}/{name}.safetensors"
        loaded = mgpa.load_map(f"{store}/{name}.safetensors")
        assert loaded.info.fingerprint == m.info.fingerprint
        assert apply_to_file(loaded, address, f"{store}/corrected-{name}") == len(table)
        assert_same(open_table(f"{store}/corrected-{name}").read(), apply_to_table(m, table))


def test_a_csv_file_by_address_is_read(memory):
    content = b"f0,f1,who\n0.5,1,007\n2,3,7\n"
    fsspec.filesystem("memory").pipe_file("/folder/raw.csv", content)
    made = open_table(f"{memory}/raw.csv", embedding="f", rename={"who": "participant"}).read()
    assert made.participant.tolist() == ["007", "7"]


def test_what_is_there_is_replaced_only_if_told_so(table, store):
    other = table.take(slice(0, 50))
    for name in FORMATS:
        write_table(table, f"{store}/{name}")
        with pytest.raises(OutputExists, match=r"exists; pass overwrite=True"):
            write_table(other, f"{store}/{name}")
        assert len(open_table(f"{store}/{name}").read()) == len(table)
        write_table(other, f"{store}/{name}", overwrite=True)
        assert_same(open_table(f"{store}/{name}").read(), other)
    assert len(names_at(f"{store}/t")) == 2


def test_objects_that_are_not_ours_are_never_replaced(table, store):
    address = in_parts(table, f"{store}/parts", 2)
    files, root = store_of(store)
    files.pipe_file(f"{root}/parts/notes.txt", b"mine")
    in_parts(table, address, 2, overwrite=True)
    files.pipe_file(f"{root}/out/mine.txt", b"mine")
    with pytest.raises(FileExistsError, match=r"mgpa did not write \(mine\.txt\)"):
        in_parts(table, f"{store}/out", 2, overwrite=True)
    at = objects_at(store)
    assert at["parts/notes.txt"] == at["out/mine.txt"] == b"mine"


def test_a_lost_or_damaged_object_is_noticed(table, store):
    files, root = store_of(store)
    for name in FORMATS:
        write_table(table, f"{store}/{name}")
        place = f"{root}/{name}"
        if name == "t":
            place += "/" + next(n for n in names_at(f"{store}/t") if n != INDEX)
        content = bytearray(files.cat_file(place))
        content[len(content) // 3] ^= 1
        files.pipe_file(place, bytes(content))
        with pytest.raises(TableError, match=f"{store}/{name}: "):
            open_table(f"{store}/{name}").read()
    files.rm_file(place)
    with pytest.raises(TableError, match=r"missing|not a table"):
        open_table(f"{store}/t")


def test_errors_name_the_address_and_what_is_there(table, memory, s3):
    for store in (memory, s3):
        with pytest.raises(FileNotFoundError, match=rf"No file or folder {store}/no\.parquet"):
            open_table(f"{store}/no.parquet")
    with pytest.raises(FileNotFoundError, match=r"s3://no-such-bucket/t\.parquet"):
        write_table(table, "s3://no-such-bucket/t.parquet")
    with pytest.raises(ValueError, match=r"begins with ftp://; expected s3, gs"):
        open_table("ftp://host/t.parquet")
    with pytest.raises(StoreError, match=r"https://host/t\.parquet: https:// is read only"):
        write_table(table, "https://host/t.parquet")


def test_an_object_that_changes_while_it_is_read_is_one_version_or_an_error(table, store):
    """S3 says so by an ETag that is another one."""
    address = str(write_table(table, f"{store}/t.parquet"))
    file = open_table(address)
    with file.path.open(buffering=0) as stream:
        first = stream.read(100)
        write_table(table.take(slice(None, None, -1)), address, overwrite=True)
        stream.seek(0)
        with suppress(Exception):  # s3fs has an error of its own
            assert stream.read(100) == first
    with pytest.raises(TableError, match="open the table again"):
        file.read()


# Ranges


@pytest.fixture(scope="module")
def large():
    rng = np.random.default_rng(0)
    n = 70_000  # more than a row group
    return Table(
        rng.normal(size=(n, 64)).astype(np.float32),
        source=np.tile(["dry", "wet"], n // 2),
        other={"number": np.arange(n)},
    )


def test_columns_and_some_rows_are_read_without_the_rest(large, web, tmp_path):
    write_table(large, tmp_path / "web" / "t.parquet")
    file = open_table(f"{web.url}/t.parquet")
    opened = web.bytes_sent
    columns = file.read_columns("number")
    np.testing.assert_array_equal(columns["number"], large.other["number"])
    assert opened < 1e6 < 17e6 < large.X.nbytes
    assert web.bytes_sent - opened < 3.5e6
    opened, last = web.bytes_sent, file.parts[-1]
    assert_same(last.read(), large.take(slice(*last.bounds)))
    assert web.bytes_sent - opened < large.X.nbytes / 4


def test_a_server_without_ranges_or_without_folders_is_refused(large, web, tmp_path):
    in_parts(large, tmp_path / "web" / "parts", 2)
    with pytest.raises(FileNotFoundError, match=f"{web.url}/parts"):
        open_table(f"{web.url}/parts")
    write_table(large, tmp_path / "web" / "t.parquet")
    web.ranges = False
    with pytest.raises(TableError, match="support range requests"):
        open_table(f"{web.url}/t.parquet")


def test_a_server_that_stalls_is_given_up(monkeypatch):
    monkeypatch.setattr("mgpa._common.remote.TIMEOUT", (0.3, 0.3))
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted = []
        waiting = threading.Thread(target=lambda: accepted.append(server.accept()[0]))
        waiting.start()
        with pytest.raises((StoreError, TableError), match=r"[Tt]imeout|[Tt]imed out"):
            open_table(f"http://127.0.0.1:{server.getsockname()[1]}/t.parquet")
        waiting.join()
        accepted[0].close()


# Killed at any point


class Killed(BaseException):
    """What nothing catches, as nothing catches SIGKILL."""


@pytest.fixture
def stop_after(monkeypatch):
    """Return a function that makes the store fail for good after n changes."""
    left = [float("inf")]
    kind = type(fsspec.filesystem("memory"))

    def counted(name):
        change = getattr(kind, name)

        def counting(self, *arguments, **options):
            if left[0] <= 0:
                raise Killed
            left[0] -= 1
            return change(self, *arguments, **options)

        monkeypatch.setattr(kind, name, counting)

    for name in ("pipe_file", "put_file", "cp_file", "rm_file"):
        counted(name)

    def stop(after):
        left[0] = after

    return stop


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_correction_killed_after_any_change_goes_on_and_leaves_nothing(
    table, m, memory, stop_after, overwrite
):
    rows, out = Table(table.X[:60], source=table.source[:60]), f"{memory}/out"
    given = in_parts(rows, f"{memory}/given", 3)
    expected, old = apply_to_table(m, rows), rows.take(slice(0, 40))
    changes, finished = 0, False
    while not finished:
        if overwrite:
            in_parts(old, out, 2, overwrite=True)
        stop_after(changes)
        with suppress(Killed):
            apply_to_file(m, given, out, overwrite=overwrite)
            finished = True
        stop_after(float("inf"))
        if not finished:
            # A reader sees the old table, the new one or an error; never a mixture.
            with suppress(TableError, FileNotFoundError):
                there = open_table(out).read()
                assert_same(there, old if overwrite and len(there) == len(old) else expected)
            with suppress(OutputExists):  # all of it was there
                apply_to_file(m, given, out, overwrite=overwrite)
        assert_same(open_table(out).read(), expected)
        if finished or overwrite:
            assert len(names_at(out)) == 4
        store, path = store_of(out)
        store.rm(path, recursive=True)
        changes += 1
    assert changes > 4


@pytest.mark.slow
def test_a_large_object_appears_with_its_last_piece(s3, monkeypatch):
    import s3fs

    rng, n = np.random.default_rng(0), 240_000
    large = Table(rng.normal(size=(n, 128)).astype(np.float32), source=np.tile(["dry", "wet"], n // 2))
    calls, call = [], s3fs.S3FileSystem._call_s3

    async def cut_off(self, method, *arguments, **options):
        calls.append(method)
        if calls.count("upload_part") == 2:
            raise RuntimeError("cut off")
        return await call(self, method, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "_call_s3", cut_off)
        with pytest.raises(StoreError, match=r"t\.parquet: cut off"):
            write_table(large, f"{s3}/t.parquet")
    assert "create_multipart_upload" in calls
    assert names_at(s3) == []
    write_table(large, f"{s3}/t.parquet")
    assert_same(open_table(f"{s3}/t.parquet").read(), large)


# Secrets


def test_secrets_in_an_address_are_in_no_message_and_no_file(table, m, web, tmp_path):
    folder = tmp_path / "web"
    write_table(table, folder / "t.parquet")
    m.save(folder / "m.safetensors")
    (folder / "bad.parquet").write_bytes(b"PAR1 this is none PAR1")
    host = web.url.removeprefix("http://")
    secret = f"http://user:pass-word@{host}/{{}}?X-Amz-Signature=sig-nature"
    signed = mgpa.load_map(secret.format("m.safetensors"))
    apply_to_file(signed, secret.format("t.parquet"), tmp_path / "out")
    said = [str(open_table(secret.format("t.parquet")).path), repr(open_table(secret.format("t.parquet")))]
    said.append(json.dumps(open_table(tmp_path / "out").info))
    for use, bad in (
        (open_table, "bad.parquet"),
        (open_table, "missing.parquet"),
        (mgpa.load_map, "missing.safetensors"),
    ):
        with pytest.raises((TableError, FileNotFoundError)) as refused:
            use(secret.format(bad))
        error = refused.value
        while error is not None:
            said.append(f"{error} {error!r}")
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    said += [file.read_bytes().decode("latin1") for file in (tmp_path / "out").iterdir()]
    for text in said:
        for word in ("user", "pass-word", "sig-nature"):
            assert word not in text.replace("user's", "")
