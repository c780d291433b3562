"""Tables survive every format bit for bit, other tools' files are read, and bad files say what is wrong."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from mgpa.tables import Table, TableError, TableWriter, open_table, write_table

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pq = pytest.importorskip("pyarrow.parquet")

FORMATS = ("npz", "parquet", "")  # the last is a folder
RNG = np.random.default_rng(0)


def full(n=40, shape=(5,), dtype="f4", **changes):
    """A table with every kind of column."""
    person = np.array(["Åsa", "–", "b c", "日本"])[np.arange(n) * 4 // n]
    columns = {
        "source": np.array(["dry", "wét"])[np.arange(n) % 2],
        "participant": person,
        "role": np.array(["FIT", "VAL", "HEAD", "EVAL"])[np.arange(n) * 4 // n],
        "label": (np.arange(n) // 2 % 3).astype("i2"),
        "pair_id": np.where(np.arange(n) < n // 4, np.arange(n) // 2, -1).astype("i4"),
        "info": {"encoder": {"name": "ü"}, "layers": [1, 2], "rate": 250.5, "nothing": None},
        "other": {
            "session name": np.array(["", "x" * 40])[np.arange(n) % 2],
            "age": np.arange(n, dtype="u1"),
            "big": np.arange(n) * -(2**40),
            "snr": np.where(np.arange(n) == 3, np.nan, np.linspace(-1, 1, n)).astype("f4"),
            "half": np.linspace(0, 1, n).astype("f2"),
            "clean": np.arange(n) % 3 == 0,
            "file": np.full(n, "a.edf"),
        },
    }
    X = RNG.normal(size=(n, *shape)).astype(dtype)
    if n:
        X[0].flat[:3] = [0.0, -0.0, np.finfo(dtype).tiny / 4]
    return Table(X, **(columns | changes))


TABLES = {
    "float32": full(),
    "float64": full(dtype="f8"),
    "tokens": full(shape=(3, 4)),
    "one feature": full(shape=(1,)),
    "one token": full(shape=(1, 4)),
    "one row": full(n=1),
    "only X": Table(np.ones((3, 2))),
    "no rows": full(n=0),
    "text labels": full(label=["left", "right"] * 20, pair_id=None),
    "text ids": full(pair_id=[f"e{i // 2}" if i < 9 else "" for i in range(40)], source=None),
    "bool labels": full(label=np.repeat([False, True], 20), role=None),
    "float labels": full(label=np.repeat([0.25, 1e300], 20), participant=None),
}


def named(folder, suffix, stem="t"):
    return folder / (f"{stem}.{suffix}" if suffix else stem)


def assert_same(a, b):
    """Equal in every bit, type and name, and in the order of columns."""
    assert list(a.columns) == list(b.columns)
    assert a.info == b.info
    for name in ("X", *a.columns):
        x, y = (t.X if name == "X" else t.columns[name] for t in (a, b))
        assert x.dtype == y.dtype, name
        assert x.shape == y.shape, name
        assert x.tobytes() == y.tobytes(), name
    assert a.digest == b.digest


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", TABLES)
def test_every_table_survives_every_format(tmp_path, name, suffix):
    table = TABLES[name]
    path = write_table(table, named(tmp_path, suffix))
    assert_same(open_table(path).read(), table)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_open_file_tells_what_is_in_it(tmp_path, suffix):
    table = full(shape=(3, 4))
    file = open_table(write_table(table, named(tmp_path, suffix)))
    assert (file.n_rows, file.shape, file.dtype) == (40, (3, 4), np.float32)
    assert list(file.columns) == list(table.columns)
    assert file.columns["source"] == "text"
    assert file.columns["label"] == "int16"
    assert file.info == table.info
    again = pickle.loads(pickle.dumps(file))
    assert_same(again.read(), table)
    assert_same(again.parts[0].read(), table)


def cut_small(monkeypatch, rows):
    """Make chunks, and thereby row groups and parts, small."""
    monkeypatch.setattr("mgpa.tables.layout.MAX_CHUNK_ROWS", rows)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("n", [16, 37])
def test_parts_and_batches_make_the_whole(tmp_path, monkeypatch, suffix, n):
    cut_small(monkeypatch, 2)
    table = full(n)
    path = write_table(table, named(tmp_path, suffix))
    file = open_table(path)
    assert len(file.parts) == (1 if suffix == "npz" else -(-n // 8))
    assert sum(part.n_rows for part in file.parts) == n
    assert_same(Table.concatenate(part.read() for part in file.parts), table)
    for rows in (1, 3, 8, 100, None):
        batches = list(file.batches(rows))
        assert max(map(len, batches)) <= (rows or 8)
        assert_same(Table.concatenate(batches), table)


@pytest.mark.parametrize("suffix", FORMATS)
def test_some_rows(tmp_path, monkeypatch, suffix):
    cut_small(monkeypatch, 2)
    table = full(37)
    file = open_table(write_table(table, named(tmp_path, suffix)))
    mask = RNG.random(37) < 0.4
    for rows in (slice(5, 23), slice(8, 16), slice(3, 3), slice(None, None, 3), mask, [36, 0, 9]):
        assert_same(file.read(rows), table.take(rows))
    assert len(file.read([])) == 0
    with pytest.raises(IndexError):
        file.read([37])


@pytest.mark.parametrize("suffix", FORMATS)
def test_columns_without_embeddings(tmp_path, monkeypatch, suffix):
    cut_small(monkeypatch, 2)
    table = full(37)
    file = open_table(write_table(table, named(tmp_path, suffix)))
    found = file.read_columns("age", "source")
    assert list(found) == ["age", "source"]
    assert np.array_equal(found["age"], table.other["age"])
    assert list(file.read_columns()) == list(table.columns)
    assert set(file.survey()) == {"source", "participant", "role", "label", "pair_id"}
    with pytest.raises(TableError, match="lacks colour; it has source, participant"):
        file.read_columns("colour")
    bare = open_table(write_table(Table(np.ones((3, 2))), named(tmp_path, suffix, "bare")))
    assert bare.read_columns() == {}
    assert bare.survey() == {}


def test_what_batches_cannot_see_the_whole_file_shows(tmp_path):
    parts = [
        full(4, role=["FIT"] * 4, participant=["p"] * 4),
        full(4, role=["EVAL"] * 4, participant=["p"] * 4),
    ]
    path = write_table(parts, tmp_path / "t.parquet")
    file = open_table(path)
    assert len(list(file.batches(4))) == 2
    with pytest.raises(TableError, match=r"t\.parquet: Participant 'p' has rows in EVAL and in FIT \(rows"):
        file.survey()
    with pytest.raises(TableError, match="Participant 'p'"):
        file.read()


@pytest.mark.parametrize("suffix", FORMATS)
def test_tables_that_come_one_by_one(tmp_path, monkeypatch, suffix):
    cut_small(monkeypatch, 2)
    table = full(37)
    cuts = [slice(0, 1), slice(1, 2), slice(2, 20), slice(20, 20), slice(20, 36), slice(36, 37)]
    stream = (table.take(cut) for cut in cuts)
    path = write_table(stream, named(tmp_path, suffix))
    assert_same(open_table(path).read(), table)
    assert [part.n_rows for part in open_table(path).parts] == ([37] if suffix == "npz" else [8, 8, 8, 8, 5])


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("there", [False, True])
def test_an_error_on_the_way_leaves_what_was_there(tmp_path, monkeypatch, suffix, there):
    cut_small(monkeypatch, 2)
    path = named(tmp_path, suffix)
    if there:
        write_table(full(n=8), path)

    def stream():
        yield full(16)
        raise RuntimeError("the lights went out")

    with pytest.raises(RuntimeError, match="lights"):
        write_table(stream(), path, overwrite=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ([path.name] if there else [])
    if there:
        assert open_table(path).n_rows == 8


# Part by part.


def test_parts_that_do_not_fit_the_plan(tmp_path):
    table = full(16)
    writer = TableWriter(tmp_path / "t", table, [8, 8])
    with pytest.raises(TableError, match="No part 2"):
        writer.write(2, table)
    with pytest.raises(TableError, match="Part 1 must have 8 rows; got 16"):
        writer.write(1, table)
    with pytest.raises(TableError, match="Part 1 must have 8 rows; got 3"):
        writer.write(1, table.take(slice(0, 3)))
    with pytest.raises(TableError, match="Table 0 differs from the first in X"):
        writer.write(1, full(8, dtype="f8"))
    with pytest.raises(TableError, match="differs from the first in age"):
        writer.write(1, full(8, other={k: v for k, v in full(8).other.items() if k != "age"}))
    assert writer.written == {}


def test_parts_without_rows(tmp_path):
    with TableWriter(tmp_path / "none", full(3), []) as writer:
        pass
    assert_same(open_table(writer.path).read(), full(0))
    with TableWriter(tmp_path / "some", full(8), [0, 4, 0, 4]) as writer:
        writer.write(1, full(8).take(slice(0, 4)))
        writer.write(3, full(8).take(slice(4, 8)))
    assert open_table(writer.path).n_rows == 8


# Files by other tools.


def frame(n=6, **changes):
    X = np.arange(n * 3, dtype="f8").reshape(n, 3)
    return pd.DataFrame(
        {"embedding": list(X), "source": ["a", "b"] * (n // 2), "age": range(n), **changes}
    ), X


def test_pandas_files(tmp_path):
    data, X = frame(
        recorded=pd.date_range("2024-01-01", periods=6, freq="D"),
        hand=pd.Categorical(["l", "r"] * 3),
        snr=[1.0, np.nan, 2, 3, 4, 5],
        pair_id=pd.array([0, 0, 1, 1, None, None], dtype="Int64"),
    )
    data.index = list("uvwxyz")
    data.to_parquet(tmp_path / "p.parquet")
    table = open_table(tmp_path / "p.parquet").read()
    assert np.array_equal(table.X, X)
    assert table.pair_id.tolist() == [0, 0, 1, 1, -1, -1]
    assert table.other["hand"].tolist() == ["l", "r"] * 3
    assert str(np.asarray(table.other["recorded"])[1]).startswith("2024-01-02")
    assert np.isnan(table.other["snr"][1])
    assert list(table.other) == ["age", "recorded", "hand", "snr"]


COLUMNS = {
    "list": lambda X: pa.array(X.tolist()),
    "large list": lambda X: pa.array(X.tolist(), pa.large_list(pa.float64())),
    "nested": lambda X: pa.array(X.tolist(), pa.list_(pa.list_(pa.float64()))),
    "tensor": lambda X: pa.FixedShapeTensorArray.from_numpy_ndarray(X),
    "polars Array": lambda X: pl.Series(X.tolist(), dtype=pl.Array(pl.Float64, X.shape[1:])),
    "polars List": lambda X: pl.Series(X.tolist(), dtype=pl.List(pl.Float64)),
    "polars tokens": lambda X: pl.Series(X.tolist(), dtype=pl.Array(pl.Float64, X.shape[1:])),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_pyarrow_and_polars_files(tmp_path, kind):
    X = RNG.normal(size=(8, 2, 3) if kind in ("nested", "tensor", "polars tokens") else (8, 6))
    source = pa.array(["a", "b"] * 4)
    if kind.startswith("polars"):
        data = pl.DataFrame({"X": COLUMNS[kind](X), "source": source})
        data.write_parquet(tmp_path / "p.parquet", row_group_size=3)
    else:
        source = source.dictionary_encode() if kind == "list" else source
        data = pa.table({"X": COLUMNS[kind](X), "source": source})
        pq.write_table(data, tmp_path / "p.parquet", row_group_size=3)
    file = open_table(tmp_path / "p.parquet")
    assert file.shape == X.shape[1:]
    assert np.array_equal(file.read().X, X)
    assert np.array_equal(file.read(slice(2, 5)).X, X[2:5])
    assert np.array_equal(Table.concatenate(file.batches(2)).X, X)
    assert file.read().source.tolist() == ["a", "b"] * 4
    assert np.array_equal(Table.from_frame(data).X, X)


def test_numpy_files(tmp_path):
    X = RNG.normal(size=(6, 4))
    table = Table(X, label=[0, 0, 1, 1, 2, 2])
    np.savez(tmp_path / "plain.npz", X=X, label=table.label)
    np.savez_compressed(tmp_path / "small.npz", X=np.asfortranarray(X), label=table.label)
    np.savez(tmp_path / "swapped.npz", X=X.astype(">f8"), label=table.label.astype(">i8"))
    for path in tmp_path.iterdir():
        file = open_table(path)
        assert_same(file.read(), table)
        assert_same(file.read(slice(2, 5)), table.take(slice(2, 5)))
        assert_same(Table.concatenate(file.batches(4)), table)


def test_many_columns_make_an_embedding(tmp_path):
    names = [f"f{i}" for i in (0, 1, 10, 2)]  # as an alphabetical listing has them
    data = pd.DataFrame({name: np.arange(3.0) + int(name[1:]) for name in names} | {"source": list("aba")})
    data.to_parquet(tmp_path / "p.parquet")
    X = np.arange(3.0)[:, None] + [0, 1, 2, 10]
    table = open_table(tmp_path / "p.parquet", embedding="f").read()
    assert np.array_equal(table.X, X)
    assert table.other == {}
    for spec in (["f0", "f1", "f2", "f10"], "f"):
        assert np.array_equal(Table.from_frame(data, embedding=spec).X, X)
    assert np.array_equal(open_table(tmp_path / "p.parquet", embedding="f1", columns=[]).read().X, X[:, 1:2])
    np.savez(tmp_path / "p.npz", **{name: data[name].to_numpy() for name in names})
    assert np.array_equal(open_table(tmp_path / "p.npz", embedding="f").read().X, X)


def test_a_folder_of_parts(tmp_path):
    table = full(20)
    folder = tmp_path / "parts"
    folder.mkdir()
    write_table(table.take(slice(0, 9)), folder / "b.parquet")
    write_table(table.take(slice(9, 20)), folder / "c.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.parquet").write_bytes(b"nothing")
    file = open_table(folder)
    assert [part.n_rows for part in file.parts] == [9, 11]
    assert_same(file.read(), table)
    assert_same(file.read(slice(5, 12)), table.take(slice(5, 12)))
    write_table(full(4, dtype="f8"), folder / "d.parquet")
    with pytest.raises(
        TableError, match=r"d\.parquet differs from b\.parquet in embedding; parts must agree"
    ):
        open_table(folder)


# Objects of other libraries.


def test_frames():
    data, X = frame()
    for given in (data, pl.from_pandas(data), pa.Table.from_pandas(data)):
        table = Table.from_frame(given, info={"from": "here"})
        assert np.array_equal(table.X, X)
        assert table.info == {"from": "here"}
        assert table.source.tolist() == ["a", "b"] * 3
    given = Table.from_frame(data.drop(columns="embedding"), X[:, :2])
    assert np.array_equal(given.X, X[:, :2])
    assert given.other["age"].tolist() == list(range(6))
    with pytest.raises(TypeError, match="not both"):
        Table.from_frame(data, X, embedding="embedding")
    with pytest.raises(TypeError, match=r"got LazyFrame\. Call its \.collect\(\)"):
        Table.from_frame(pl.from_pandas(data).lazy())
    with pytest.raises(TypeError, match="got dict"):
        Table.from_frame({"X": X})


def test_named_levels_of_a_pandas_index_are_columns_as_in_the_files_it_writes(tmp_path):
    data, _ = frame()
    data = data.set_index(pd.MultiIndex.from_arrays([["007"] * 6, range(6)], names=["participant", None]))
    data.to_parquet(tmp_path / "t.parquet")
    table = Table.from_frame(data.sample(frac=1, random_state=0))
    assert table.participant.tolist() == ["007"] * 6
    assert set(table.columns) == set(open_table(tmp_path / "t.parquet").columns)
    data = data.reset_index(drop=True)
    for who in ([1, "1"] * 3, ["1", 1] * 3, [1j] * 6):
        with pytest.raises(TableError, match=r"column who with type .* Make every column one type"):
            Table.from_frame(data.assign(who=who))
    with pytest.raises(TableError, match="cannot insert source, already exists"):
        Table.from_frame(data[["source"]].set_index("source", drop=False), np.ones((6, 2)))


class Matrix(pa.ExtensionType):
    """Stands for types that other libraries register, such as the two-dimensional ones of Hugging Face."""

    def __init__(self):
        super().__init__(pa.list_(pa.list_(pa.float32())), "mgpa.tests.matrix")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def test_extension_types_are_read_as_what_they_are_stored_as(tmp_path):
    X = np.arange(24, dtype="f4").reshape(4, 3, 2)
    stored = pa.array(X.tolist(), pa.list_(pa.list_(pa.float32())))
    pa.register_extension_type(Matrix())
    try:
        data = pa.table({"embedding": pa.ExtensionArray.from_storage(Matrix(), stored)})
        pq.write_table(data, tmp_path / "t.parquet")
        for table in (open_table(tmp_path / "t.parquet").read(), Table.from_frame(data)):
            assert np.array_equal(table.X, X)
    finally:
        pa.unregister_extension_type("mgpa.tests.matrix")


# What is wrong is said.


RAGGED = {"embedding": [[1.0, 2.0]] * 4 + [[1.0]] + [[1.0, 2.0]]}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (RAGGED, {}, "embedding has lists of unequal length: 1 in row 4, 2 in row 3"),
        (
            {"embedding": [[1.0], [2.0], None]},
            {},
            r"embedding is missing \(null\) in 1 rows \(first: row 2\)",
        ),
        ({"embedding": [[1.0], [None], [2.0]]}, {}, "embedding has a missing number in row 1"),
        ({"embedding": [[1.0], [np.inf]]}, {}, r"NaN or infinite values in 1 of 2 rows \(first: row 1\)"),
        ({"embedding": [["a"], ["b"]]}, {}, r"embedding \(1 text\) cannot be part of an embedding"),
        ({"a": [1.0], "b": ["x"]}, {}, r"No column holds embeddings\. Columns: a \(double\), b \(text\)"),
        (
            {"e_0": [1.0], "e_1": [2.0], "e_2": [2.0]},
            {},
            r"3 columns .* begin with 'e_'; .* pass embedding='e_'",
        ),
        ({"a": [[1.0]], "b": [[2.0]]}, {}, r"Several columns could be the embedding \(a, b\)"),
        (
            {"a": [[1.0]], "b": [[2.0]]},
            {"embedding": "b", "rename": {"a": "label"}},
            r"a \(1 double\) cannot be a column.*columns",
        ),
        ({"a": [1.0]}, {"embedding": "f"}, r"No embedding 'f'\. Columns: a \(double\)"),
        ({"a": [1.0]}, {"embedding": ["a", "z"]}, "No embedding 'z'"),
        ({"a": [1.0], "b": ["x"]}, {"embedding": ["a", "b"]}, r"b \(text\) cannot be part of an embedding"),
        ({"X": [[1.0]]}, {"columns": ["age"]}, r"No column age\. Columns: none"),
        ({"X": [[1.0]], "a": [1]}, {"rename": {"b": "label"}}, r"No column b\. Columns: a \(int64\)"),
        ({"X": [[1.0]], "a": [1], "b": [1]}, {"rename": {"b": "a"}}, "Both a and b would be named a"),
        ({"X": [[1.0]], "a": [1]}, {"rename": {"a": "mgpa"}}, "mgpa is a reserved name"),
        (
            {"X": [[1.0]], "s": [{"a": 1}]},
            {"rename": {"s": "source"}},
            r"s \(struct<a: int64>\) cannot be a column",
        ),
        ({"X": [[1.0]] * 3, "source": ["a", None, None]}, {}, r"source is missing \(null\) in 2 rows"),
        ({"X": [[1.0]] * 3, "role": ["FIT", None, "FIT"]}, {}, r"role is missing .* leave the column out"),
        ({"X": [[1.0]] * 3, "participant": [1, None, 2]}, {}, "participant is missing"),
        ({"X": [[1.0]] * 2, "role": ["FIT", "TEST"]}, {}, r"role has \['TEST'\] \(first: row 1\)"),
        ({"X": [[1.0]] * 2, "pair_id": [0.5, 1.0]}, {}, "pair_id has dtype float64"),
        ({"X": [[1.0]] * 2, "pair_id": [7, 7], "source": ["a", "a"]}, {}, "pair_id 7 .* as in rows 0 and 1"),
    ],
)
def test_wrong_content_is_named(tmp_path, data, options, message):
    data = pa.table(data)
    pq.write_table(data, tmp_path / "p.parquet", row_group_size=3)
    with pytest.raises(TableError, match=message) as caught:
        open_table(tmp_path / "p.parquet", **options).read()
    assert str(tmp_path / "p.parquet") in str(caught.value)
    with pytest.raises(ValueError, match=message.replace("2 in row 3", "2 in row 0")):
        Table.from_frame(data, **options)


def test_arrays_that_are_no_columns(tmp_path):
    X = np.ones((4, 2))
    for name, extra, message in (
        ("weights", np.ones(3), r"weights \(float64 in 3 rows, not 4\) cannot be a column.*columns"),
        ("scale", np.ones(()), r"scale \(float64 in 1 rows, not 4\) cannot be a column"),
        ("z", np.ones(4, complex), r"z \(complex128\) cannot be a column"),
        ("basis", np.ones((4, 4)), r"basis \(4 float64\) cannot be a column"),
    ):
        np.savez(tmp_path / "p.npz", X=X, a=np.arange(4), **{name: extra})
        with pytest.raises(TableError, match=message):
            open_table(tmp_path / "p.npz")
        assert open_table(tmp_path / "p.npz", columns=["a"]).read().other["a"].tolist() == [0, 1, 2, 3]
    np.savez(tmp_path / "p.npz", X=X, a=np.arange(4), channels=["Cz", "Oz"], sfreq=256)
    with pytest.raises(TableError, match=r"channels .*, sfreq .* cannot be a column"):
        open_table(tmp_path / "p.npz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"x,y\n1,2\n", r"No column holds embeddings\. Columns: x"),
        ("a.parquet", b"", "it is empty"),
        ("a.npy", b"\x93NUMPY\x01\x00", r"convert arrays with mgpa\.tables\.Table"),
        ("a.xlsx", b"PK\x03\x04nothing", "Save a spreadsheet as CSV"),
        ("a.zip", b"PK\x03\x04nothing", "zip"),
    ],
)
def test_other_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message):
        open_table(tmp_path / name)


def test_places_without_tables(tmp_path):
    with pytest.raises(FileNotFoundError, match="No file or folder"):
        open_table(tmp_path / "none.parquet")
    with pytest.raises(TableError, match="a folder with nothing, not a table"):
        open_table(tmp_path)
    for i in range(7):
        (tmp_path / f"{i}.txt").touch()
    with pytest.raises(TableError, match=r"a folder with 0\.txt, .*, 4\.txt, and 2 more, not a table"):
        open_table(tmp_path)
    with pytest.raises(TableError, match=r"'t\.tab' has an unknown suffix; use .parquet"):
        write_table(full(), tmp_path / "t.tab")
    with pytest.raises(FileNotFoundError, match="No folder"):
        write_table(full(), tmp_path / "no" / "t.npz")
    with pytest.raises(TableError, match="No tables to write"):
        write_table([], tmp_path / "t.npz")


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_cannot_be_written(tmp_path, suffix):
    path = named(tmp_path, suffix)
    with pytest.raises(TableError, match="info cannot be stored"):
        write_table(full(info={"x": {1, 2}}), path)
    with pytest.raises(TableError, match="info cannot be stored"):
        write_table(full(info={"x": float("nan")}), path)
    if suffix != "npz":
        with pytest.raises(TableError, match="note has text that is not valid Unicode"):
            write_table(Table(np.ones((1, 2)), other={"note": ["\ud800"]}), path)
    assert not path.exists() or list(path.iterdir()) == []
    write_table(full(info={"x": np.float64(2), "y": np.arange(2)}), path)
    assert open_table(path).info == {"x": 2.0, "y": [0, 1]}


# Files from strangers.


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch exploded",))


def test_pickles_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("bomb.npz", X=np.ones((2, 2)), source=np.array([Bomb(), Bomb()], dtype=object))
    with pytest.raises(TableError, match="array 'source' holds Python objects, which could run any code"):
        open_table("bomb.npz").read()
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 99999, "damaged: its description"),
        ('{"format": 1, "shape": [-1]}', "damaged: its description"),
        ('{"format": 2, "shape": [1]}', "written by a newer mgpa"),
        ('{"format": 1, "shape": [3]}', r"damaged: rows have 1 numbers, but are described as \(3,\)"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_odd_descriptions_are_refused(tmp_path, text, message, suffix):
    path = named(tmp_path, suffix)
    if suffix == "npz":
        np.savez(path, X=np.ones((2, 1)), mgpa=np.array(text))
    else:
        pq.write_table(pa.table({"X": [[1.0]]}).replace_schema_metadata({"mgpa": text}), path)
    with pytest.raises(TableError, match=message):
        open_table(path)


def test_without_the_scale_extra_npz_still_works(tmp_path):
    write_table(full(), tmp_path / "t.npz")
    write_table(full(), tmp_path / "t.parquet")
    script = f"""
import sys
sys.modules["pyarrow"] = None
from mgpa.tables.files import open_table
assert open_table({str(tmp_path / "t.npz")!r}).read().X.shape == (40, 5)
try:
    open_table({str(tmp_path / "t.parquet")!r})
except ImportError as error:
    assert "pip install " in str(error)
else:
    raise SystemExit(1)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_integers_of_any_width_go_to_one_file(tmp_path):
    n = 20_000  # rows of more than one block
    tables = [Table(np.zeros((n, 1)), other={"age": np.arange(n, dtype=width)}) for width in ("i4", "i8")]
    stored = open_table(write_table(tables, tmp_path / "t.parquet")).read()
    assert stored.columns["age"].tolist() == [*range(n)] * 2
