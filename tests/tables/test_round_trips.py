"""Any frame that pandas, polars or Arrow can hold comes back as it was, or is one clear error."""

import string
import tempfile
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgpa.tables import Table, TableError, open_table, write_table
from mgpa.tables.carried import Carried

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

N = 4
TEXT = st.text(max_size=8)
VALUES = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "int8": st.integers(-128, 127),
    "float64": st.floats(allow_nan=True),
    "float32": st.floats(width=32),
    "bool": st.booleans(),
    "string": TEXT,
    "large_string": TEXT,
    "date32": st.dates(date(1900, 1, 1)),
    "timestamp[us]": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    "duration[us]": st.timedeltas(timedelta(0), timedelta(9)),
    "binary": st.binary(max_size=4),
    "decimal128(5, 2)": st.decimals(-99, 99, places=2),
}
NAMES = st.one_of(
    st.sampled_from(
        ["source", "participant", "label", "pair_id", "role", "age", "a.b", "a+b", "x" * 300, "ö"]
    ),
    st.text(string.printable, max_size=5),
)


@st.composite
def columns(draw):
    """An Arrow array of N values of one type, some of them missing, perhaps coded."""
    kind = draw(st.sampled_from(sorted(VALUES)))
    value = st.none() | VALUES[kind] if draw(st.booleans()) else VALUES[kind]
    values = draw(st.lists(value, min_size=N, max_size=N))
    types = {"date32": pa.date32(), "timestamp[us]": pa.timestamp("us"), "duration[us]": pa.duration("us")}
    types |= {"decimal128(5, 2)": pa.decimal128(5, 2), "large_string": pa.large_string()}
    array = pa.array(values, types.get(kind) or getattr(pa, kind + "_" * (kind == "bool"))())
    coded = kind in ("string", "int64") and draw(st.booleans())
    return array.dictionary_encode() if coded else array


FRAMES = {
    "arrow": lambda data: data,
    "pandas": lambda data: data.to_pandas(),
    "polars": lambda data: pl.from_arrow(data),
}


@pytest.mark.filterwarnings("ignore:label is missing")
@pytest.mark.parametrize("library", FRAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_frame_comes_back_as_it_was_or_is_one_clear_error(library, data):
    made = data.draw(st.dictionaries(NAMES, columns(), max_size=3))
    arrays = {"X": pa.array(np.arange(2.0 * N).reshape(N, 2).tolist()), **made}
    try:
        frame = FRAMES[library](pa.table(arrays))
    except Exception:
        return  # the library itself cannot hold it
    try:
        table = Table.from_frame(frame)
    except (ValueError, TypeError):
        return
    with tempfile.TemporaryDirectory() as place:
        for name in ("t.npz", "t.parquet", "t"):
            try:
                path = write_table(table, Path(place) / name)
            except TableError:
                continue
            found = open_table(path).read()
            assert list(found.columns) == list(table.columns)
            assert found.X.tobytes() == table.X.tobytes()
            for column, values in table.columns.items():
                if isinstance(values, Carried):
                    again = np.asarray(found.columns[column]).tolist()
                    assert repr(again) == repr(np.asarray(values).tolist())
                    continue
                np.testing.assert_array_equal(found.columns[column], values)
                assert found.columns[column].dtype == values.dtype


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=300) | st.text(max_size=300).map(lambda text: f"f0,f1\n{text}".encode()))
def test_any_bytes_are_a_csv_table_or_one_clear_error(content):
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "t.csv"
        path.write_bytes(content)
        try:
            table = open_table(path, embedding="f").read()
        except TableError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            assert np.isfinite(table.X).all()


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(["t.npz", "t.parquet", "t"]))
def test_damaged_bytes_are_one_clear_error_or_what_was_written(data, name):
    """But for the end of a single Parquet file, which no digest covers: that may also be another table."""
    table = Table(np.arange(40.0).reshape(20, 2), source=["dry", "wet"] * 10)
    with tempfile.TemporaryDirectory() as place:
        path = write_table(table, Path(place) / name)
        part = next(path.glob("part-*")) if name == "t" else path
        content = bytearray(part.read_bytes())
        footer = int.from_bytes(content[-8:-4], "little") + 8 if name == "t.parquet" else 0
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(content) - 1 - footer))
            content[at] ^= data.draw(st.integers(1, 255))
        cut = data.draw(st.booleans())
        part.write_bytes(content[: data.draw(st.integers(1, len(content)))] if cut else content)
        try:
            read = open_table(path).read()
        except TableError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            assert read.X.tobytes() == table.X.tobytes()
            assert name == "t.npz" or read.source.tolist() == table.source.tolist()


def test_odd_names_and_values_are_one_clear_error_or_kept():
    X = np.ones((2, 2))
    for other, message in (
        ({"\ud800": [1, 2]}, "Unicode"),
        ({"t": np.array(["2024-01-01", "NaT"], "M8[s]")}, "missing"),
        ({"t": pd.Series([pd.NaT, pd.Timestamp("2024-01-01")])}, "missing"),
    ):
        with pytest.raises(ValueError, match=message):
            Table(X, other=other)
    ids = pa.array([2**64 - 1, None], pa.uint64())
    frame = pa.table({"X": X.tolist(), "pair_id": ids})
    assert Table.from_frame(frame).pair_id.tolist() == [str(2**64 - 1), ""]
    assert list(Table(X, other={"x" * 300: [1, 2]}).other) == ["x" * 300]


def test_periods_are_text_in_a_frame_and_refused_in_a_file(tmp_path):
    months = pd.PeriodIndex(["2020-01", "2020-02"], freq="M")
    frame = pd.DataFrame({"f0": [0.0, 1.0], "f1": [1.0, 2.0], "month": months})
    assert Table.from_frame(frame, embedding="f").other["month"].tolist() == ["2020-01", "2020-02"]
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TableError, match="pandas periods, stored as numbers"):
        open_table(tmp_path / "t.parquet", embedding="f")
