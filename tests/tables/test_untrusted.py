"""What files say about themselves is checked, with limits, in one place; what is damaged is noticed."""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import mgpa
from mgpa._common.progress import in_processes
from mgpa._common.remote import redacted
from mgpa.errors import StoreError, WorkerError
from mgpa.tables import Table, TableError, fit_table, open_table, simulate_table, write_table
from mgpa.tables.rows import other_signals, require_encoder
from terminal import refused

hypothesis = pytest.importorskip("hypothesis")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


st = hypothesis.strategies
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NAMES = st.sampled_from(
    ["encoder", "signals", "feature_names", "unit", "corrected_by", "decimal", "checkpoint"]
)
JSON = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES | st.text(), inner), max_leaves=8
    ),
)


@pytest.fixture(scope="module")
def table():
    return simulate_table(4).take(slice(0, 12))


def described(folder, table, info):
    """Write a table that says this about itself, as mgpa would not write it."""
    head = json.dumps({"format": 1, "shape": [table.X.shape[1]], "info": info})
    np.savez(folder / "t.npz", X=table.X, mgpa=np.array(head), **table.columns)
    return folder / "t.npz"


@pytest.mark.parametrize("value", ["eegpt", [1, 2], 7, True])
@pytest.mark.parametrize("name", ["encoder", "feature_names", "unit", "source_column", "corrected_by"])
def test_info_of_another_type_is_refused_where_it_is_read(name, value, table, tmp_path):
    if isinstance(value, {"encoder": dict, "feature_names": list}.get(name, str)):
        return
    with pytest.raises(TableError, match=rf"info\['{name}'\] must be"):
        open_table(described(tmp_path, table, {name: value}))
    with pytest.raises(TableError, match=rf"info\['{name}'\] must be"):
        Table(table.X, info={name: value})
    for command in (["fit", "t.npz", "--out", "m.safetensors"], ["inspect", "t.npz"]):
        assert f"info['{name}'] must be" in refused(*command, folder=tmp_path)


def test_deeply_nested_info_is_neither_written_nor_read(table, tmp_path):
    deep = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(TableError, match="description cannot be read"):
        open_table(described(tmp_path, table, deep))
    with pytest.raises(TableError, match="description cannot be read"):
        write_table(Table(table.X, info=deep), tmp_path / "new.npz")
    assert not (tmp_path / "new.npz").exists()


def test_long_column_names_are_refused_by_every_reader(table, tmp_path):
    long = "x" * 70_000
    pq.write_table(pa.table({"X": table.X.tolist(), long: [1] * 12}), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text(f"f0,f1,{long}\n1,2,3\n")
    start = time.monotonic()
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(TableError, match="A column name has 70000 characters"):
            open_table(tmp_path / name, embedding="f" if name == "t.csv" else None)
        assert "70000 characters" in refused("check-pairs", tmp_path / name)
    with pytest.raises(TableError, match="70000 characters"):
        Table(table.X, other={long: np.ones(12)})
    assert redacted(long) == long
    assert time.monotonic() - start < 10


def test_one_long_text_is_refused_before_every_row_is_as_wide(tmp_path):
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["x" * 10**6]))
    pq.write_table(pa.table({"X": [[1.0]] * 3000, "label": text}), tmp_path / "t.parquet")
    with pytest.raises(TableError, match="label has a text of 1000000 characters"):
        open_table(tmp_path / "t.parquet").read()
    assert "label has a text of 1000000 characters" in refused("inspect", tmp_path / "t.parquet")
    unpacked = pa.table({"X": [[1.0]] * 100, "label": ["x" * 10**6] * 100})
    pq.write_table(unpacked, tmp_path / "t.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(TableError, match=r"claims 1000\d+ bytes of columns and has"):
        open_table(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("f0,note\n" + f"1,{'x' * 10**6}\n" + "1,a\n" * 100_000)
    with pytest.raises(TableError, match="note has a text of 1000000 characters"):
        open_table(tmp_path / "t.csv", embedding="f")


@pytest.mark.parametrize("name", ["wide.npz", "wide.csv"])
def test_a_category_that_repeats_a_long_text_is_not_written_out(name, tmp_path):
    note = pa.DictionaryArray.from_arrays(pa.array([0] * 40), pa.array(["x" * 2_000_000]))
    X = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(80)), 2)
    pq.write_table(pa.table({"embedding": X, "note": note}), tmp_path / "t.parquet", compression="zstd")
    table = open_table(tmp_path / "t.parquet").read()
    with pytest.raises(TableError, match="40 rows would take 320000000 bytes of memory; shorten it"):
        write_table(table, tmp_path / name)
    again = open_table(write_table(table, tmp_path / "u.parquet"))
    assert again.columns == {"note": table.columns["note"].kind}


def test_arrays_of_what_is_no_character_are_refused(table, tmp_path):
    for code in (0x110000, 0xFFFFFFFF, 0xD800):
        label = np.full(12, code, np.uint32).view("U1")
        np.savez(tmp_path / "t.npz", X=table.X, label=label)
        with pytest.raises(TableError, match="label has text that is not valid Unicode"):
            open_table(tmp_path / "t.npz")


def test_a_file_without_a_size_is_not_waited_for(tmp_path):
    (tmp_path / "t.csv").symlink_to("/proc/kmsg")
    if not (tmp_path / "t.csv").exists():
        pytest.skip("needs /proc")
    with pytest.raises(TableError, match="it is empty"):
        open_table(tmp_path / "t.csv")


def flipped(path, at):
    content = bytearray(path.read_bytes())
    content[at // 8] ^= 1 << at % 8
    other = path.with_name(f"flipped{path.suffix}")
    other.write_bytes(content)
    return other


def test_every_flipped_bit_of_an_archive_is_noticed(table, tmp_path):
    path = write_table(table, tmp_path / "t.npz")
    with zipfile.ZipFile(path) as archive:
        directory = archive.start_dir
    # Of the arrays some; of the directory, which has no checksum of its own, all.
    bits = [
        *random.Random(1).sample(range(8 * directory), 200),
        *range(8 * directory, 8 * path.stat().st_size),
    ]
    for at in bits:
        with pytest.raises(TableError):
            open_table(flipped(path, at)).read()


def test_a_flipped_bit_of_a_footer_is_noticed(table, tmp_path):
    path = write_table(table, tmp_path / "t.parquet")
    size = 8 * path.stat().st_size
    length = int.from_bytes(path.read_bytes()[-8:-4], "little") + 8
    for at in random.Random(1).sample(range(size - 8 * (length + 76), size), 300):
        with pytest.raises(TableError):
            open_table(flipped(path, at)).read()


def test_files_that_other_tools_write_from_ours_can_be_read(table, tmp_path):
    pq.write_table(pq.read_table(write_table(table, tmp_path / "t.parquet")), tmp_path / "again.parquet")
    assert open_table(tmp_path / "again.parquet").read().digest == table.digest
    with np.load(write_table(table, tmp_path / "t.npz")) as arrays:
        np.savez(tmp_path / "again.npz", **arrays)
    assert open_table(tmp_path / "again.npz").read().digest == table.digest


# Studies.


def test_a_study_that_would_take_all_memory_or_hide_text_is_refused(tmp_path):
    paper = pytest.importorskip("mgpa.paper")
    texts = {
        "joins more than 16 names by dots": ".".join("a" * 100_000) + " = 1\n",
        "more than 16 names": "[" + " . ".join(["'a'"] * 50_000) + "]\n",
        "is longer than": "# " + "x" * 2**20,
        "control characters": 'name = "x"\ntitle = "\x1b]0;owned\x07"\n',
        r"control characters \('\\u202e'\)": 'name = "x\u202e"\n',
    }
    for reason, text in texts.items():
        (tmp_path / "s.toml").write_text(text)
        start = time.process_time()
        with pytest.raises(ValueError, match=reason):
            paper.load_study(tmp_path / "s.toml")
        assert time.process_time() - start < 2
        assert refused("study", "show", tmp_path / "s.toml").isprintable()


# Web servers.


class Dripping:
    """A server that sends its answer byte by byte, in the headers or after them, or nothing at all."""

    def __init__(self, part):
        import socket

        self.socket, self.part = socket.create_server(("127.0.0.1", 0)), part
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/map.safetensors"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.drip, args=[connection], daemon=True).start()

    def drip(self, connection):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"
        try:
            if self.part != "nothing":
                connection.sendall(head + b"\r\n" if self.part == "body" else head + b"X-Slow: ")
            while True:
                time.sleep(0.05)
                connection.sendall(b"" if self.part == "nothing" else b"x")
        except OSError:
            pass


@pytest.mark.parametrize("part", ["body", "headers", "nothing"])
def test_a_server_that_sends_drips_or_nothing_is_not_waited_for(part, monkeypatch):
    pytest.importorskip("aiohttp")
    fsspec = pytest.importorskip("fsspec")
    from mgpa._common import remote

    assert remote.TIMEOUT == (10, 12)  # seconds to connect, and to answer: the page promises them
    monkeypatch.setattr(remote, "TIMEOUT", (1, 1))
    fsspec.filesystem("http").clear_instance_cache()
    server, start = Dripping(part), time.monotonic()
    with pytest.raises(
        StoreError, match="bytes in 1 s, which is too slow" if part == "body" else "timed out waiting"
    ):
        remote.as_place(server.url).read_bytes()
    assert time.monotonic() - start < 8
    server.socket.close()


# Workers.


def end_self():
    os.kill(os.getpid(), 9)


def test_a_killed_worker_is_one_error_that_says_what_to_do():
    from joblib import delayed

    with pytest.raises(WorkerError, match=r"A worker process was killed, perhaps for lack of memory\."):
        list(in_processes([delayed(end_self)(), delayed(abs)(-1)], n_jobs=2))
    assert list(in_processes([delayed(abs)(-1), delayed(abs)(-2)], n_jobs=2)) == [1, 2]


PARENT = """
import os, sys, time
from joblib import delayed
from mgpa._common.progress import in_processes
work = in_processes([delayed(time.sleep)(60) for _ in range(4)], n_jobs=2)
print("started", flush=True)
next(work)
"""


def descendants(session):
    """Processes of a session, by what /proc says."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("seconds", [0.3, 3.0], ids=["starting", "working"])
def test_workers_and_their_trackers_end_with_a_killed_parent(seconds):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    assert parent.stdout.readline() == "started\n"
    time.sleep(seconds)
    parent.kill()
    parent.communicate()
    end = time.monotonic() + 10  # a worker that is being started ends when it has loaded
    while (left := descendants(parent.pid)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


# Arrays.


def test_tensors_without_values_are_refused_in_words(table):
    torch = pytest.importorskip("torch")
    m = fit_table(mgpa.ClosedFormMGPA(), simulate_table(6)).to_map()
    dense = torch.ones(4, 16)
    for odd in (dense.to_sparse(), dense.to("meta")):
        for use in (m.transform, m.check, lambda X: Table(X), mgpa.ClosedFormMGPA().fit):
            with pytest.raises(ValueError, match=r"X (has layout torch\.sparse|is on the meta device)"):
                use(odd)


def test_rows_give_the_same_bits_however_they_lie_in_memory():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = simulate_table(6)
    X, names = table.X, [f"f{i}" for i in range(table.X.shape[1])]
    wide = np.zeros((2 * len(X), 2 * X.shape[1]))
    wide[::2, ::2] = X
    forms = (np.asfortranarray(X), wide[::2, ::2], pandas.DataFrame(X, columns=names), X[::-1][::-1])
    forms += (polars.DataFrame(X, schema=names).to_numpy(),)
    m = fit_table(mgpa.MGPA(), table).to_map()
    expected = m.transform(X)
    for form in forms:
        assert np.array_equal(m.transform(form), expected)
        again = mgpa.MGPA().fit(form, source=table.source, pair_id=table.pair_id)
        direct = mgpa.MGPA().fit(X, source=table.source, pair_id=table.pair_id)
        assert np.array_equal(again.transform(form), direct.transform(X))


def test_what_is_given_and_not_used_still_has_a_value_for_each_row():
    table = simulate_table(6)
    X, source = table.X, table.source
    for model in (mgpa.ClosedFormMGPA(), mgpa.baselines.make_method("combat")):
        pairs = {} if model.tags.needs_pairs is False else {"pair_id": table.pair_id}
        with pytest.raises(ValueError, match=r"y has shape \(3,\) for .* rows; omit it"):
            model.fit(X, np.zeros(3), source=source, **pairs)
        model.fit(X, table.label, source=source, **pairs)
    combat, rng = mgpa.baselines.make_method("combat"), np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"pair_id has shape \(3,\) for"):
        combat.fit(X, source=source, pair_id=np.zeros(3))
    expected = combat.fit(X, source=source).to_map().tensors
    n = len(X)
    for given in (
        {"y": np.full(n, np.nan)},
        {"y": np.zeros(n)},
        {"y": source},
        {"pairs": (X[20:40], X[:20])},
        {"pair_id": rng.integers(0, 9, n)},
    ):
        same = combat.fit(X, source=source, **given).to_map().tensors
        assert all(np.array_equal(same[name], array) for name, array in expected.items()), given


def test_pairs_whose_views_are_exchanged_are_refused_where_they_are_used():
    table = simulate_table(12)
    ids, dry = np.asarray(table.pair_id), table.source == table.sources[0]
    both = np.intersect1d(ids[dry & (ids >= 0)], ids[~dry])
    A, B = (table.X[[np.flatnonzero(part & (ids == one))[0] for one in both]] for part in (dry, ~dry))
    for method in ("mgpa", "closed_form_mgpa"):
        model = mgpa.baselines.make_method(method).fit(table.X, source=table.source, pairs=(A, B))
        assert model.to_map().info.evidence
        with pytest.raises(mgpa.errors.PairingError, match="show opposite differences between sources"):
            mgpa.baselines.make_method(method).fit(table.X, source=table.source, pairs=(B, A))


@hypothesis.given(JSON)
@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
def test_a_table_may_say_anything_about_itself(info):
    head = json.dumps({"format": 1, "shape": [2], "info": info})
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "t.npz"), X=np.zeros((2, 2)), mgpa=np.array(head))
        try:
            read = open_table(Path(folder, "t.npz")).read()
        except TableError:
            return
        assert read.info == info
        assert open_table(write_table(read, Path(folder, "u.npz"))).info == info
        repr(read), other_signals(read.info, read.info), require_encoder(read.info, read.info, "a", "b")
