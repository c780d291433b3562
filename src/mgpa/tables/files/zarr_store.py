"""Zarr groups by address: a store of zarr's kind over the objects that are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from ..._common.remote import RemotePath
from ...errors import TableError


class RemoteStore(Store):  # type: ignore[misc]
    """The objects below an address.

    Zarr's own store over fsspec wants file systems that belong to zarr's event loop; this one uses those that
    everything else here uses, and says when a chunk is missing where zarr would take it for zeros.

    Parameters
    ----------
    place : RemotePath
        Of the group.
    read_only : bool
    complete : bool
        Whether every chunk has to be there.
    """

    supports_writes = True
    supports_deletes = False
    supports_partial_writes = False

    def __init__(self, place: RemotePath, *, read_only: bool = True, complete: bool = False) -> None:
        super().__init__(read_only=read_only)
        self.place, self.complete = place, complete

    @property
    def supports_listing(self) -> bool:
        """Whether zarr can ask what there is."""
        return self.place.lists

    def with_read_only(self, read_only: bool = False) -> RemoteStore:
        """Return a store of the same objects."""
        return RemoteStore(self.place, read_only=read_only, complete=self.complete)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteStore) and self.place == other.place

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self.place)

    __repr__ = __str__

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: Any = None
    ) -> Buffer | None:
        """Return an object or a range of it, or None if there is none."""
        try:
            content = await asyncio.to_thread(_read, self.place / key, byte_range)
        except FileNotFoundError:
            if self.complete and "/c/" in f"/{key}":
                raise TableError(f"damaged: {key} is missing.") from None
            return None
        return (prototype or default_buffer_prototype()).buffer.from_bytes(content)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, Any]]
    ) -> list[Buffer | None]:
        """Return several ranges."""
        return list(await asyncio.gather(*(self.get(key, prototype, wanted) for key, wanted in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is an object."""
        return await asyncio.to_thread((self.place / key).is_file)

    async def set(self, key: str, value: Buffer) -> None:
        """Write an object."""
        self._check_writable()
        await asyncio.to_thread((self.place / key).write_bytes, value.to_bytes())

    async def set_partial_values(self, key_start_values: Any) -> None:
        """Refuse, as ``supports_partial_writes`` says; zarr before 3.1.3 wants the method all the same."""
        raise NotImplementedError("Objects of a store are written whole.")

    async def delete(self, key: str) -> None:
        """Remove an object: nothing here asks for it."""
        raise NotImplementedError

    async def list(self) -> AsyncIterator[str]:
        """Yield the names of all objects."""
        for name in await asyncio.to_thread(self.place.files):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names that begin so."""
        folder = prefix.rstrip("/")
        below = self.place / folder if folder else self.place
        for name in await asyncio.to_thread(below.files):
            yield f"{folder}/{name}" if folder else name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names right inside a folder."""
        folder = prefix.rstrip("/")
        inside = self.place / folder if folder else self.place
        for entry in await asyncio.to_thread(lambda: list(inside.iterdir())):
            yield entry.name


def _read(place: RemotePath, wanted: Any) -> bytes:
    if wanted is None:
        return place.read_bytes()
    if isinstance(wanted, RangeByteRequest):
        return place.read_range(wanted.start, wanted.end)
    size = place.size
    if isinstance(wanted, OffsetByteRequest):
        return place.read_range(wanted.offset, size)
    assert isinstance(wanted, SuffixByteRequest)
    return place.read_range(max(0, size - wanted.suffix), size)
