"""Tables from CSV files, which do not say what separates their fields, or which of them are numbers."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, cast

import numpy as np

from ..._common.files import lies_there, special_kind
from ..._common.remote import Place
from ...errors import TableError
from .layout import Field, find_embedding
from .table_file import reading

# What the names of such files end in.
SUFFIXES = (".csv", ".tsv", ".txt")
SEPARATORS = (",", ";", "\t", "|")
# A first line in which a file says to Excel what separates its fields.
DECLARATION = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
# What stands for a missing value.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
# Numbers that stay what they are: 007 is a code, and so is what has more digits than an integer or a float.
WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
NUMBER = re.compile(r"[+-]?((0|[1-9]\d{0,14})([.]\d*)?|[.]\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+([.]\d*)?")
BOOLEAN = re.compile("true|false", re.IGNORECASE)


def read_csv(path: Place, embedding: Any, rename: Mapping[str, str] | None) -> Any:
    """Return a CSV file as a data frame: numbers in the embedding, text wherever a number would change it.

    Parameters
    ----------
    path : Path or RemotePath
        Fields are separated by what a first line ``sep=;`` says, or by whatever separates most names; where
        that is no comma, numbers may have decimal commas, if those of the embedding do. Spaces around names
        and values belong to neither: 7 and 7 with a space after it are one person.
    embedding : str, list of str, or compiled regular expression
        As in :meth:`mgpa.tables.Table.from_frame`.
    rename : dict or None
        Names in the file, and what they are called in the table. Participants and pair ids stay text; a pair
        id that is missing or negative becomes empty.
    """
    import pandas

    if not lies_there(path):
        raise FileNotFoundError(f"There is no file {path}.")
    kind = "a folder" if path.is_dir() else special_kind(path)
    if kind is not None:
        raise TableError(f"{path} is {kind}, not a file.")
    with reading(path), _refusing_other_encodings():
        names, how = _header(path)
        numbers = find_embedding(
            {name: Field(name, (), np.dtype(np.float64), "column") for name in names}, embedding
        )
        how |= {
            "dtype": {name: str for name in names if name not in numbers},
            "na_values": dict.fromkeys(numbers, MISSING),
            "keep_default_na": False,
            "index_col": False,
        }

        def read(decimal: str) -> Any:
            with path.open("rb") as stream:
                return pandas.read_csv(stream, decimal=decimal, **how)

        frame, decimal_comma = read("."), False
        if how["sep"] != "," and not all(frame[name].dtype.kind in "iuf" for name in numbers):
            _refuse_thousands([frame[name] for name in numbers])
            frame, decimal_comma = read(","), True
        if not len(frame):
            raise TableError("it has names of columns, but no rows.")
        for name in numbers:
            if frame[name].dtype.kind not in "iuf":
                _refuse_text(frame[name])
        frame = frame.astype(dict.fromkeys(numbers, np.float64))
        for stored in frame.columns.difference(numbers):
            column, name = frame[stored].str.strip(), (rename or {}).get(stored, stored)
            frame[stored] = column
            if name == "participant":  # somebody's code may be NA
                blank = np.flatnonzero(column == "")
                if len(blank):
                    raise TableError(f"{stored} is missing in {len(blank)} rows (first: row {blank[0]}).")
            elif name == "pair_id":
                unpaired = column.isin(MISSING) | column.str.fullmatch(r"-\d+(\.0*)?")
                frame[stored] = column.mask(unpaired, "")
            else:
                frame[stored] = _typed(column, decimal_comma)
        return frame


def _header(path: Place) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the columns, and how pandas is told to read what follows."""
    with path.open("rb") as stream:
        start = stream.read(2)
    # Excel writes "Unicode text" in UTF-16.
    encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    with path.open("rb") as stream:
        text = TextIOWrapper(cast(Any, stream), encoding, newline="")
        declared = DECLARATION.fullmatch(text.readline())
        text.seek(0)
        first = next((line for line in text if line.strip()), "")
        unquoted = re.sub('"[^"]*"', "", first)
        separator, skipped = (declared[1], 1) if declared else (max(SEPARATORS, key=unquoted.count), 0)
        text.seek(0)
        lines = itertools.islice(text, skipped, None)
        records = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        names, row = ([*next((r for r in records if r), [])] for _ in range(2))
    if not names:
        raise TableError("it is empty.")
    if len(row) > len(names):
        raise TableError(
            f"its first row has {len(row)} fields for {len(names)} names; name every column, row names too, "
            f"and end no line in {separator!r}."
        )
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]
    _refuse_a_row_for_names(names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(f"Several columns are called {', '.join(twice)}; rename them.")
    return names, {
        "sep": separator,
        "encoding": encoding,
        "skipinitialspace": True,
        "skiprows": skipped,
        "header": 0,
        "names": names,
    }


def _refuse_a_row_for_names(names: list[str]) -> None:
    """Raise if a file begins with its first row: all numbers, and not in order, as wavelengths are."""
    numbers = [name.replace(",", ".", 1) for name in names]
    if len(names) > 1 and all(map(NUMBER.fullmatch, numbers)):
        steps = np.diff(np.array(numbers, dtype=np.float64))
        if not ((steps > 0).all() or (steps < 0).all()):
            raise TableError(
                f"its first line is all numbers ({', '.join(names[:3])}, …) and would be lost as names; name "
                "the columns in a line before it."
            )


@contextmanager
def _refusing_other_encodings() -> Iterator[None]:
    """Turn bytes that are no text in the file's encoding into an error that says what to do."""
    try:
        yield
    except UnicodeDecodeError:
        raise TableError(
            "it is not UTF-8; save it as UTF-8 (iconv -f latin1 -t utf-8, for example)."
        ) from None


def _refuse_text(column: Any) -> None:
    """Raise because a column of the embedding has something else than numbers."""
    numbers = column.astype(str).str.strip().str.replace(",", ".", n=1).str.fullmatch(NUMBER)
    row = int(np.argmin(numbers | column.isna()))
    raise TableError(f"{column.name} is {str(column[row])!r} in row {row}; an embedding has numbers.")


def _refuse_thousands(columns: list[Any]) -> None:
    """Raise if commas in the numbers can all be those of thousands: 1,234 is not to become 1.234."""
    texts = [column[column.astype(str).str.contains(",")].astype(str).str.strip() for column in columns]
    if any(map(len, texts)) and all(text.str.fullmatch(THOUSANDS).all() for text in texts):
        example = next(text for text in texts if len(text))
        raise TableError(
            f"{example.name} has {example.iloc[0]!r}, a thousand or more, or a little more than one; write "
            "numbers without commas between thousands, or with decimal points."
        )


def _typed(column: Any, decimal_comma: bool) -> Any:
    """Return a column of text as booleans or numbers if all of it is, and as text with gaps if not.

    Codes that would become one number, as 1.1 and 1.10, stay text.
    """
    missing = column.isin(MISSING)
    values = column[~missing]
    if len(values) and values.str.fullmatch(BOOLEAN).all():
        return (column.str.lower() == "true").astype(object).mask(missing, None)
    if len(values) == len(column) and values.str.fullmatch(WHOLE).all():
        return values.astype(np.int64)
    if decimal_comma and not values.str.fullmatch(NUMBER).all():
        values = values.str.replace(",", ".", n=1)
    if values.str.fullmatch(NUMBER).all() and values.nunique() == values.astype(np.float64).nunique():
        return values.astype(np.float64).reindex(column.index)
    return column.mask(missing, None)
