"""CSV files: separators and types of columns are detected."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .._common.remote import Place
from .._common.untrusted import require_names, require_room
from ..errors import TableError
from .columns import COLUMNS, Columns, feature_names
from .layout import Field, Layout, new_names

# Suffixes of CSV files.
SUFFIXES = (".csv", ".tsv", ".txt")
SEPARATORS = (",", ";", "\t", "|")
# A first line that tells Excel the separator.
DECLARATION = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)
# Texts for missing values.
MISSING = {"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None"}
# Numbers as programs write them. Texts such as 007, +1 and -0, or with too many digits, are codes.
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
NUMBER = re.compile(
    r"-?((0|[1-9][0-9]{0,14})([.][0-9]*)?|[.][0-9]+)(e[+-]?[0-9]{1,3})?|[+-]?inf(inity)?", re.IGNORECASE
)
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+([.][0-9]*)?")
UNPAIRED = re.compile(r"-[0-9]+(\.0*)?")
MOST_HEADING = 50  # lines of an instrument before the names


def read_csv(path: Place, skip: int = 0, **choice: Any) -> tuple[Layout, dict[str, Any], Columns]:
    """Return the layout, info and columns of a CSV file; codes such as 007 stay text.

    The separator is given by a first line such as ``sep=;``, or is the one that gives the most names. If it
    is not a comma, numbers may have decimal commas, if those of the embedding do. Spaces around names and
    values are removed. Participants, and columns that are joined to one id, stay text; a missing or negative
    pair id becomes empty. ``skip`` lines precede the names. ``choice`` is that of
    :meth:`mgpa.tables.layout.Layout.choose`.
    """
    try:
        names, separator = _header(path, skip)
        called = {name: new_names(name, choice.get("rename")) for name in names}
        fields = _fields(path, names, called, separator, skip, choice.get("embedding"))
        layout = Layout.choose(fields, **choice)
        position = {name: i for i, name in enumerate(names)}
        inside = [position[name] for name in layout.embedding]
        others = [position[name] for name in layout.stored(*layout.columns)]
        X, texts, decimal_comma = _read_rows(path, names, separator, inside, others, skip)
    except UnicodeDecodeError:
        raise TableError("it is not UTF-8; save it as UTF-8 (iconv -f latin1 -t utf-8, say).") from None
    if not len(X):
        raise TableError("it has names of columns, but no rows.")
    with path.open("rb") as stream:
        stored = stream.seek(0, 2)
    joined = {part for parts in layout.combined.values() for part in parts}
    made: Columns = dict(zip(layout.embedding, X.T, strict=True))
    for name, column in zip([names[i] for i in others], texts, strict=True):
        require_room(name, max(map(len, column), default=0), len(column), stored)
        is_part = name in joined  # whether the column is part of an id
        made[name] = np.array(column) if is_part else _column(column, name, called[name], decimal_comma)
    layout = replace(layout, kinds={name: _kind(made.get(part)) for name, part in layout.columns.items()})
    return layout, layout.info({"decimal": ","} if decimal_comma else {}), made


def _fields(
    path: Place, names: list[str], called: Mapping[str, list[str]], separator: str, skip: int, embedding: Any
) -> list[Field]:
    """Return all columns with their types; these are found only if the embedding is chosen by them.

    ``called`` are the names in the table of each column of the file.
    """
    numeric = [True] * len(names)  # chosen columns are read as numbers
    if embedding == "numeric" and "numeric" not in names:
        fits = zip(names, _numeric_columns(path, len(names), separator, skip), strict=True)
        numeric = [fit and {*called[name]}.isdisjoint(COLUMNS) for name, fit in fits]
    types = [np.dtype(np.float64 if fit else "U") for fit in numeric]
    return [Field(name, (), dtype, "") for name, dtype in zip(names, types, strict=True)]


def _kind(column: NDArray[Any] | None) -> str:
    """Return the type of a column in words; columns that are joined from others are text."""
    return "text" if column is None or column.dtype.kind == "U" else str(column.dtype)


def _rows(path: Place, separator: str, skip: int) -> Iterator[list[str]]:
    """Yield the names and then the rows of a file, without empty lines and the lines to skip."""
    with path.open("rb") as stream:
        start = stream.read(2)
    # Excel writes "Unicode text" in UTF-16.
    encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    csv.field_size_limit(2**24)
    with path.open("rb") as stream, TextIOWrapper(cast(Any, stream), encoding, newline="") as text:
        declared = DECLARATION.fullmatch(next(itertools.islice(text, skip, None), ""))
        text.seek(0)
        lines = itertools.islice(text, skip + (1 if declared else 0), None)
        if not separator:
            yield [declared[1] if declared else "", next((line for line in lines if line.strip()), "")]
            return
        for row in csv.reader(lines, delimiter=separator, skipinitialspace=True):
            if row:
                yield row


def _header(path: Place, skip: int) -> tuple[list[str], str]:
    """Return the names of the columns, and their separator."""
    declared, first = next(_rows(path, "", skip))
    unquoted = re.sub('"[^"]*"', "", first)
    separator = declared or max(SEPARATORS, key=unquoted.count)
    rows = _rows(path, separator, skip)
    names, row = next(rows, []), next(rows, [])
    if not names:
        raise TableError("it is empty.")
    if len(row) > len(names):
        raise TableError(
            f"its first row has {len(row)} fields for {len(names)} names; name every column, including row "
            f"names, and remove a trailing {separator!r}. To skip lines before the names, pass skip_rows "
            "(--skip-rows)."
        )
    if len(names) == 1 and any(len(later) > 1 for later in itertools.islice(rows, MOST_HEADING)):
        raise TableError(
            f"its first line has one name ({names[0]!r}), and later lines have several fields. To skip lines "
            "before the names, pass skip_rows (--skip-rows)."
        )
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]
    numbers = [name.replace(",", ".", 1) for name in names]
    if len(names) > 1 and all(map(NUMBER.fullmatch, numbers)):
        steps = np.diff(np.array(numbers, dtype=np.float64))
        if not ((steps > 0).all() or (steps < 0).all()):  # ordered numbers may be names, such as wavelengths
            raise TableError(
                f"its first line is all numbers ({', '.join(names[:3])}, …) and would be read as names; "
                "add a line with the names of the columns."
            )
    require_names(names)
    return names, separator


def _numeric_columns(path: Place, n: int, separator: str, skip: int) -> list[bool]:
    """Return which columns contain only numbers and missing values."""
    fits, filled = [True] * n, [False] * n
    for row in itertools.islice(_rows(path, separator, skip), 1, None):
        for i, text in enumerate(row[:n]):
            if fits[i] and (text := text.strip()) not in MISSING:
                filled[i] = True
                text = text if separator == "," else text.replace(",", ".", 1)
                fits[i] = NUMBER.fullmatch(text) is not None
    return [a and b for a, b in zip(fits, filled, strict=True)]


def _read_rows(
    path: Place, names: list[str], separator: str, inside: list[int], others: list[int], skip: int
) -> tuple[NDArray[Any], list[list[str]], bool]:
    """Return the embedding, the texts of the other columns, and whether numbers have decimal commas."""
    X: list[NDArray[Any]] = []
    texts: list[list[str]] = [[] for _ in others]
    commas: list[str] = []
    for number, row in enumerate(itertools.islice(_rows(path, separator, skip), 1, None)):
        if len(row) > len(names):
            raise TableError(f"row {number} has {len(row)} fields for {len(names)} names.")
        row += [""] * (len(names) - len(row))
        cells = [row[i] for i in inside]
        try:
            X.append(_numbers(cells))
        except ValueError:
            if separator != ",":
                commas += [cell.strip() for cell in cells if "," in cell]
                cells = [cell.replace(",", ".", 1) for cell in cells]
            X.append(
                np.array([_number(cell, names[i], number) for cell, i in zip(cells, inside, strict=True)])
            )
        for column, i in zip(texts, others, strict=True):
            column.append(row[i].strip())
    if commas and all(map(THOUSANDS.fullmatch, commas)):
        raise TableError(
            f"an embedding has {commas[0]!r}: is the comma for decimals or for thousands? Write numbers "
            "with decimal points and without commas."
        )
    return np.array(X).reshape(len(X), len(inside)), texts, bool(commas)


def _numbers(cells: list[str]) -> NDArray[Any]:
    """Return the numbers in cells of the embedding; 1_0 and digits of other scripts are not accepted."""
    together = "".join(cells)
    if "_" in together or not together.isascii():
        raise ValueError
    return np.array([*map(float, cells)])


def _number(text: str, name: str, row: int) -> float:
    try:
        return float(_numbers([text])[0])
    except ValueError:
        what = "missing" if text.strip() in MISSING else repr(text.strip())
        raise TableError(f"{name} is {what} in row {row}; an embedding must hold numbers.") from None


def _column(texts: list[str], stored: str, names: list[str], decimal_comma: bool) -> NDArray[Any]:
    """Return a column outside the embedding, converted according to its names in the table."""
    if "pair_id" in names:
        return np.array(["" if text in MISSING or UNPAIRED.fullmatch(text) else text for text in texts])
    if "participant" in names:  # a participant's code may be NA
        gaps = [i for i, text in enumerate(texts) if not text]
    else:
        gaps = [i for i, text in enumerate(texts) if text in MISSING]
        if (values := _values(texts, decimal_comma, complete=not gaps)) is not None:
            return values
    if gaps and not {*names}.isdisjoint(COLUMNS):
        raise TableError(
            f"{stored} is missing in {len(gaps)} rows (first: row {gaps[0]}); drop those rows, fill them "
            "in, or leave the column out (columns)."
        )
    return np.array(texts)


def _values(texts: list[str], decimal_comma: bool, *, complete: bool) -> NDArray[Any] | None:
    """Return the booleans or numbers in texts, NaN for missing values; None for other texts."""
    if complete and all(text.lower() in ("true", "false") for text in texts):
        return np.array([text.lower() == "true" for text in texts])
    if complete and all(map(WHOLE.fullmatch, texts)):
        return np.array(texts, dtype=np.int64)
    present = texts if complete else [text for text in texts if text not in MISSING]
    points = [text.replace(",", ".", 1) for text in present] if decimal_comma else present
    # Different codes that would become the same number, such as 1.1 and 1.10, stay text.
    if not all(map(NUMBER.fullmatch, points)) or len({*map(float, points)}) < len({*present}):
        return None
    numbers = iter(points)
    return np.array([np.nan if text in MISSING else float(next(numbers)) for text in texts])


def write_csv(path: Path, blocks: Iterable[Columns], info: Mapping[str, Any], separator: str = ",") -> None:
    """Write columns, then one column per feature; numbers are written exactly.

    If the original file had decimal commas, this file also has them, with semicolons as separators.
    """
    comma = info.get("decimal") == ","
    with open(path, "x", encoding="utf-8", newline="") as stream:
        writer = csv.writer(
            stream, delimiter=";" if comma and separator == "," else separator, lineterminator="\n"
        )
        for i, block in enumerate(blocks):
            X, columns = block["X"], {name: values for name, values in block.items() if name != "X"}
            if X.ndim == 3:
                raise TableError("CSV holds vectors, and the table has tokens; write .parquet.")
            if i == 0:
                names = feature_names(info)
                if names is None or len(names) != X.shape[1]:
                    names = tuple(f"f{j}" for j in range(X.shape[1]))
                require_names([*columns, *names])
                writer.writerow([*columns, *names])
            lists, texts = [_written(values, comma) for values in columns.values()], _written(X, comma)
            for row, rest in enumerate(zip(*lists, strict=True) if lists else itertools.repeat((), len(X))):
                writer.writerow([*rest, *texts[row]])


def _written(values: NDArray[Any], comma: bool) -> list[Any]:
    """Return values in the form that the CSV writer needs."""
    if comma and values.dtype.kind == "f":
        return np.char.replace(values.astype(str), ".", ",").tolist()  # type: ignore[no-any-return]
    return values.astype(str).tolist() if values.dtype == np.float32 else values.tolist()  # type: ignore[no-any-return]
