"""Embedding tables: rows of embeddings or tokens, with source, participant and other columns.

Fits, audits and studies use one schema: an embedding (n, d) or tokens (n, t, d), and for every row its
source, participant, task label, pair id and role, if known, and any other columns. A participant has only one
role, so models are fitted and scored on different participants. :mod:`mgpa.tables.files` reads and writes
tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._common.checks import as_float_matrix, require_finite
from .._common.markup import facts_html
from .._common.untrusted import checked_info, require_names
from ..errors import TableError, printable
from ..labels import to_numpy
from ..pairs import matched_rows
from .carried import Carried, refuse_gaps
from .columns import (
    COLUMNS,
    RESERVED,
    Columns,
    changed_columns,
    check_columns,
    check_other,
    check_roles,
    feature_names,
    require_alike,
    require_columns,
    require_matched,
)

MOST_SHOWN, ENOUGH = 5, 10_000  # number of column values shown in a notebook, and of rows examined for them


@dataclass(frozen=True, repr=False)
class Table:
    """Embeddings with source, participant, label and other columns of each row.

    All columns except X are optional; :meth:`require` raises if a needed column is missing.

    Parameters
    ----------
    X : (n, d) or (n, t, d) array
        Embeddings, or tokens.
    source : (n,) array or None
        Acquisition condition.
    participant : (n,) array or None
        The person or sample that was measured; compared as text.
    role : (n,) array or None
        FIT, VAL, HEAD or EVAL.
    label : (n,) array or None
        The task.
    pair_id : (n,) array or None
        Rows with the same id are views of one event, with one participant and label; negative or empty means
        unpaired.
    info : dict
        Any information on the origin of the table; ``feature_names`` are compared with those of a map.
    other : dict of name to (n,) array
        Other columns: numbers, booleans or text. Dates and times become ISO 8601 text. Types that NumPy does
        not have (nulls, categories, lists and so on) are copied unchanged.
    kept : dict
        Standard columns with missing values, such as labels of only some rows. They are copied, but
        :meth:`require` does not accept them.

    Examples
    --------
    >>> import numpy as np
    >>> role = ["FIT", "FIT", "EVAL", "EVAL"]
    >>> table = Table(np.zeros((4, 3)), source=["a", "b", "a", "b"], participant=[1, 1, 2, 2], role=role)
    >>> table.rows("EVAL").participant.tolist()
    ['2', '2']
    >>> Table(np.zeros((2, 3)), other={"age": [31, 40]}).columns
    {'age': array([31, 40])}
    """

    X: NDArray[Any]
    # An array or None; typed as Any, so that no second check is needed after require().
    source: Any = None
    participant: Any = None
    role: Any = None
    label: Any = None
    pair_id: NDArray[Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    other: Columns = field(default_factory=dict)
    kept: Columns = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in COLUMNS:  # columns with missing values are copied, but cannot be used
            if isinstance(values := getattr(self, name), Carried):
                object.__setattr__(self, "kept", self.kept | {name: check_other(values, len(self.X), name)})
                object.__setattr__(self, name, None)
        X = to_numpy(self.X)
        if X.ndim not in (2, 3) or 0 in X.shape[1:]:
            raise ValueError(f"X has shape {X.shape}; expected embeddings (n, d) or tokens (n, t, d).")
        X = as_float_matrix(X.reshape(len(X), int(np.prod(X.shape[1:])))).reshape(X.shape)
        require_finite(X, "X")
        columns = {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}
        columns = check_columns(columns, len(X))
        checked_info(self.info)
        taken = sorted(set(self.other) & set(RESERVED))
        if taken:
            raise ValueError(f"other has {', '.join(taken)}, a reserved name; rename it.")
        require_names(map(str, self.other))
        other = {str(name): check_other(values, len(X), name) for name, values in self.other.items()}
        for name, values in (columns | {"X": X, "other": other}).items():
            object.__setattr__(self, name, values)

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        shape, names = " x ".join(map(str, self.X.shape[1:])), ", ".join(self.columns) or "no columns"
        return printable(f"<Table: {len(self)} rows of {shape} {self.X.dtype}, with {names}>")

    def _repr_html_(self) -> str:
        facts = {}
        for name, values in self.columns.items():
            distinct = np.unique([str(value) for value in values[:ENOUGH]])
            some = ", ".join(distinct[:MOST_SHOWN]) + (", …" if len(distinct) > MOST_SHOWN else "")
            facts[name] = printable(f"{len(distinct)} different: {some}")
        return facts_html(repr(self), facts)

    @property
    def columns(self) -> Columns:
        """All columns except X, by name."""
        standard = {name: getattr(self, name) for name in COLUMNS if getattr(self, name) is not None}
        return {n: (self.kept | standard)[n] for n in COLUMNS if n in {**self.kept, **standard}} | self.other

    def require(self, *columns: str) -> Self:
        """Return the table itself; raise if one of these columns is missing."""
        require_columns(columns, self.columns)
        for name in columns:
            if name in self.kept and getattr(self, name) is None:
                refuse_gaps(self.kept[name], name)
        return self

    def require_pairs(self) -> Self:
        """Return the table itself; raise unless it has pair ids of at least two rows each."""
        self.require("pair_id")
        require_matched(self.columns["pair_id"])
        return self

    @property
    def sources(self) -> NDArray[Any]:
        """Source labels, sorted."""
        return np.unique(self.require("source").source)

    def rows(self, *roles: str) -> Self:
        """Return the rows of some roles, in their order. Unknown roles raise an error."""
        return self.take(np.isin(self.require("role").role, check_roles(np.array(roles, dtype=str))))

    def take(self, rows: Any) -> Self:
        """Return the rows selected by a slice, positions or a mask."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        standard = {name: values for name, values in columns.items() if name in COLUMNS}
        other = {name: values for name, values in columns.items() if name not in COLUMNS}
        return replace(self, X=self.X[rows], other=other, kept={}, **standard)

    def with_columns(self, **columns: Any) -> Self:
        """Return the table with changed columns (one value per row, one for all rows, or None to drop).

        Examples
        --------
        >>> import numpy as np
        >>> table = Table(np.zeros((2, 3)), participant=["s1", "s2"], other={"age": [31, 40]})
        >>> sorted(table.with_columns(source="dry", age=None).columns)
        ['participant', 'source']
        """
        changed = changed_columns(self.columns, columns, len(self))
        return self.from_columns({"X": self.X, **changed}, self.info)

    @classmethod
    def concatenate(cls, tables: Iterable[Table]) -> Self:
        """Return one table with the rows of several tables and the ``info`` of the first."""
        tables = list(tables)
        if not tables:
            raise TableError("No tables to concatenate; the list is empty.")
        first = tables[0]
        for i, table in enumerate(tables):
            require_alike({"X": first.X, **first.columns}, {"X": table.X, **table.columns}, f"Table {i}")
            names, expected = feature_names(table.info), feature_names(first.info)
            if names and expected and names != expected:
                raise TableError(f"Table {i} has other features than the first, or in another order.")
        columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in first.columns}
        return cls.from_columns({"X": np.concatenate([table.X for table in tables]), **columns}, first.info)

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any], info: dict[str, Any] | None = None) -> Self:
        """Make a table from X and any columns, by name.

        Examples
        --------
        >>> Table.from_columns({"X": [[0.0, 1.0]], "source": ["wet"], "age": [31]}).other
        {'age': array([31])}
        """
        standard = {name: values for name, values in columns.items() if name in ("X", *COLUMNS)}
        other = {name: values for name, values in columns.items() if name not in standard}
        return cls(**standard, info=dict(info or {}), other=other)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        X: Any = None,
        *,
        embedding: Any = None,
        columns: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        info: dict[str, Any] | None = None,
    ) -> Self:
        """Make a table from a pandas or polars data frame, or a pyarrow table.

        Parameters
        ----------
        frame : data frame
            Any data frame that pyarrow can read.
        X : array or None
            The embeddings, if they are not in the frame.
        embedding, columns, rename
            Selection and names of columns; see :func:`mgpa.tables.open_table`.
        info : dict or None
            See :class:`Table`.

        Examples
        --------
        >>> import pandas
        >>> frame = pandas.DataFrame({"f0": [0.0, 1.0], "f1": [2.0, 3.0], "device": ["dry", "wet"]})
        >>> table = Table.from_frame(frame, embedding="f", rename={"device": "source"})
        >>> table.X.shape, table.source.tolist()
        ((2, 2), ['dry', 'wet'])
        """
        from .frames import from_frame

        made, noted = from_frame(frame, X, embedding=embedding, columns=columns, rename=rename)
        return cls.from_columns(made, noted | (info or {}))

    def paired_views(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return the row positions of paired events (first source, second source), or None without pairs."""
        if self.pair_id is None or self.source is None or len(self.sources) != 2:
            return None
        first, second = matched_rows(np.searchsorted(self.sources, self.source), self.pair_id, 0, 1)
        return (first, second) if len(first) else None

    @property
    def digest(self) -> str:
        """A checksum of all content that can change results; excludes ``other`` and ``info``."""
        digest = hashlib.sha256()
        for name in ("X", *COLUMNS):
            values = getattr(self, name)
            if values is None:
                continue
            digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
            digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()
