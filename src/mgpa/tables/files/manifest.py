"""What mgpa wrote, kept with the table: a column, a part or rows that are lost since are noticed on opening.

Manifests are kept where other tools do not carry them along when they change a table and write it anew; such
a file has none, and is read as one by any other tool.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...errors import TableError
from ..columns import Columns
from .layout import Field


@dataclass(frozen=True)
class PartOf:
    """Which part of a table in a folder a file is.

    Parameters
    ----------
    number, of : int
        It is part ``number`` (from 0) of this many.
    rows : int
        Of the whole table.
    table : str
        The same for all parts of a table, and for no part of another.
    """

    number: int
    of: int
    rows: int
    table: str


@dataclass(frozen=True)
class Manifest:
    """What a file has to have.

    Parameters
    ----------
    columns : tuple of (str, str)
        Names in the file and types, in order, the embedding first.
    rows : int
    digests : dict
        SHA-256 of what describes the table, by name. The numbers themselves carry checksums of their own.
    part : PartOf or None
        If the file is one of several.
    """

    columns: tuple[tuple[str, str], ...]
    rows: int
    digests: dict[str, str] = field(default_factory=dict)
    part: PartOf | None = None

    @classmethod
    def read(cls, document: Any) -> Manifest:
        """Return a manifest from JSON text, or what was made of it, trusting nothing."""
        try:
            if isinstance(document, (str, bytes)):
                document = json.loads(document)
            part = document.get("part")
            return cls(
                tuple((str(name), str(kind)) for name, kind in document["columns"]),
                int(document["rows"]),
                {str(name): str(digest) for name, digest in document["digests"].items()},
                None if part is None else PartOf(**part),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise TableError("damaged: its manifest makes no sense.") from None

    def document(self) -> dict[str, Any]:
        """Return the manifest as JSON can hold it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def check(self, fields: Iterable[Field], rows: int, digests: Mapping[str, str]) -> None:
        """Raise if a file has not what it was written with.

        Parameters
        ----------
        fields : iterable of Field
            Everything there is in the file.
        rows : int
            How many there are.
        digests : dict
            Of what describes the table now.
        """
        there = {entry.name: type_name(entry.dtype) for entry in fields}
        lost = [name for name, _ in self.columns if name not in there]
        if lost:
            raise TableError(f"damaged: {', '.join(lost)} was written and is missing.")
        kinds = dict(self.columns)
        added = [name for name in there if name not in kinds]
        if added:
            raise TableError(f"damaged: {', '.join(added)} is there, but was not written with the table.")
        for name, kind in kinds.items():
            if there[name] != kind:
                raise TableError(f"damaged: {name} was written as {kind} and is {there[name]}.")
        if rows != self.rows:
            raise TableError(f"damaged: {self.rows} rows were written, {rows} are there.")
        for name, digest in self.digests.items():
            if digests.get(name) != digest:
                raise TableError(f"damaged: {name}, which describes the table, is not as it was written.")


def column_types(columns: Columns, **renamed: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of a manifest, as they are called in the file."""
    return tuple((renamed.get(name, name), type_name(values.dtype)) for name, values in columns.items())


def type_name(dtype: np.dtype[Any] | None) -> str:
    """Return what manifests call a type."""
    if dtype is None:
        return "unreadable"
    return "text" if dtype.kind == "U" else dtype.name


def sha256(content: str | bytes) -> str:
    """Return a digest as hexadecimal text."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
