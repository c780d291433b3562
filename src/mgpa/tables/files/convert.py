"""Tables from the objects that other libraries keep such data in."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import TableError
from ..columns import Columns
from .layout import Choice, Field, Head, Layout, find_embedding, require_along_rows


def from_frame(
    frame: Any,
    X: Any,
    embedding: Any,
    tokens: int | None,
    columns: Sequence[str] | None,
    rename: Mapping[str, str] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return X and the columns of a data frame, and its info; see :meth:`mgpa.tables.Table.from_frame`."""
    from .arrow import fields_of, pa, read_columns

    library = type(frame).__module__.partition(".")[0]
    if library == "pandas":
        try:
            data = pa.Table.from_pandas(_with_named_index(frame))
        except pa.ArrowException as error:
            raise TableError(f"{'; '.join(map(str, error.args))}. Make it one type.") from None
    elif library == "polars" and hasattr(frame, "to_arrow"):
        data = frame.to_arrow()  # text in a type that pyarrow before 19 can read, too
    elif hasattr(frame, "__arrow_c_stream__"):
        data = pa.table(frame)
    else:
        raise TypeError(
            f"Expected a pandas or polars data frame or a pyarrow table; got {type(frame).__name__}"
            f"{_how_to_get_one(frame)}."
        )
    fields = fields_of(data.schema, lambda names: data.select(names).slice(0, 1))
    if X is not None:
        if embedding is not None:
            raise TypeError("Pass the embeddings as X, or name their column with embedding=; not both.")
        fields.append(Field("X", (1,), np.dtype(np.float64), "given"))
        embedding = "X"
    stored = (data.schema.metadata or {}).get(b"mgpa")
    head = None if stored is None else Head.read(stored)
    layout = Layout.choose(fields, Choice(embedding, tokens, columns, rename), head)
    names = [name for name in (*layout.embedding, *layout.columns.values()) if X is None or name != "X"]
    raw = read_columns(data, layout, names, 0)
    found: dict[str, Any] = dict(layout.columns_of(raw))
    info = {} if head is None else head.info
    if layout.feature_names is not None:
        info = info | {"feature_names": layout.feature_names}
    return (found if X is None else {"X": X, **found}), info


def _with_named_index(frame: Any) -> Any:
    """Return a pandas frame with the named levels of its index as columns, as in the files it writes."""
    named = [name for name in frame.index.names if name is not None]
    twice = [str(name) for name in named if name in frame.columns]
    if twice:
        raise TableError(
            f"{', '.join(twice)} is both a column and in the index; keep one (frame.reset_index(drop=True))."
        )
    return frame.reset_index(level=named) if named else frame


def _how_to_get_one(frame: Any) -> str:
    """Return in words how something else becomes a data frame."""
    return next((f" (pass its .{verb}())" for verb in ("collect", "to_pandas") if hasattr(frame, verb)), "")


def from_xarray(
    data: Any, embedding: str | None, row: str | None, rename: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return X and columns of a Dataset or DataArray; see :meth:`mgpa.tables.Table.from_xarray`."""
    if hasattr(data, "data_vars"):
        variables = {str(name): data[name] for name in (*data.data_vars, *data.coords)}
    elif hasattr(data, "coords"):
        embedding = embedding or "X"
        variables = {**{str(name): data[name] for name in data.coords}, embedding: data}
    else:
        raise TypeError(f"Expected an xarray Dataset or DataArray; got {type(data).__name__}.")
    fields = {
        name: Field(name, v.shape[1:], v.dtype, f"{' × '.join(map(str, v.dims))} {v.dtype}")
        for name, v in variables.items()
        if v.dims
    }
    (chosen,) = find_embedding(fields, embedding)
    X = variables.pop(chosen)
    row = X.dims[0] if row is None else row
    if row not in X.dims:
        raise TableError(f"{chosen} has dimensions {', '.join(map(str, X.dims))}, none of them {row!r}.")
    require_along_rows({name: v.dims for name, v in variables.items() if v.dims != (row,)}, row, rename)
    columns = {name: v.to_numpy() for name, v in variables.items() if v.dims == (row,)}
    return {"X": X.transpose(row, ...).to_numpy(), **_renamed(columns, rename)}


def from_epochs(epochs: Any, X: Any, rename: Mapping[str, str] | None) -> dict[str, Any]:
    """Return X and the columns of epochs; see :meth:`mgpa.tables.Table.from_epochs`."""
    several = list(epochs) if isinstance(epochs, (list, tuple)) else [epochs]
    if not several:
        raise TableError("There are no epochs; the list is empty.")
    found = [_epoch_columns(one) for one in several]
    if any(columns.keys() != found[0].keys() for columns in found):
        raise TableError("The metadata of the epochs have different columns; give them the same.")
    columns = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    return {
        "X": np.concatenate([np.asarray(X(one)) for one in several]) if callable(X) else X,
        **_renamed(columns, rename),
    }


def _epoch_columns(epochs: Any) -> Columns:
    frame = epochs.get_metadata() if hasattr(epochs, "get_metadata") else epochs.metadata
    if frame is not None:
        return {str(name): np.asarray(frame[name]) for name in frame.columns}
    names = {code: name for name, code in epochs.event_id.items()}
    columns = {"label": np.array([names[code] for code in epochs.events[:, 2]])}
    person = subject_of(epochs)
    return columns if person is None else columns | {"participant": np.full(len(epochs.events), person)}


def subject_of(epochs: Any) -> Any:
    """Return the ``his_id`` of the subject of MNE epochs, or None; warn if that may be one of several people.

    ``mne.concatenate_epochs`` keeps the first subject for all epochs. What is left of the seam is the event
    after it: no sooner than ten seconds after the end of the epoch before, or with an earlier time.
    """
    person = (epochs.info.get("subject_info") or {}).get("his_id")
    if person is not None and type(epochs).__name__ == "EpochsArray":
        rate = np.asarray(getattr(epochs, "_raw_sfreq", epochs.info["sfreq"]), dtype=np.float64).item()
        seconds = np.diff(epochs.events[:, 0]) / rate
        seams = int(np.sum((seconds < 0) | (seconds >= 10 + epochs.times[-1])))
        if seams:
            warnings.warn(
                f"All {len(epochs.events)} epochs are taken for those of subject {person!r}, by their "
                f"his_id; their times look like {seams + 1} recordings put together. Are they of several "
                "people? Then pass a list of the epochs of each, or name them in a column of metadata.",
                stacklevel=4,
            )
    return person


def _renamed(columns: Mapping[str, Any], rename: Mapping[str, str] | None) -> dict[str, Any]:
    rename = rename or {}
    missing = [name for name in rename if name not in columns]
    if missing:
        raise TableError(f"There is no column {', '.join(missing)}; there is {', '.join(columns)}.")
    renamed = {rename.get(name, name): values for name, values in columns.items()}
    if "X" in renamed or len(renamed) < len(columns):
        raise TableError(
            f"The columns would be called {', '.join(rename.get(name, name) for name in columns)}: names "
            "differ, and X is that of the embedding. Give others with rename=."
        )
    return renamed
