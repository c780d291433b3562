"""Larger than memory and on several workers: the same bits, finished work never done twice."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mgpa
from mgpa.baselines import make_method
from mgpa.errors import ClusterError
from mgpa.maps.io.mapfile import map_digest
from simulated import in_parts, simulated_table

pytest.importorskip("pyarrow")

from mgpa.tables import (
    Table,
    TableError,
    TableWriter,
    apply_to_file,
    apply_to_table,
    fit_table,
    open_table,
    write_table,
)
from mgpa.tables.rows import write_corrected
from mgpa.tables.scale import connect

# Another cluster on this machine has Dask's usual port; ours then takes another one.
pytestmark = pytest.mark.filterwarnings("ignore:Port 8787 is already in use")

STREAMING = ["closed_form_mgpa", "leace", "coral", "combat", "featmap", "splince"]


@pytest.fixture(scope="module")
def table():
    return simulated_table(n_people=30)


@pytest.fixture
def parts(table, tmp_path):
    return in_parts(table, tmp_path / "parts", 7)


@pytest.mark.parametrize("name", STREAMING)
def test_a_streamed_fit_equals_one_in_memory(table, parts, name):
    fit = table.rows("FIT")
    expected = make_method(name).fit(fit.X, fit.label, source=fit.source, pair_id=fit.pair_id)
    streamed = fit_table(make_method(name), parts)
    known = {} if streamed.tags.source_blind else {"source": table.source}
    np.testing.assert_allclose(
        streamed.transform(table.X, **known), expected.transform(table.X, **known), rtol=0, atol=1e-9
    )
    assert streamed.to_map().info.n_rows == len(fit)


def test_parts_without_rows_to_fit_on_are_passed_over(table, tmp_path):
    order = np.argsort(table.role != "FIT", kind="stable")  # FIT rows first: later parts have none
    path = in_parts(table.take(order), tmp_path / "sorted", 9)
    assert fit_table(make_method("leace"), path).to_map().info.n_rows == (table.role == "FIT").sum()
    with pytest.raises(TableError, match="no FIT rows"):
        fit_table(make_method("leace"), in_parts(table.rows("HEAD"), tmp_path / "head", 2))


def test_methods_that_do_not_stream_draw_rows_and_say_so(table, parts):
    model = mgpa.IterativeMGPA(critics=("linear",), n_stages=2, random_state=0)
    drawn = fit_table(model, parts, max_rows=100, random_state=5).to_map()
    again = fit_table(model, parts, max_rows=100, random_state=5).to_map()
    n, n_val = (int((table.role == role).sum()) for role in ("FIT", "VAL"))
    held = f"held-out rows are 100 of {n_val} VAL rows, drawn with seed 5"
    assert drawn.info.notes == f"fitted on 100 of {n} FIT rows, drawn with seed 5; {held}"
    assert map_digest(drawn) == map_digest(again)
    assert drawn.info.evidence.endswith("stages judged on X_val")
    assert fit_table(model, parts).to_map().info.notes == ""
    other = fit_table(make_method("inlp"), parts, max_rows=100, random_state=5).to_map()
    assert other.info.notes == drawn.info.notes


@pytest.mark.parametrize("suffix", ["", ".parquet", ".npz", ".csv"])
@pytest.mark.parametrize("name", ["closed_form_mgpa", "coral"])
def test_tables_are_corrected_from_file_to_file(table, parts, tmp_path, suffix, name):
    m = fit_table(make_method(name), parts).to_map()
    out = tmp_path / f"corrected{suffix}"
    assert apply_to_file(m, parts, out) == len(table)
    written = open_table(out, embedding="f" if suffix == ".csv" else None).read()
    known = {} if m.source_blind else {"source": table.source}
    np.testing.assert_allclose(written.X, m.transform(table.X, **known), rtol=0, atol=1e-12)
    for column in ("source", "participant", "role", "label", "pair_id"):
        values = getattr(table, column)
        if suffix == ".csv" and column == "pair_id":
            values = np.where(values < 0, "", values.astype(str))
        assert np.array_equal(getattr(written, column), values)
    with pytest.raises(FileExistsError):
        apply_to_file(m, parts, out)
    apply_to_file(m, parts, out, overwrite=True)


def test_a_map_that_needs_sources_refuses_a_table_without(table, parts, tmp_path):
    m = fit_table(make_method("coral"), parts).to_map()
    bare = write_table(Table(table.X), tmp_path / "bare.parquet")
    with pytest.raises(TableError, match="lacks source; it has no columns but X"):
        apply_to_file(m, bare, tmp_path / "out")
    with pytest.raises(TableError, match="lacks source; it has no columns but X"):
        fit_table(make_method("leace"), bare)


def test_two_workers_one_of_them_killed_give_the_same_bits(table, tmp_path):
    distributed = pytest.importorskip("distributed")
    parts = in_parts(table, tmp_path / "many", 60)
    expected = fit_table(mgpa.ClosedFormMGPA(), parts).to_map()
    apply_to_file(expected, parts, tmp_path / "expected")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        worker = next(iter(cluster.workers.values()))
        killer = threading.Timer(0.3, os.kill, (worker.pid, signal.SIGKILL))
        killer.start()
        m = fit_table(mgpa.ClosedFormMGPA(), parts, client=client).to_map()
        apply_to_file(m, parts, tmp_path / "out", client=client)
        killer.join()
    assert map_digest(m) == map_digest(expected)
    assert np.array_equal(open_table(tmp_path / "out").read().X, open_table(tmp_path / "expected").read().X)


def test_connecting_to_nothing_is_nothing(tmp_path):
    with connect(None) as client:
        assert client is None
    with pytest.raises(ValueError, match="is one file"):
        apply_to_file(
            mgpa.maps.AffineMap.identity(2),
            write_table(Table(np.zeros((2, 2))), tmp_path / "t.npz"),
            Path(tmp_path) / "o.parquet",
            client=object(),
        )


def test_a_map_is_not_lost_with_the_workers_that_had_it(table, tmp_path):
    distributed = pytest.importorskip("distributed")
    parts = in_parts(table, tmp_path / "many", 4)
    m = fit_table(mgpa.ClosedFormMGPA(), parts).to_map()
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:

        def submit(function, *arguments, **settings):
            future = distributed.Client.submit(client, function, *arguments, **settings)
            if function is write_corrected and not killed:
                killed.append(arguments[0])
                distributed.wait(arguments[0])  # the worker has the map, and nothing was done with it
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            return future

        killed = []
        client.submit = submit
        apply_to_file(m, parts, tmp_path / "out", client=client)
    assert killed
    assert np.array_equal(open_table(tmp_path / "out").read().X, apply_to_table(m, table).X)


def lose_a_result(address):
    with connect(address) as client:
        future = client.submit(time.sleep, 0.5)
        future.cancel()
        future.result()


def test_a_cluster_that_is_lost_is_said_in_words():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        pytest.raises(ClusterError, match=r"The cluster did not finish \(FutureCancelledError"),
    ):
        lose_a_result(cluster.scheduler_address)


def test_a_local_cluster_listens_on_this_machine_only():
    pytest.importorskip("distributed")
    import psutil

    with connect("local") as client:
        assert client.submit(sum, (1, 2)).result() == 3
        here = psutil.Process()
        sockets = [c for p in (here, *here.children(recursive=True)) for c in p.net_connections(kind="tcp")]
    assert {c.laddr.ip for c in sockets if c.status == "LISTEN"} <= {"127.0.0.1", "::1"}


WITHIN = """
    import resource, sys
    import pyarrow.parquet
    import numpy, scipy.linalg
    import mgpa
    from mgpa.tables import apply_to_file, fit_table
    # Libraries take their buffers when first used: before the limit is set, as it is about the table.
    scipy.linalg.cho_factor(numpy.eye(300) @ numpy.eye(300)); numpy.linalg.eigh(numpy.eye(300))
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        bytearray(2 * int(sys.argv[3]))
    except MemoryError:
        print("limited")
    m = fit_table(mgpa.ClosedFormMGPA(), sys.argv[1]).to_map()
    apply_to_file(m, sys.argv[1], sys.argv[2])
"""


@pytest.mark.slow
def test_a_table_ten_times_the_memory_limit(tmp_path):
    rng = np.random.default_rng(0)
    d, rows, n_parts, limit = 128, 50_000, 106, 256 * 2**20
    assert rows * n_parts * d * 4 > 10 * limit
    like = Table(np.zeros((0, d), np.float32), source=np.zeros(0, int), pair_id=np.zeros(0, int))
    source, ids = np.tile([0, 1], rows // 2), np.full(rows, -1)
    X = rng.normal(size=(rows, d)).astype(np.float32) + source[:, None].astype(np.float32)
    with TableWriter(tmp_path / "big", like, rows=[rows] * n_parts) as writer:
        for i in range(n_parts):
            ids[:200] = np.repeat(np.arange(100), 2) if i == 0 else -1
            writer.write(i, Table(X * np.float32(1 + 0.01 * i), source=source, pair_id=ids))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHIN), tmp_path / "big", tmp_path / "out", str(limit)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    assert done.returncode == 0, done.stderr
    assert "limited" in done.stdout
    assert open_table(tmp_path / "out").n_rows == rows * n_parts


@pytest.mark.slow
def test_a_scheduler_that_is_killed_and_started_again_costs_no_finished_part(table, tmp_path):
    pytest.importorskip("distributed")
    pytest.importorskip("cyclopts")
    parts = in_parts(table, tmp_path / "many", 300)
    m = fit_table(mgpa.ClosedFormMGPA(), parts).to_map()
    m.save(tmp_path / "map.safetensors")
    apply_to_file(m, parts, tmp_path / "expected")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def start(*command):
        with open(tmp_path / f"{command[0]}.log", "w") as log:
            return subprocess.Popen([sys.executable, "-m", *command], stderr=log, stdout=log)

    def cluster():
        place = ["--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--no-dashboard"]
        return [
            start("distributed.cli.dask_scheduler", *place),
            start("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"),
        ]

    out, processes = tmp_path / "out", cluster()
    apply = ["mgpa", "apply", str(tmp_path / "map.safetensors"), str(parts), "--out", str(out)]
    try:
        first = start(*apply, "--scheduler", address)
        deadline = time.monotonic() + 60
        while not (out.exists() and any(out.rglob("*.parquet"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        processes[0].kill()
        first.wait(60)
        assert first.returncode, "it finished before the scheduler was killed"
        assert "cluster" in (tmp_path / "mgpa.log").read_text()
        for process in processes:
            process.kill()
            process.wait()
        processes = cluster()
        assert start(*apply, "--scheduler", address).wait(120) == 0, (tmp_path / "mgpa.log").read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert np.array_equal(open_table(out).read().X, open_table(tmp_path / "expected").read().X)
