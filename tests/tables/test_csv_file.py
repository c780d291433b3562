"""CSV files as other programs write them: separators, decimals, encodings, codes, and what is refused."""

import numpy as np
import pytest

from mgpa.errors import TableError
from mgpa.tables import Table, open_table

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

NAMES = {"device": "source", "who": "participant", "event": "pair_id"}
FRAME = pd.DataFrame(
    {
        "f0": [0.1, -2.5e-7, 1 / 3],
        "f1": [1, 2, 3],
        "device": ["01", "02", "10"],
        "who": ["007", "7", "NA"],
        "event": ["1", "NA", "-1"],
        "age": [31.5, np.nan, 40.25],
        "trials": [3, 4, 5],
        "session": ["01", "01", "02"],
        "ok": [True, False, True],
    }
)


def read(path, **options):
    return open_table(path, embedding="f", **{"rename": NAMES, **options}).read()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("plain.csv", {}),
        ("r.csv", {"sep": ";", "decimal": ",", "quoting": 2, "na_rep": "NA"}),
        ("german.csv", {"sep": ";", "decimal": ",", "encoding": "utf-8-sig", "lineterminator": "\r\n"}),
        ("points.csv", {"sep": ";"}),
        ("tabs.tsv", {"sep": "\t"}),
        ("excel.txt", {"sep": "\t", "encoding": "utf-16"}),
        ("BARS.CSV", {"sep": "|"}),
    ],
)
def test_however_a_csv_file_is_written_it_is_the_same_table(tmp_path, name, how):
    path = tmp_path / name
    FRAME.to_csv(path, index=False, **how)
    table = read(path)
    assert table.X.dtype == np.float64
    assert np.array_equal(table.X, FRAME[["f0", "f1"]].to_numpy())
    assert table.participant.tolist() == ["007", "7", "NA"]
    assert table.pair_id.tolist() == ["1", "", ""]
    assert np.array_equal(table.other["age"], [31.5, np.nan, 40.25], equal_nan=True)
    assert (table.other["trials"].dtype, table.other["ok"].dtype) == (np.int64, bool)


def test_codes_of_a_csv_file_keep_their_zeros_and_all_their_digits(tmp_path):
    path = tmp_path / "raw.csv"
    long = ["12345678901234567890", "12345678901234567891", "1"]
    gaps = ["1234567890123456789", "", "1234567890123456788"]
    FRAME.assign(long=long).to_csv(path, index=False)
    table = read(path)
    assert table.source.tolist() == ["01", "02", "10"]
    assert table.other["session"].tolist() == ["01", "01", "02"]
    assert table.other["long"].tolist() == long
    FRAME.assign(gaps=gaps).to_csv(path, index=False)
    assert read(path).other["gaps"].tolist() == gaps


@pytest.mark.parametrize("declaration", ["sep=;\r\n", '"sep=;"\n', "\ufeffSEP=;\n"])
def test_a_first_line_that_tells_excel_the_separator_is_no_row(tmp_path, declaration):
    path = tmp_path / "raw.csv"
    path.write_text(declaration + "f0;f1;site\n1,5;2;a, b, c\n3;4;\n", encoding="utf-8", newline="")
    assert read(path, rename={}).other["site"].tolist() == ["a, b, c", ""]
    path.write_text(declaration + "f0;f1;site\n1,5;2;a, b, c\n3;4;d\n", encoding="utf-8", newline="")
    table = read(path, rename={})
    assert table.X.tolist() == [[1.5, 2], [3, 4]]
    assert table.other["site"].tolist() == ["a, b, c", "d"]


def test_spaces_around_separators_belong_to_neither_names_nor_values(tmp_path):
    path = tmp_path / "raw.csv"
    path.write_text('f0 , f1,"f2 ", device ,who\n1, 2 ,0, a ,7\n3, 4,0, a,7 \n')
    table = read(path, rename={"device": "source", "who": "participant"})
    assert table.X.tolist() == [[1, 2, 0], [3, 4, 0]]
    assert table.source.tolist() == ["a", "a"]
    assert table.participant.tolist() == ["7", "7"]


def test_an_embedding_by_its_first_letter_is_what_is_numbered(tmp_path):
    path = tmp_path / "raw.csv"
    FRAME.assign(fold=[0, 1, 2], fs=256.0).to_csv(path, index=False)
    table = read(path)
    assert table.info["feature_names"] == ["f0", "f1"]
    assert table.other["fold"].tolist() == [0, 1, 2]
    frame = pd.DataFrame({"alpha_O1": [1.0], "alpha_O2": [2.0]})
    assert Table.from_frame(frame, embedding="alpha_").X.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"f0,f1\n", "it has names of columns, but no rows"),
        (b"1.5,0.5,2e3\n3,4,5\n", r"its first line is all numbers \(1\.5, 0\.5, 2e3, …\) and would be"),
        (b"f0,f1,site\n1,2,Z\xfcrich\n", "it is not UTF-8; save it as UTF-8"),
        (b"f0,f1,site\n" + 20000 * b"1,2,a\n" + b"1,2,Z\xfcrich\n", "it is not UTF-8; save it as UTF-8"),
        (b"f0,f0,device\n1,2,a\n", "Several columns have the name f0; rename them"),
        (b"f0,f1,device\n1,2,a,\n3,4,b,\n", "first row has 4 fields for 3 names; name every column"),
        (b'"f0","f1"\n"1",1,2\n"2",3,4\n', "first row has 3 fields for 2 names"),
        (b"f0,f1\n1,2\n3,4,5\n", "row 1 has 3 fields for 2 names"),
        (b"Instrument: M5\nDate: 1\n\nf0,f1\n1,2\n", r"one name \('Instrument: M5'\).* \(--skip-rows\)"),
        (b"f0,f1\n1,2\n3,.\n", r"f1 is '\.' in row 1; an embedding must hold numbers"),
        (b'f0,f1\n"1,000",2\n3,4\n', "f0 is '1,000' in row 0; an embedding must hold numbers"),
        (b"f0;f1\n1,5;2\n3;x\n", "f1 is 'x' in row 1; an embedding must hold numbers"),
        (b"f0,f1\n1,2\nNA,4\n", "f0 is missing in row 1; an embedding must hold numbers"),
        (b"f0,f1,participant\n1,2,a\n3,4,\n", r"participant is missing in 1 rows \(first: row 1\)"),
        (b"a,b\n1,2\n", r"No embedding 'f'\. Columns: a, b\."),
    ],
)
def test_a_csv_file_that_cannot_be_understood_is_refused_and_says_where(tmp_path, content, message):
    path = tmp_path / "raw.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=message):
        read(path, rename={})


@pytest.mark.parametrize("names", ["1100,1102,1104", "2498.5,2496,2e3"])
def test_wavelengths_are_names_although_they_are_numbers(tmp_path, names):
    path = tmp_path / "raw.csv"
    path.write_text(f"{names}\n1,2,3\n4,5,6\n")
    table = open_table(path, embedding=names.split(",")).read()
    assert table.X.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_commas_beside_decimal_points_are_no_decimals(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("f0;device;channels\n1.5;a;1,2\n2.5;b;1,10\n")
    table = open_table(path, embedding="f", rename={"device": "source"}).read()
    assert table.other["channels"].tolist() == ["1,2", "1,10"]


@pytest.mark.parametrize(("numbers", "meant"), [(("1,234", "3"), None), (("1,234", "0,5"), [1.234, 0.5])])
def test_commas_that_may_be_of_thousands_are_not_taken_for_decimals(tmp_path, numbers, meant):
    path = tmp_path / "t.tsv"
    path.write_text("f0\tsource\n" + "".join(f"{number}\ta\n" for number in numbers))
    if meant is None:
        with pytest.raises(
            TableError, match="an embedding has '1,234': is the comma for decimals or for thousands"
        ):
            open_table(path, embedding="f").read()
    else:
        assert open_table(path, embedding="f").read().X[:, 0].tolist() == meant
