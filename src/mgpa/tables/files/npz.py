"""Tables as numpy's ``.npz``: one array a column, read as a stream and never unpickled."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ..._common.files import size_of
from ..._common.remote import Place
from ...errors import TableError
from ..columns import Columns
from .layout import MAX_HEAD_BYTES, Choice, Field, Head, Layout, require_rows
from .manifest import Manifest, column_types, sha256
from .table_file import TableFile, require_plausible

HEAD = "mgpa"
# The archive's comment vouches for the description and thereby its manifest. numpy copies no comments.
SEAL = b"mgpa "
SKIP_BYTES = 2**23


@dataclass(frozen=True)
class NpzTable(TableFile):
    """A table in an ``.npz`` file: a single part."""

    format = "npz"

    def part_name(self, i: int) -> str:
        """Return the name of a part."""
        return "rows"

    def files(self) -> set[Place]:
        """Return the one file."""
        return {self.path}

    def arrays(self, start: int, stop: int, names: list[str], max_rows: int) -> Iterator[Columns]:
        """Yield arrays of the file, at most ``max_rows`` rows at a time."""
        with self.path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            members = {name: Member.open(archive, name) for name in names}
            for member in members.values():
                member.skip(start)
            for a in range(start, max(stop, start + 1), max_rows):
                yield {name: member.take(min(max_rows, stop - a)) for name, member in members.items()}


@dataclass
class Member:
    """An array in an archive, read from its first row to its last."""

    stream: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_column: bool
    at: int = 0

    @classmethod
    def open(cls, archive: zipfile.ZipFile, name: str) -> Member:
        """Open an array, or refuse it: nothing is trusted but its bytes."""
        stored = archive.getinfo(f"{name}.npy")
        if stored.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # Python unfolds others without a bound.
            raise TableError(f"array {name!r} is compressed as numpy never does; save it with numpy.savez.")
        stream = archive.open(stored)
        version = npy.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise TableError(f"array {name!r} has version {version} of numpy's format, which is for records.")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_column, dtype = read_header(stream)
        if dtype.hasobject:
            raise TableError(
                f"array {name!r} holds Python objects, and reading those can run any code; refused. Save "
                "arrays of numbers or text."
            )
        size = math.prod(shape) * dtype.itemsize
        if stored.file_size - stream.tell() != size:
            raise TableError(f"damaged: array {name!r} should have {size} bytes.")
        return cls(stream, shape, dtype, by_column and len(shape) > 1)

    @property
    def n_bytes(self) -> int:
        """How much all of it takes in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    @cached_property
    def whole(self) -> NDArray[Any]:
        """All rows: what an array that is stored by column has to be read for."""
        values = np.frombuffer(bytearray(self.stream.read()), self.dtype)
        return values.reshape(self.shape[::-1]).transpose()

    def skip(self, rows: int) -> None:
        """Pass over rows."""
        self.at += rows
        left = 0 if self.by_column else rows * math.prod(self.shape[1:]) * self.dtype.itemsize
        # Read, not sought: in Python 3.12.3 seeking in an archive forgets what was buffered, and lands
        # elsewhere.
        while left and (passed := len(self.stream.read(min(left, SKIP_BYTES)))):
            left -= passed

    def take(self, rows: int) -> NDArray[Any]:
        """Return the next rows."""
        self.at += rows
        if self.by_column:
            return self.whole[self.at - rows : self.at]
        values = np.empty((rows, *self.shape[1:]), self.dtype)
        if self.stream.readinto(values.reshape(-1).view(np.uint8)) != values.nbytes:
            raise TableError("damaged: it ends too early.")
        return values


def open_npz(path: Place, choice: Choice) -> NpzTable:
    """Open a table without reading more than the headers of its arrays."""
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        require_plausible(sum(stored.file_size for stored in archive.infolist()), size_of(path))
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        head, text, sealed = None, "", archive.comment.startswith(SEAL)
        if HEAD in names:
            member = Member.open(archive, HEAD)
            if member.shape != () or member.dtype.kind != "U" or member.n_bytes > 4 * MAX_HEAD_BYTES:
                raise TableError("damaged: its description is no text.")
            text = np.frombuffer(member.stream.read(), member.dtype)[0].item()
            head = Head.read(text)
            names.remove(HEAD)
        if sealed and archive.comment != SEAL + sha256(text).encode():
            raise TableError("damaged: its description is not as it was written.")
        arrays = {name: Member.open(archive, name) for name in names}
    if not arrays:
        raise TableError("an archive without arrays; numpy.savez writes one with some.")
    lengths = {name: array.shape[0] if array.shape else -1 for name, array in arrays.items()}
    fields = [_field(name, array) for name, array in arrays.items()]
    if sealed:
        Manifest.read(json.loads(text).get("manifest")).check(fields, lengths.get("X", 0), {})
    layout = Layout.choose(require_rows(fields, lengths, choice.embedding), choice, head)
    return NpzTable(path, layout, head, (0, lengths[layout.embedding[0]]), sealed)


def write_npz(path: Path, blocks: Iterable[Columns], head: Head) -> None:
    """Write a table; all of it is in memory at once, as readers of the format will have it too."""
    pieces = list(blocks)
    with zipfile.ZipFile(path, "w") as archive:
        for name in pieces[0]:
            values = np.concatenate([piece[name] for piece in pieces]) if len(pieces) > 1 else pieces[0][name]
            _add(archive, name, values)
        manifest = Manifest(column_types(pieces[0]), sum(len(piece["X"]) for piece in pieces))
        description = json.dumps(head.document() | {"manifest": manifest.document()})
        _add(archive, HEAD, np.array(description))
        archive.comment = SEAL + sha256(description).encode()


def _add(archive: zipfile.ZipFile, name: str, values: NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
        npy.write_array(stream, np.ascontiguousarray(values) if values.ndim else values, allow_pickle=False)


def _field(name: str, array: Member) -> Field:
    dtype: np.dtype[Any] | None = np.dtype("U") if array.dtype.kind in "US" else array.dtype.newbyteorder("=")
    if not array.shape or array.dtype.kind not in "biufUSM":
        dtype = None
    raw = f"raw {array.dtype.itemsize}-byte values, as bfloat16 becomes; save float32"
    kind = {"U": "text", "S": "text", "V": raw}.get(array.dtype.kind, str(array.dtype))
    size = " × ".join(map(str, array.shape[1:])) if array.shape else "a single"
    return Field(name, array.shape[1:], dtype, f"{size} {kind}" if size else kind)
