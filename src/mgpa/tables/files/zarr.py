"""Tables as a Zarr group: the array X and one array a column, all cut along the rows alike."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.extras import missing
from ..._common.files import size_of, special_kind
from ..._common.remote import Place, RemotePath
from ...errors import TableError
from ..columns import Columns
from .layout import (
    Choice,
    Field,
    Head,
    Layout,
    block_rows,
    chunk_rows,
    find_embedding,
    require_along_rows,
    require_rows,
    require_short,
)
from .manifest import Manifest, column_types, sha256
from .table_file import TableFile, require_plausible

try:
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec
    from zarr.storage import LocalStore
except ImportError as error:
    raise missing("Zarr", "zarr") from error

HEAD = "mgpa"
# Beside X's description, where nobody looks: a stray file in the group itself makes zarr warn, and attributes
# are copied into whatever xarray makes of a table.
MANIFEST = Path("X", "mgpa.json")
DIMENSIONS = {1: ("row",), 2: ("row", "feature"), 3: ("row", "token", "feature")}
# Chunks that hold zeros alone are written too: a chunk that is not there is then always a loss.
FILLING: Any = {"write_empty_chunks": True}
# What may lie between a file's bytes and its numbers. Version 2 of the format also knows a codec "pickle",
# which runs whatever code the file brings.
CODECS = (
    *("bytes", "transpose", "sharding_indexed", "vlen-utf8", "astype"),
    *("crc32c", "crc32", "adler32", "fletcher32"),
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma"),
    *("delta", "shuffle", "packbits", "fixedscaleoffset", "quantize", "bitround"),
)


@contextmanager
def _quiet() -> Iterator[None]:
    """Read files with types that are not in Zarr's specification, without its warnings about them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"zarr\.")
        warnings.filterwarnings("ignore", message=".*Zarr|.*zarr")
        yield


@dataclass(frozen=True)
class ZarrTable(TableFile):
    """A table in a Zarr group; each part is a range of whole chunks."""

    format = "zarr"

    def part_name(self, i: int) -> str:
        """Return the name of a part: where it begins."""
        return f"rows-{self.bounds[i]:012d}"

    def files(self) -> set[Place]:
        """Return the descriptions, the manifest and the chunks."""
        arrays = _open_arrays(self)
        files = {self.path / name for name in _digests(self.path, arrays)} | {self.path / MANIFEST}
        for name, array in arrays.items():
            for chunk in product(*map(range, array.cdata_shape)):
                files.add(self.path / name / array.metadata.encode_chunk_key(chunk))
        return files

    def arrays(self, start: int, stop: int, names: list[str], max_rows: int) -> Iterator[Columns]:
        """Yield arrays of the file, at most ``max_rows`` rows at a time."""
        found = _open_arrays(self, names)
        for a in range(start, max(stop, start + 1), max_rows):
            with _quiet():
                batch = {name: _values(array, a, min(a + max_rows, stop)) for name, array in found.items()}
            yield batch


@_quiet()
def _open_arrays(table: ZarrTable, names: list[str] | None = None) -> dict[str, Any]:
    store = _store(table.path, complete=table.head is not None)
    group = zarr.open_group(store, mode="r")
    return dict(group.arrays()) if names is None else {name: group[name] for name in names}


def _store(path: Place, *, read_only: bool = True, complete: bool = False) -> Any:
    if isinstance(path, RemotePath):
        from .zarr_store import RemoteStore

        return RemoteStore(path, read_only=read_only, complete=complete)
    return LocalStore(path, read_only=read_only)


@_quiet()
def open_zarr(path: Place, choice: Choice) -> ZarrTable:
    """Open a table without reading its arrays."""
    listing = not isinstance(path, RemotePath) or path.lists
    stored_bytes = _stored_bytes(path) if listing else 0
    group = zarr.open(_store(path), mode="r")
    if not isinstance(group, zarr.Group):
        raise TableError("holds a single array; expected a group with X and one array a column.")
    stored = group.attrs.asdict().get(HEAD)
    head = None if stored is None else Head.read(stored)
    listed = stored.get("columns") if isinstance(stored, dict) else None
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    arrays = dict(group.arrays()) if listing or not names else {name: group[name] for name in names}
    if not listing:
        stored_bytes = _estimated_bytes(path, arrays)
    for name, array in arrays.items():
        _require_harmless(name, array)
        # A chunk is decoded as a whole, whatever the size of the array.
        whole = max(math.prod(array.shape), math.prod(array.shards or array.chunks))
        require_plausible(whole * max(array.dtype.itemsize, 1), stored_bytes)
    fields = [_field(name, array) for name, array in arrays.items()]
    verified = (path / MANIFEST).exists()
    if verified:
        manifest = Manifest.read((path / MANIFEST).read_bytes())
        manifest.check(fields, arrays["X"].shape[0] if "X" in arrays else 0, _digests(path, arrays))
    rows = _rows_dimension(arrays, choice)
    # Coordinates of other dimensions describe features, not rows.
    aside = {n: dims for n, a in arrays.items() if (dims := _dimensions(a))[:1] not in ((), rows)}
    require_along_rows(aside, rows, choice.rename)
    fields = [field for field in fields if field.name not in aside]
    # The file system lists arrays in any order.
    place = {name: i for i, name in enumerate(names)}
    fields.sort(key=lambda field: (place.get(field.name, len(place)), field.name))
    lengths = {name: array.shape[0] if array.shape else -1 for name, array in arrays.items()}
    layout = Layout.choose(require_rows(fields, lengths, choice.embedding), choice, head)
    X = arrays[layout.embedding[0]]
    n = X.shape[0]
    for name in (*layout.embedding, *layout.columns.values()):
        # What cannot be listed is missed when it is read.
        if head is not None and listing and arrays[name].nchunks_initialized < arrays[name].nchunks:
            raise TableError(f"damaged: chunks of {name!r} are missing.")
    chunk = (X.shards or X.chunks)[0]
    block = block_rows(math.prod(layout.shape) * layout.dtype.itemsize)
    step = chunk * max(block // chunk, 1)
    bounds = (*range(0, n, step), n)
    return ZarrTable(path, layout, head, bounds if n else (0, 0), verified)


def write_zarr(path: Path, blocks: Iterable[Columns], head: Head) -> None:
    """Write a table; blocks but the last must be whole chunks."""
    at = 0
    for block in blocks:
        if at == 0:
            chunk = chunk_rows(math.prod(head.shape) * block["X"].itemsize)
            arrays = create_zarr(path, block, head, chunk)
        for array in arrays.values():
            array.resize((at + len(block["X"]), *array.shape[1:]))
        fill_zarr(arrays, block, at)
        at += len(block["X"])
    seal_zarr(path, block, at)


def seal_zarr(path: Place, like: Columns, n_rows: int) -> None:
    """Write the manifest of a group that is full."""
    manifest = Manifest(column_types(like), n_rows, _digests(path, like))
    (path / MANIFEST).write_bytes(json.dumps(manifest.document()).encode())


def create_zarr(path: Path, like: Columns, head: Head, chunk: int, n_rows: int = 0) -> dict[str, Any]:
    """Create a group and its arrays, and return them to be filled."""
    bad = [name for name in like if "/" in name or "\\" in name or name in (".", "..") or name[:2] == "__"]
    if bad:
        raise TableError(f"A Zarr group cannot have a column called {bad[0]!r}; rename it, or use Parquet.")
    document = head.document() | {"columns": list(like)}
    group = zarr.create_group(LocalStore(path), attributes={HEAD: document})
    arrays = {}
    for name, values in like.items():
        text = values.dtype.kind == "U"
        # Numbers that never repeat gain nothing from compression; columns do. Both are checked when read.
        checked: list[Any] = [Crc32cCodec()] if name == "X" else [ZstdCodec(level=3, checksum=True)]
        arrays[name] = group.create_array(
            name,
            shape=(n_rows, *values.shape[1:]),
            chunks=(chunk, *values.shape[1:]),
            dtype="string" if text else values.dtype,
            compressors=checked,
            dimension_names=DIMENSIONS[values.ndim],
            config=FILLING,
        )
    return arrays


def open_for_filling(path: Place) -> dict[str, Any]:
    """Return the arrays of a group that was created and is not yet full."""
    store = _store(path, read_only=False)
    names = zarr.open_group(store, mode="r+").array_keys()
    return {name: zarr.open_array(store, path=name, mode="r+", config=FILLING) for name in names}


def fill_zarr(arrays: dict[str, Any], columns: Columns, at: int) -> None:
    """Write rows from row ``at`` on."""
    for name, values in columns.items():
        try:
            arrays[name][at : at + len(values)] = values
        except (UnicodeError, TypeError):
            if values.dtype.kind != "U":
                raise
            raise TableError(f"{name} has text that is not valid Unicode; no file can hold it.") from None


def _digests(path: Place, names: Iterable[str]) -> dict[str, str]:
    """Return digests of the descriptions of the group and of its arrays."""
    descriptions = ["zarr.json", *(f"{name}/zarr.json" for name in names)]
    return {name: sha256((path / name).read_bytes()) for name in descriptions}


def _estimated_bytes(path: Place, arrays: dict[str, Any]) -> int:
    """Return how much a folder would hold, were all chunks like the first: a web server lists nothing."""
    total = 0
    for name, array in arrays.items():
        first = path / name / array.metadata.encode_chunk_key((0,) * array.ndim)
        total += size_of(first) * array.nchunks if first.exists() else 0
    return total


def _stored_bytes(path: Place) -> int:
    """Return how much a folder holds; a pipe or a device among its files, which may never end, is refused."""
    if isinstance(path, RemotePath):
        return sum(file.size for file in path.files().values())
    total, seen = 0, set()
    for folder, folders, names in os.walk(path, followlinks=True):
        at = os.stat(folder)
        if (at.st_dev, at.st_ino) in seen:  # a link leads back here
            folders.clear()
            continue
        seen.add((at.st_dev, at.st_ino))
        for name in names:
            file = Path(folder, name)
            kind = special_kind(file)
            if kind is not None:
                raise TableError(f"{file.relative_to(path)} is {kind}, not a file.")
            total += file.stat().st_size
    return total


def _values(array: Any, start: int, stop: int) -> NDArray[Any]:
    values = np.asarray(array[start:stop])
    if values.dtype.kind in "TO":
        found = values.tolist()
        if not all(isinstance(value, str) for value in found):
            raise TableError(f"array {array.basename!r} holds Python objects that are not text.")
        require_short(array.basename, max(map(len, found), default=0), len(found))
        return np.array(found, dtype=str)
    # How xarray stores booleans where the format has none.
    return values.astype(bool) if array.attrs.get("dtype") == "bool" else values


def _field(name: str, array: Any) -> Field:
    kind = array.dtype.kind
    dtype: np.dtype[Any] | None = None
    if kind in "UTO":
        dtype = np.dtype("U")
    elif kind in "biufM" and array.ndim:
        dtype = array.dtype.newbyteorder("=")
    size = " × ".join(map(str, array.shape[1:]))
    named = "text" if dtype is not None and dtype.kind == "U" else str(array.dtype)
    return Field(name, array.shape[1:], dtype, f"{size} {named}" if size else named)


def _rows_dimension(arrays: dict[str, Any], choice: Choice) -> tuple[str, ...]:
    """Return the name of the dimension that counts rows, or () if the file does not name dimensions."""
    embedding = find_embedding(
        {name: _field(name, array) for name, array in arrays.items()}, choice.embedding
    )
    return _dimensions(arrays[embedding[0]])[:1]


def _dimensions(array: Any) -> tuple[str, ...]:
    named = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ()
    return tuple(named)


def _require_harmless(name: str, array: Any) -> None:
    """Raise if reading an array could run code, or would give numbers that only xarray can interpret."""
    metadata = array.metadata.to_dict()
    codecs = [*(metadata.get("codecs") or ()), *(metadata.get("filters") or ()), metadata.get("compressor")]
    for codec in codecs:
        called = str((codec or {}).get("name") or (codec or {}).get("id") or "bytes")
        if called.removeprefix("numcodecs.") not in CODECS:
            raise TableError(f"array {name!r} is stored with codec {called!r}, which is not read here.")
    attributes = array.attrs.asdict()
    if {"scale_factor", "add_offset"} & attributes.keys() or " since " in str(attributes.get("units")):
        raise TableError(
            f"array {name!r} is packed, as its attributes say; open the file with xarray and pass it to "
            "mgpa.tables.Table.from_xarray."
        )
