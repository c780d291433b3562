"""Columns that were not named pass through as they are; gaps are refused only where they are needed."""

import datetime
import decimal

import numpy as np
import pytest

import mgpa
from mgpa.tables import Table, TableError, apply_to_file, fit_table, open_table, simulate_table, write_table
from terminal import done, refused

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def odd_columns(n):
    """Columns as people have them, by name."""
    every = range(n)
    time = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return {
        "note": pa.array([None if i % 3 else f"n{i}" for i in every]),
        "visit": pa.array([None if i % 5 == 0 else i for i in every], pa.int16()),
        "fasting": pa.array([None if i % 7 == 0 else bool(i % 2) for i in every]),
        "when": pa.array([time + datetime.timedelta(i) for i in every], pa.timestamp("us", "UTC")),
        "born": pa.array([None if i % 4 == 0 else datetime.date(1990, 1, 1 + i % 28) for i in every]),
        "site": pa.array([f"s{i % 3}" for i in every]).dictionary_encode(),
        "dose": pa.array([decimal.Decimal(i) / 4 for i in every], pa.decimal128(10, 2)),
        "drugs": pa.array([["a"] * (i % 3) for i in every]),
        "scan": pa.array([{"te": float(i), "tr": None} for i in every]),
        "raw": pa.array([bytes([i % 256]) for i in every]),
        "nothing": pa.nulls(n),
        "age": pa.array([None if i % 9 == 0 else float(i) for i in every]),
    }


@pytest.fixture(scope="module")
def table():
    return simulate_table(8)


def file_with(table, path, columns, **standard):
    made = {"embedding": pa.array(table.X.tolist(), pa.list_(pa.float64(), table.X.shape[1]))}
    pq.write_table(pa.table(made | {**table.columns, **standard} | columns), path, row_group_size=50)
    return path


def same(read, columns):
    for name, values in columns.items():
        if name != "age":
            assert read[name].type == values.type, name
            assert read[name].to_pylist() == values.to_pylist(), name


@pytest.mark.parametrize("out", ["new.parquet", "parts"])
def test_columns_that_nobody_named_pass_through_as_they_are(out, table, tmp_path):
    columns = odd_columns(len(table))
    path = file_with(table, tmp_path / "t.parquet", columns)
    m = fit_table(mgpa.ClosedFormMGPA(), path).to_map()
    apply_to_file(m, path, tmp_path / out)
    same(pq.read_table(tmp_path / out), columns)
    read = open_table(path).read()
    same(pq.read_table(write_table(read, tmp_path / "again.parquet")), columns)
    rows = np.arange(len(table))[::-3]
    same(
        pq.read_table(write_table(read.take(rows), tmp_path / "some.parquet")),
        {n: v.take(rows) for n, v in columns.items()},
    )
    twice = Table.concatenate([read.with_columns(pair_id=None)] * 2)
    assert (
        pq.read_table(write_table(twice, tmp_path / "twice.parquet"))["drugs"].to_pylist()
        == 2 * columns["drugs"].to_pylist()
    )
    assert read.other["site"].plain().tolist() == columns["site"].to_pylist()
    assert [*map(str, np.asarray(read.other["when"]))] == [
        str(v) for v in columns["when"].cast(pa.string()).to_pylist()
    ]
    assert np.array_equal(read.other["age"], columns["age"].to_numpy(zero_copy_only=False), equal_nan=True)


def test_gaps_that_only_some_batches_have_are_no_difference(table, tmp_path):
    note = pa.array([None if i == 0 else "x" for i in range(len(table))])
    path = file_with(table, tmp_path / "t.parquet", {"note": note})
    file = open_table(path)
    kinds = {type(batch.other["note"]).__name__ for batch in file.batches(50)}
    assert kinds == {"Carried", "ndarray"}
    again = write_table(file.batches(50), tmp_path / "again.parquet")
    assert pq.read_table(again)["note"].to_pylist() == note.to_pylist()
    assert file.read().other["note"].tolist() == note.to_pylist()


def test_other_formats_take_what_they_can_hold_and_name_what_they_cannot(table, tmp_path):
    columns = odd_columns(len(table))
    read = open_table(file_with(table, tmp_path / "t.parquet", columns)).read()
    for name in ("note", "visit", "drugs", "scan"):
        some = Table.from_columns({"X": table.X, name: read.other[name]})
        with pytest.raises(TableError, match=rf"\.npz cannot hold {name} \(.*\); write \.parquet"):
            write_table(some, tmp_path / "t.npz")
        if name in ("drugs", "scan"):
            with pytest.raises(TableError, match=f"CSV cannot hold {name}"):
                write_table(some, tmp_path / "t.csv")
    plain = Table.from_columns({"X": table.X, **{n: read.other[n] for n in ("when", "site")}})
    assert open_table(write_table(plain, tmp_path / "t.npz")).read().other["site"][1] == "s1"
    gaps = Table.from_columns({"X": table.X, **{n: read.other[n] for n in ("note", "visit", "dose")}})
    assert ",,0.25," not in (text := write_table(gaps, tmp_path / "t.csv").read_text()).splitlines()[1]
    assert text.splitlines()[2].startswith(",1,0.25,")


def test_rows_without_labels_are_fitted_and_corrected_and_that_is_said(table, tmp_path):
    label = pa.array([None if i % 4 == 0 else str(v) for i, v in enumerate(table.label)])
    path = file_with(table, tmp_path / "t.parquet", {}, label=label)
    with pytest.warns(UserWarning, match=r"label is missing in \d+ of \d+ rows, so labels are not used"):
        read = open_table(path).read()
    assert read.label is None
    with pytest.raises(TableError, match=r"label is missing \(null\) in \d+ rows \(first: row 0\)"):
        read.require("label")
    m = fit_table(mgpa.ClosedFormMGPA(), path).to_map()  # in batches, which need no label
    whole = fit_table(mgpa.ClosedFormMGPA(), table).to_map()
    assert np.allclose(m.transform(table.X), whole.transform(table.X))
    apply_to_file(m, path, tmp_path / "new.parquet")
    assert pq.read_table(tmp_path / "new.parquet")["label"].to_pylist() == label.to_pylist()


@pytest.mark.parametrize("name", ["source", "participant", "role", "pair_id", "label"])
def test_a_correction_needs_nothing_but_the_embedding(name, table, tmp_path):
    m = fit_table(mgpa.ClosedFormMGPA(), table).to_map()
    m.save(tmp_path / "m.safetensors")
    gaps = pa.array([None if i % 4 == 0 else str(v) for i, v in enumerate(table.columns[name])])
    file_with(table, tmp_path / "t.parquet", {}, **{name: gaps})
    done("apply", "m.safetensors", "t.parquet", "--out", "new.parquet", folder=tmp_path)
    made = pq.read_table(tmp_path / "new.parquet")
    assert made[name].to_pylist() == gaps.to_pylist()
    assert np.allclose(open_table(tmp_path / "new.parquet", columns=[]).read().X, m.transform(table.X))
    if name in ("source", "participant", "role"):
        assert f"{name} is missing (null) in" in refused(
            "fit", "t.parquet", "--out", "n.safetensors", folder=tmp_path
        )


def test_gaps_in_a_column_of_ones_own_in_csv_are_text(table, tmp_path):
    (tmp_path / "t.csv").write_text("f0,f1,note,visit\n1,2,,1\n3,4,late,\n")
    read = open_table(tmp_path / "t.csv", embedding="f").read()
    assert read.other["note"].tolist() == ["", "late"]
    assert np.isnan(read.other["visit"][1])


def test_a_category_with_a_zero_character_is_refused_before_it_is_written(tmp_path):
    coded = pa.array(["", "\x000"]).dictionary_encode()
    frame = pa.table({"embedding": [[1.0], [2.0]], "source": ["a", "b"], "device": coded})
    table = Table.from_frame(frame, embedding="embedding")
    with pytest.raises(TableError, match="zero character"):
        write_table(table, tmp_path / "t.npz")
    assert not (tmp_path / "t.npz").exists()
