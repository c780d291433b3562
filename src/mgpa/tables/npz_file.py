"""``.npz`` archives of numpy; archives of mgpa have a checksum at the end."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .._common.remote import Place
from .._common.untrusted import (
    SEAL,
    require_names,
    require_plausible,
    require_sealed,
    require_unicode,
    seal_end,
)
from ..errors import TableError
from .columns import Columns
from .layout import Field, Layout, find_embedding, read_head


def read_npz(path: Place, **choice: Any) -> tuple[Layout, dict[str, Any], Columns]:
    """Return the layout, info and arrays of an archive; arrays are never unpickled."""
    arrays = _read_arrays(path)
    head = arrays.pop("mgpa", None)
    shape, info = read_head(None if head is None else str(head))
    arrays = {name: values for name, values in arrays.items() if isinstance(values, np.ndarray)}
    if not arrays:
        raise TableError("the archive has no arrays; write it with numpy.savez.")
    fields = {name: _field(name, array, None) for name, array in arrays.items()}
    n = len(arrays[find_embedding(fields, choice["embedding"])[0]])
    fields = {name: _field(name, array, n) for name, array in arrays.items()}
    layout = Layout.choose(fields.values(), shape=shape, **choice)
    return layout, layout.info(info), {name: np.ascontiguousarray(arrays[name]) for name in layout.names}


def _read_arrays(path: Place) -> Columns:
    """Return all arrays of an archive; raise if it is damaged or claims more data than it can contain."""
    arrays: Columns = {}
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        members = archive.zip.infolist()
        if archive.zip.comment:  # only mgpa writes a comment
            require_sealed(stream)
        require_plausible(sum(member.file_size for member in members), stream.seek(0, 2))
        require_names(archive.files)
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise TableError(
                "its arrays are compressed in a way that numpy does not write; save them with numpy.savez."
            )
        for name in archive.files:
            try:
                arrays[name] = archive[name]
                require_unicode(arrays[name], name)
            except TableError:
                raise
            except (ValueError, MemoryError, EOFError) as error:
                hint = "Python objects, which could run any code; save arrays of numbers or text"
                what = f"holds {hint}" if "pickle" in str(error) else f"is damaged: {error}"
                raise TableError(f"array {name!r} {what}.") from None
    return arrays


def _field(name: str, array: Any, n: int | None) -> Field:
    """Return the description of an array; it is unusable if its number of rows differs from the embedding."""
    dtype: np.dtype[Any] | None = np.dtype("U") if array.dtype.kind in "US" else array.dtype.newbyteorder("=")
    raw = f"raw {array.dtype.itemsize}-byte values, as bfloat16 becomes; save float32"
    kind = {"U": "text", "S": "text", "V": raw}.get(array.dtype.kind, str(array.dtype))
    kind = " ".join([*" × ".join(map(str, array.shape[1:])).split(), kind])
    rows = len(array) if array.shape else 1
    if n not in (None, rows):
        kind = f"{kind} in {rows} rows, not {n}"
    if not array.shape or array.dtype.kind not in "biufUSM" or n not in (None, rows):
        dtype = None
    return Field(name, array.shape[1:], dtype, kind)


def write_npz(path: Path, columns: Columns, head: str) -> None:
    """Write arrays and the description of a table as numpy does, with a checksum of the file at the end."""
    with zipfile.ZipFile(path, "w") as archive:  # numpy.savez accepts no array named "file"
        for name, values in (columns | {"mgpa": np.array(head)}).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values, allow_pickle=False)
        archive.comment = SEAL + bytes(64)
    seal_end(path)
