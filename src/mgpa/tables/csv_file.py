"""CSV files, which do not say what separates their fields, or which of them are numbers."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

import numpy as np

from .._common.extras import missing
from .._common.remote import Place
from ..errors import TableError
from .columns import COLUMNS, Columns, feature_names
from .layout import Field, find_embedding, require_different

# What the names of such files end in.
SUFFIXES = (".csv", ".tsv", ".txt")
SEPARATORS = (",", ";", "\t", "|")
# A first line in which a file says to Excel what separates its fields.
DECLARATION = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
# What stands for a missing value.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
# Numbers as a program writes them: 007, +1 and -0 are codes, and so is what has more digits than a number
# can hold.
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
NUMBER = re.compile(r"-?((0|[1-9][0-9]{0,14})([.][0-9]*)?|[.][0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+([.][0-9]*)?")
BOOLEAN = re.compile("true|false", re.IGNORECASE)


def read_csv(path: Place, embedding: Any, rename: Mapping[str, str] | None) -> Any:
    """Return a CSV file as a data frame: numbers in the embedding, text wherever a number would change it.

    Parameters
    ----------
    path : Path or RemotePath
        Fields are separated by what a first line ``sep=;`` says, or by whatever separates most names; where
        that is not a comma, numbers may have decimal commas, if those of the embedding do. Spaces around
        names and values belong to neither: 7 and 7 with a space after it are one participant.
    embedding : str, list of str, or compiled regular expression
        As in :meth:`mgpa.tables.Table.from_frame`.
    rename : dict or None
        Names in the file, and what they are called in the table. Participants and pair ids stay text; a pair
        id that is missing or negative becomes empty.
    """
    try:
        import pandas
    except ImportError:
        raise missing("CSV", "pandas") from None
    with _refusing_other_encodings():
        names, how = _header(path)
        how |= {"dtype": str, "keep_default_na": False, "index_col": False}
        with path.open("rb") as stream:
            texts = pandas.read_csv(stream, **how)
    if not len(texts):
        raise TableError("it has names of columns, but no rows.")
    matrix = texts.to_numpy(dtype=object)
    if any("\0" in text for text in matrix.ravel() if isinstance(text, str)):
        raise TableError("it has a zero byte; it is damaged, or not text.")
    named = {i: (rename or {}).get(name, name) for i, name in enumerate(names)}
    number, every = np.dtype(np.float64), embedding == "numeric" and "numeric" not in names
    fields = {}
    for i, name in enumerate(names):
        fits = not every or (named[i] not in COLUMNS and _is_numeric(matrix[:, i], how["sep"]))
        fields[name] = Field(name, (), number if fits else None, "column")
    chosen = set(find_embedding(fields, embedding))
    numbers = [i for i, name in enumerate(names) if name in chosen]
    values, decimal_comma = _numbers(matrix[:, numbers], [names[i] for i in numbers], how["sep"])
    made: dict[str, Any] = dict(zip([names[i] for i in numbers], values.T, strict=True))
    for i, name in enumerate(names):
        if name not in chosen:
            column = pandas.Series(matrix[:, i], dtype=object, name=name).str.strip()
            made[name] = _column(column, named[i], decimal_comma)
    return pandas.DataFrame({name: made[name] for name in names})


def _column(column: Any, name: str, decimal_comma: bool) -> Any:
    """Return a column that is not part of the embedding, by what it is called in the table."""
    if name == "participant":  # a participant's code may be NA
        blank = np.flatnonzero(column == "")
        if len(blank):
            raise TableError(f"{column.name} is missing in {len(blank)} rows (first: row {blank[0]}).")
        return column
    if name == "pair_id":
        return column.mask(column.isin(MISSING) | column.str.fullmatch(r"-[0-9]+(\.0*)?"), "")
    return _typed(column, decimal_comma)


def _is_numeric(column: Any, separator: str) -> bool:
    """Return whether all of a column's texts are numbers or missing, and some are numbers."""
    texts = [text.strip() for text in column]
    if separator != ",":
        texts = [text.replace(",", ".", 1) for text in texts]
    present = [text for text in texts if text not in MISSING]
    return bool(present) and all(map(NUMBER.fullmatch, present))


def _numbers(texts: Any, names: list[str], separator: str) -> tuple[Any, bool]:
    """Return the numbers of the embedding, and whether they have decimal commas."""
    try:
        return texts.astype(np.float64), False
    except ValueError:
        pass
    flat = [text.strip() for text in texts.ravel()]
    commas = separator != "," and any("," in text for text in flat)
    if commas:
        with_comma = [(i, text) for i, text in enumerate(flat) if "," in text]
        if all(THOUSANDS.fullmatch(text) for _, text in with_comma):
            i, text = with_comma[0]
            raise TableError(
                f"{names[i % len(names)]} has {text!r}, a thousand or more, or a little more than one; write "
                "numbers without commas between thousands, or with decimal points."
            )
        flat = [text.replace(",", ".", 1) for text in flat]
    absent = set(MISSING)
    for i, text in enumerate(flat):
        try:
            float(text or "nan")
        except ValueError:
            if text not in absent:
                row, column = divmod(i, len(names))
                raise TableError(
                    f"{names[column]} is {text!r} in row {row}; an embedding has numbers."
                ) from None
            flat[i] = "nan"
    return np.array([float(text or "nan") for text in flat]).reshape(texts.shape), commas


def _header(path: Place) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the columns, and how pandas is told to read what follows."""
    with path.open("rb") as stream:
        start = stream.read(2)
    # Excel writes "Unicode text" in UTF-16.
    encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    csv.field_size_limit(2**24)
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
    require_different(names)
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
    """Turn bytes that are not text in the file's encoding into an error that says what to do."""
    try:
        yield
    except UnicodeDecodeError:
        raise TableError(
            "it is not UTF-8; save it as UTF-8 (iconv -f latin1 -t utf-8, for example)."
        ) from None


def _typed(column: Any, decimal_comma: bool) -> Any:
    """Return a column of text as booleans or numbers if all of it is, and as text with gaps if not.

    Codes that would become one number, as 1.1 and 1.10, stay text.
    """
    gaps = column.isin(MISSING)
    values = column[~gaps]
    if len(values) and values.str.fullmatch(BOOLEAN).all():
        return (column.str.lower() == "true").astype(object).mask(gaps, None)
    if len(values) == len(column) and values.str.fullmatch(WHOLE).all():
        return values.astype(np.int64)
    texts = values.str.replace(",", ".", n=1) if decimal_comma else values
    if (texts.str.fullmatch(NUMBER) | texts.str.fullmatch(INFINITE)).all():
        numbers = texts.astype(np.float64)
        if values.nunique() == numbers.nunique():
            return numbers.reindex(column.index)
    return column.mask(gaps, None)


def write_csv(path: Path, blocks: Iterable[Columns], info: Mapping[str, Any], separator: str = ",") -> None:
    """Write columns, then a column for every feature; numbers such that they read back the same."""
    with open(path, "x", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
        for i, block in enumerate(blocks):
            X, columns = block["X"], {name: values for name, values in block.items() if name != "X"}
            if X.ndim == 3:
                raise TableError("CSV holds vectors, and the table has tokens; write .parquet.")
            if i == 0:
                names = feature_names(info)
                if names is None or len(names) != X.shape[1]:
                    names = tuple(f"f{j}" for j in range(X.shape[1]))
                require_different([*columns, *names])
                writer.writerow([*columns, *names])
            lists = [values.tolist() for values in columns.values()]
            texts = X.astype(str).tolist() if X.dtype == np.float32 else X.tolist()
            for row, rest in enumerate(zip(*lists, strict=True) if lists else itertools.repeat((), len(X))):
                writer.writerow([*rest, *texts[row]])
