"""Tables by address: read in ranges, written as a whole, and nothing half-written that looks like a table."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

import mgpa
from mgpa._common.files import scratch_folder
from mgpa.errors import OutputExists, StoreError
from mgpa.tables import (
    Table,
    TableError,
    TableWriter,
    correct,
    correct_file,
    fit_table,
    open_table,
    write_table,
)
from simulated import in_parts, simulated_table
from stores import inherited, names_at, objects_at, store_of

pytest.importorskip("pyarrow")
pytest.importorskip("zarr")
fsspec = pytest.importorskip("fsspec")

FORMATS = ("npz", "parquet", "zarr")


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


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_object_holds_what_a_file_would(table, store, tmp_path, suffix):
    address = f"{store}/t.{suffix}"
    assert str(write_table(table, address)) == address
    file = open_table(address)
    assert file.verified
    assert_same(file.read(), table)
    assert_same(Table.concatenate(file.batches(max_rows=50)), table)
    assert_same(file.read([3, 1, 100]), table.take([3, 1, 100]))
    local = write_table(table, tmp_path / f"t.{suffix}")
    files = {file.relative_to(local): file for file in local.rglob("*") if file.is_file()} or {"": local}
    at = objects_at(address)
    assert {str(name): file.read_bytes() for name, file in files.items() if suffix != "npz"} == {
        name: content for name, content in at.items() if suffix != "npz"
    }
    assert len(at) == len(files)


@pytest.mark.parametrize("suffix", FORMATS)
def test_maps_fitted_and_applied_by_address_are_those_of_files(table, m, store, suffix):
    address = str(write_table(table, f"{store}/t.{suffix}"))
    fitted = fit_table(mgpa.ClosedFormMGPA(), address).to_map()
    assert str(fitted.save(f"{store}/m.safetensors")) == f"{store}/m.safetensors"
    loaded = mgpa.load_map(f"{store}/m.safetensors")
    assert loaded.info.fingerprint == m.info.fingerprint
    expected = correct(m, table)
    for out in (f"{store}/parts", f"{store}/c.zarr", f"{store}/c.{suffix}"):
        if out.endswith(".zarr") and suffix == "zarr":
            continue
        assert correct_file(loaded, address, out) == len(table)
        assert_same(open_table(out).read(), expected)
    assert not [name for name in names_at(store) if ".partial" in name]


def test_a_folder_of_parts_is_one_table(table, store):
    address = in_parts(table, f"{store}/parts", 5)
    file = open_table(address)
    assert (len(file.parts), file.verified) == (5, True)
    assert_same(file.read(), table)


def test_an_address_of_a_file_is_that_file(table, tmp_path):
    path = write_table(table, f"file://{tmp_path}/t.npz")
    assert path == tmp_path / "t.npz"
    assert_same(open_table(path.as_uri()).read(), table)


def test_a_csv_file_by_address_is_read(memory):
    content = b"f0,f1,who\n0.5,1,007\n2,3,7\n"
    fsspec.filesystem("memory").pipe_file("/folder/raw.csv", content)
    made = Table.from_csv(f"{memory}/raw.csv", embedding="f", rename={"who": "participant"})
    assert made.participant.tolist() == ["007", "7"]


def test_what_is_there_is_replaced_only_if_told_so(table, store):
    other = table.take(slice(0, 50))
    for address in (f"{store}/t.npz", f"{store}/t.parquet", f"{store}/t.zarr"):
        write_table(table, address)
        with pytest.raises(OutputExists, match=r"exists; pass overwrite=True"):
            write_table(other, address)
        assert len(open_table(address).read()) == len(table)
        write_table(other, address, overwrite=True)
        assert_same(open_table(address).read(), other)
    address = in_parts(table, f"{store}/parts", 4)
    with pytest.raises(OutputExists):
        in_parts(table, address, 2)
    in_parts(other, address, 2, overwrite=True)
    assert sorted(names_at(address)) == ["part-00000.parquet", "part-00001.parquet"]


def test_objects_that_are_not_ours_are_never_replaced(table, store):
    address = in_parts(table, f"{store}/parts", 2)
    files, root = store_of(store)
    files.pipe_file(f"{root}/parts/notes.txt", b"mine")
    with pytest.raises(FileExistsError, match=r"1 files that are no part of the table .*notes\.txt"):
        in_parts(table, address, 2, overwrite=True)
    files.pipe_file(f"{root}/out.partial/mine.txt", b"mine")
    with pytest.raises(FileExistsError, match="holds something else"):
        in_parts(table, f"{store}/out", 2)
    at = objects_at(store)
    assert at["parts/notes.txt"] == at["out.partial/mine.txt"] == b"mine"


def test_what_is_read_is_never_written(table, m, memory):
    address = in_parts(table, f"{memory}/parts", 2)
    for out in (address, f"{address}/new", f"{memory}/parts/part-00000.parquet"):
        with pytest.raises(ValueError, match="name another output"):
            correct_file(m, address, out, overwrite=True)
    assert_same(open_table(address).read(), table)


def test_a_lost_part_or_chunk_is_noticed(table, store):
    parts, group = in_parts(table, f"{store}/parts", 3), f"{store}/t.zarr"
    write_table(table, group)
    files, root = store_of(store)
    files.rm_file(f"{root}/parts/part-00002.parquet")
    files.rm_file(f"{root}/t.zarr/X/c/0/0")
    with pytest.raises(TableError, match=r"3 parts with \d+ rows were written; 2 with \d+ are there"):
        open_table(parts)
    with pytest.raises(TableError, match="chunks of 'X' are missing"):
        open_table(group)


def test_a_damaged_object_is_refused(table, memory):
    for suffix in FORMATS:
        write_table(table, f"{memory}/t.{suffix}")
        place = f"/folder/t.{suffix}" + ("/X/c/0/0" if suffix == "zarr" else "")
        content = bytearray(fsspec.filesystem("memory").cat_file(place))
        content[len(content) // 3] ^= 1
        fsspec.filesystem("memory").pipe_file(place, bytes(content))
        with pytest.raises(TableError, match=f"memory://folder/t.{suffix}: "):
            open_table(f"{memory}/t.{suffix}").read()


def test_errors_name_the_address_and_what_is_there(table, memory, s3):
    for store in (memory, s3):
        with pytest.raises(FileNotFoundError, match=f"There is nothing at {store}/no.parquet."):
            open_table(f"{store}/no.parquet")
    with pytest.raises(FileNotFoundError, match=r"s3://no-such-bucket/t\.parquet"):
        write_table(table, "s3://no-such-bucket/t.parquet")
    with pytest.raises(ValueError, match=r"begins with ftp://; known are s3, gs"):
        open_table("ftp://host/t.parquet")
    with pytest.raises(StoreError, match=r"https://host/t.parquet: https:// is read only"):
        write_table(table, "https://host/t.parquet")
    TableWriter(f"{memory}/out", table, [len(table)])
    with pytest.raises(FileNotFoundError, match=r"out.partial is there: what writes it has not finished"):
        open_table(f"{memory}/out")


# Ranges


@pytest.fixture
def large():
    rng = np.random.default_rng(0)
    n = 70_000  # more than a row group
    return Table(
        rng.normal(size=(n, 64)).astype(np.float32),
        source=np.tile(["dry", "wet"], n // 2),
        other={"number": np.arange(n)},
    )


@pytest.mark.parametrize("suffix", FORMATS)
def test_columns_are_read_without_the_embeddings(large, web, tmp_path, suffix):
    write_table(large, tmp_path / "web" / f"t.{suffix}")
    file = open_table(f"{web.address}/t.{suffix}")
    opened = web.bytes_sent
    columns = file.read_columns("number")
    np.testing.assert_array_equal(columns["number"], large.other["number"])
    assert large.X.nbytes > 17e6
    assert opened < 2.2e6  # a buffer at either end of an .npz, a footer, descriptions
    assert web.bytes_sent - opened < 3.5e6


@pytest.mark.parametrize("suffix", ["parquet", "zarr"])
def test_some_rows_are_read_without_the_others(large, web, tmp_path, suffix):
    write_table(large, tmp_path / "web" / f"t.{suffix}")
    file = open_table(f"{web.address}/t.{suffix}")
    opened = web.bytes_sent
    last = file.parts[-1]
    assert_same(last.read(), large.take(slice(last.start, last.stop)))
    assert last.n_rows < len(large) / 10
    assert web.bytes_sent - opened < large.X.nbytes / 4


def test_s3_is_asked_for_ranges(large, s3, monkeypatch):
    import s3fs

    address = str(write_table(large, f"{s3}/t.parquet"))
    fetched = []
    fetch = s3fs.S3FileSystem._cat_file

    async def count(self, path, *arguments, **options):
        content = await fetch(self, path, *arguments, **options)
        fetched.append(len(content))
        return content

    monkeypatch.setattr(s3fs.S3FileSystem, "_cat_file", count)
    s3fs.S3FileSystem.clear_instance_cache()
    file = open_table(address)
    file.read_columns("number", "source")
    assert 0 < sum(fetched) < 1e6 < large.X.nbytes
    fetched.clear()
    file.parts[-1].read()
    assert sum(fetched) < large.X.nbytes / 4
    assert fetched


def test_a_server_without_ranges_is_refused(large, web, tmp_path):
    for suffix in ("parquet", "npz"):
        write_table(large.take(slice(0, 10_000)), tmp_path / "web" / f"t.{suffix}")
        web.ranges = False
        with pytest.raises(TableError, match="the server does not give parts of a file; download it first"):
            open_table(f"{web.address}/t.{suffix}")


def test_a_group_on_a_web_server_is_read_by_its_description(table, web, tmp_path):
    path = write_table(table, tmp_path / "web" / "t.zarr")
    file = open_table(f"{web.address}/t.zarr")
    assert file.verified
    assert_same(file.read(), table)
    (path / "X" / "c" / "0" / "0").unlink()
    with pytest.raises(TableError, match=r"damaged: X/c/0/0 is missing"):
        open_table(f"{web.address}/t.zarr").read()


def test_a_folder_on_a_web_server_is_refused(table, web, tmp_path):
    in_parts(table, tmp_path / "web" / "parts", 2)
    with pytest.raises(FileNotFoundError, match="There is nothing at"):
        open_table(f"{web.address}/parts")


# Killed at any point


class Killed(BaseException):
    """What nothing catches, as nothing catches SIGKILL."""


@pytest.fixture
def stop_after(monkeypatch):
    """Return a function that has the store fail for good after so many changes."""
    left = [float("inf")]
    store = type(fsspec.filesystem("memory"))

    def counted(name):
        change = getattr(store, name)

        def counting(self, *arguments, **options):
            if left[0] <= 0:
                raise Killed
            left[0] -= 1
            return change(self, *arguments, **options)

        monkeypatch.setattr(store, name, counting)

    for name in ("pipe_file", "put_file", "cp_file", "rm_file"):
        counted(name)

    def stop(after):
        left[0] = after

    return stop


@pytest.mark.parametrize("suffix", ["", ".zarr"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_correction_killed_after_any_change_goes_on_and_leaves_nothing(
    table, m, memory, stop_after, suffix, overwrite
):
    rows, out = Table(table.X[:60], source=table.source[:60]), f"{memory}/out{suffix}"
    given = in_parts(rows, f"{memory}/given", 3)
    expected, old = correct(m, rows), rows.take(slice(0, 40))
    correct_file(m, given, f"{memory}/expected{suffix}")
    wanted = objects_at(f"{memory}/expected{suffix}")
    changes = 0
    while True:
        if overwrite:
            in_parts(old, out, 2, overwrite=True)
        stop_after(changes)
        finished = False
        with suppress(Killed):
            correct_file(m, given, out, overwrite=overwrite)
            finished = True
        stop_after(float("inf"))
        if not finished:
            # Whoever looks meanwhile sees the old table, the new one or an error; never a mixture.
            with suppress(TableError, FileNotFoundError):
                there = open_table(out).read()
                assert_same(there, old if overwrite and len(there) == len(old) else expected)
            with suppress(OutputExists):  # all of it was there
                correct_file(m, given, out, overwrite=overwrite)
        assert objects_at(out) == wanted
        assert not [name for name in names_at(memory) if ".partial" in name]
        if finished:
            break
        store, path = store_of(out)
        store.rm(path, recursive=True)
        changes += 1
    assert changes > 10


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_table_whose_writing_was_killed_after_any_change_is_there_or_not(table, memory, stop_after, suffix):
    rows, address = Table(table.X[:20], source=table.source[:20]), f"{memory}/t.{suffix}"
    changes = 0
    while True:
        stop_after(changes)
        try:
            write_table(rows, address)
            break
        except Killed:
            pass
        stop_after(float("inf"))
        with suppress(TableError, FileNotFoundError):
            assert_same(open_table(address).read(), rows)
        with suppress(OutputExists):  # all of it was there
            write_table(rows, address)
        assert_same(open_table(address).read(), rows)
        assert not [name for name in names_at(memory) if ".partial" in name]
        store, path = store_of(address)
        store.rm(path, recursive=True)
        changes += 1
    assert changes > (15 if suffix == "zarr" else 0)


def test_what_is_written_for_an_upload_is_private_and_does_not_stay(table, memory, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen, put = [], type(fsspec.filesystem("memory")).put_file

    def looked_at(self, file, *arguments, **options):
        (folder,) = tmp_path.iterdir()
        seen.append(stat.S_IMODE(folder.stat().st_mode))
        return put(self, file, *arguments, **options)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "put_file", looked_at)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with scratch_folder() as folder:
        left = folder.name.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    (tmp_path / left).mkdir()
    for suffix in FORMATS:
        write_table(table, f"{memory}/t.{suffix}")
    assert set(seen) == {0o700}
    assert not [*tmp_path.iterdir()]


def test_another_job_does_not_go_on_with_the_first_ones_parts(table, memory):
    writer = TableWriter(f"{memory}/out", table, [100, len(table) - 100], job="a")
    writer.write(0, table.take(slice(0, 100)))
    with pytest.raises(FileExistsError, match="unfinished output of another job"):
        TableWriter(f"{memory}/out", table, [100, len(table) - 100], job="b")
    again = TableWriter(f"{memory}/out", table, [100, len(table) - 100], job="a")
    assert again.done == {0}
    again.write(1, table.take(slice(100, None)))
    again.finish()
    assert_same(open_table(f"{memory}/out").read(), table)


def test_a_table_that_was_written_again_is_not_gone_on_with(table, m, memory, stop_after):
    in_parts(table, f"{memory}/given", 4)
    stop_after(4)
    with suppress(Killed):
        correct_file(m, f"{memory}/given", f"{memory}/out")
    stop_after(float("inf"))
    assert "out.partial/done/0" in names_at(memory)
    in_parts(table.take(slice(None, None, -1)), f"{memory}/given", 4, overwrite=True)
    with pytest.raises(FileExistsError, match="unfinished output of another job"):
        correct_file(m, f"{memory}/given", f"{memory}/out")


def test_a_half_copied_table_is_replaced_by_nothing_else(table, m, memory, stop_after):
    in_parts(table, f"{memory}/given", 3)
    for changes in range(100):
        stop_after(changes)
        with suppress(Killed):
            in_parts(table, f"{memory}/out.parquet", 3)
        stop_after(float("inf"))
        if "out.parquet/part-00001.parquet" in names_at(memory):
            break
    with pytest.raises(TableError, match="3 parts with"):
        open_table(f"{memory}/out.parquet")
    for write in (write_table, lambda *given, **how: correct_file(m, f"{memory}/given", given[1], **how)):
        with pytest.raises(
            FileExistsError, match=r"half was copied from memory://folder/out\.parquet\.partial"
        ):
            write(table, f"{memory}/out.parquet", overwrite=True)
    in_parts(table, f"{memory}/out.parquet", 3)
    assert_same(open_table(f"{memory}/out.parquet").read(), table)


def test_a_worker_that_was_thought_lost_leaves_nothing_when_it_writes_after_all(table, memory):
    writers = [TableWriter(f"{memory}/out", table, [100, len(table) - 100], job="a") for _ in range(2)]
    writers[0].write(0, table.take(slice(0, 100)))
    writers[0].write(1, table.take(slice(100, None)))
    writers[0].finish()
    with pytest.raises(FileExistsError, match=r"out\.partial is gone while part 1 was written into it"):
        writers[1].write(1, table.take(slice(100, None)))
    assert sorted(names_at(memory)) == ["out/part-00000.parquet", "out/part-00001.parquet"]


def test_a_client_that_is_killed_leaves_no_table_and_the_next_one_finishes_it(
    table, m, s3, s3_environment, tmp_path
):
    in_parts(table, f"{s3}/given", 30)
    m.save(tmp_path / "m.safetensors")
    command = [sys.executable, "-m", "mgpa", "apply", str(tmp_path / "m.safetensors"), f"{s3}/given"]
    client = subprocess.Popen(
        [*command, "--out", f"{s3}/out"],
        env=inherited(s3_environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    marks = f"{s3}/out.partial/done"
    while client.poll() is None and len(names_at(marks)) < 3:
        time.sleep(0.02)
    client.send_signal(signal.SIGKILL)
    assert client.wait() == -signal.SIGKILL
    at = names_at(s3)
    assert 3 <= len([name for name in at if name.startswith("out.partial/done/")]) < 30
    assert not [name for name in at if name.startswith("out/")]
    with pytest.raises(FileNotFoundError, match=r"out\.partial is there"):
        open_table(f"{s3}/out")
    correct_file(m, f"{s3}/given", f"{s3}/out")
    correct_file(m, f"{s3}/given", f"{s3}/expected")
    assert objects_at(f"{s3}/out") == objects_at(f"{s3}/expected")
    np.testing.assert_allclose(open_table(f"{s3}/out").read().X, correct(m, table).X, rtol=1e-12)
    assert not [name for name in names_at(s3) if ".partial" in name]


def test_a_worker_that_is_killed_costs_time_only(table, m, s3, s3_environment):
    distributed = pytest.importorskip("distributed")
    in_parts(table, f"{s3}/given", 20)
    correct_file(m, f"{s3}/given", f"{s3}/expected")
    killed = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill_a_worker():
            while len(names_at(f"{s3}/out.partial/done")) < 3:
                time.sleep(0.02)
            worker = next(iter(cluster.workers.values()))
            os.kill(worker.pid, signal.SIGKILL)
            killed.append(len(names_at(f"{s3}/out.partial/done")))

        killer = threading.Thread(target=kill_a_worker)
        killer.start()
        correct_file(m, f"{s3}/given", f"{s3}/out", client=client)
        killer.join()
    assert killed[0] < 20
    assert objects_at(f"{s3}/out") == objects_at(f"{s3}/expected")
    assert not [name for name in names_at(s3) if ".partial" in name]


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
    assert names_at(s3) == ["t.parquet"]
    assert_same(open_table(f"{s3}/t.parquet").read(), large)


# Secrets


def test_secrets_in_an_address_are_in_no_message_and_no_file(table, m, web, tmp_path):
    folder = tmp_path / "web"
    write_table(table, folder / "t.parquet")
    m.save(folder / "m.safetensors")
    (folder / "bad.parquet").write_bytes(b"PAR1 this is none PAR1")
    host = web.address.removeprefix("http://")
    secret = f"http://user:pass-word@{host}/{{}}?X-Amz-Signature=sig-nature"
    signed = mgpa.load_map(secret.format("m.safetensors"))
    correct_file(signed, secret.format("t.parquet"), tmp_path / "out")
    writer = TableWriter(tmp_path / "unfinished", table, [len(table)], job="x")
    said = [str(open_table(secret.format("t.parquet")).path), repr(open_table(secret.format("t.parquet")))]
    said.append(json.dumps(open_table(tmp_path / "out").info))
    for bad in ("bad.parquet", "missing.parquet", "t.npz"):
        with pytest.raises((TableError, FileNotFoundError)) as refused:
            open_table(secret.format(bad))
        error = refused.value
        while error is not None:
            said.append(f"{error} {error!r}")
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    with pytest.raises(FileNotFoundError) as refused:
        mgpa.load_map(secret.format("no.safetensors"))
    said += [str(refused.value), (writer.partial / "plan.json").read_text()]
    said += [path.read_bytes().decode("latin-1") for path in (tmp_path / "out").iterdir()]
    everything = "\n".join(said)
    assert "http://…@127.0.0.1" in everything
    assert "/bad.parquet?…: " in everything
    for word in ("user", "pass-word", "Signature", "sig-nature"):
        assert word not in everything
