"""Places that are no files: objects of stores and web servers, by their addresses.

A :class:`RemotePath` has the methods of a :class:`pathlib.Path` that tables and maps are read with. Objects
are read in ranges and written whole; an address is shown without the secrets in it. Everything goes through
fsspec, which also finds the credentials: in its own configuration, in the environment, where the machine has
them.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ..errors import StoreError
from .extras import missing

#: What an address may begin with, and the package that fsspec needs for it.
SCHEMES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "https": "aiohttp",
    "http": "aiohttp",
    "hf": "huggingface_hub",
    "memory": "fsspec",
}
#: Of these nothing is known but what is asked for by name.
WEB = ("https", "http")
READ_ONLY = (*WEB, "hf")
BUFFER_BYTES = 2**20

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_SHORTENED = re.compile(rf"({'|'.join([*SCHEMES, 'file'])}):/[^/]")
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
# What tells one version of an object from another, by the names that stores have for it.
_VERSION = (
    *("ETag", "etag", "LastModified", "Last-Modified", "last_modified", "created", "mtime", "generation"),
    "blob_id",
)


def redacted(text: str) -> str:
    """Return a text in which addresses have lost what may be secret: user, password, and query.

    Examples
    --------
    >>> redacted("no access to https://me:secret@host/t.parquet?signature=123")
    'no access to https://…@host/t.parquet?…'
    """
    return _IN_TEXT.sub(lambda match: _redacted_address(match[0]), text)


def _redacted_address(address: str) -> str:
    scheme, _, rest = address.partition("://")
    rest, asks, _ = rest.partition("?")
    host, slash, path = rest.partition("/")
    user, at, host = host.rpartition("@")
    return f"{scheme}://{'…@' if at and user else ''}{host}{slash}{path}{'?…' if asks else ''}"


def is_address(text: str) -> bool:
    """Return whether a text names something by scheme, as ``s3://bucket/table.parquet`` does."""
    return _ADDRESS.match(text) is not None


def as_place(given: Given) -> Place:
    """Return a path on this machine, or an address; ``file://`` is on this machine.

    Examples
    --------
    >>> as_place("s3://bucket/table.parquet").name
    'table.parquet'
    >>> as_place("file:///data/table.parquet").suffix
    '.parquet'
    >>> as_place("ftp://host/t.npz")
    Traceback (most recent call last):
    ...
    ValueError: ftp://host/t.npz begins with ftp://; known are s3, gs, https, http, hf, memory and file.
    """
    if isinstance(given, RemotePath):
        return given
    text = os.fspath(given)
    match = _ADDRESS.match(text)
    if match is None:
        if _SHORTENED.match(text) and not isinstance(given, str):
            raise ValueError(f"{text} is an address that pathlib took a slash from; pass it as text.")
        return Path(given)
    scheme = match["scheme"].lower()
    if scheme == "file":
        return _local_path(text)
    if scheme not in SCHEMES:
        raise ValueError(
            f"{redacted(text)} begins with {scheme}://; known are {', '.join(SCHEMES)} and file."
        )
    return RemotePath(scheme + text[match.end("scheme") :].rstrip("/"))


def _local_path(address: str) -> Path:
    from urllib.request import url2pathname  # loads much, and is seldom needed

    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"{redacted(address)} is on another machine; a file:// address has three slashes.")
    return Path(url2pathname(parts.path))


class Listed(NamedTuple):
    """What a store says about an object: its size in bytes, and a text that changes when it is written."""

    size: int
    version: str


@dataclass(frozen=True, repr=False)
class RemotePath:
    """An address: an object, or what all objects of a folder begin with.

    Parameters
    ----------
    _address : str
        In full, with whatever secrets are in it; as text it is shown without.
    _listed : Listed or None
        What a listing said about the object, which spares asking again.
    """

    _address: str
    _listed: Listed | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return _redacted_address(self._address)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    # The name

    @property
    def scheme(self) -> str:
        """What the address begins with."""
        return self._address.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self._split()[1]

    @property
    def suffix(self) -> str:
        """What the name ends in, from the last dot on."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.name).stem

    def with_name(self, name: str) -> RemotePath:
        """Return the address of a neighbour."""
        folder, _, query = self._split()
        return RemotePath(folder + name + query)

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        folder, own, query = self._split()
        inside = "/".join(Path(name).parts)
        return RemotePath(f"{folder}{own}/{inside}{query}")

    def _split(self) -> tuple[str, str, str]:
        """Return what precedes the name, the name, and the query of a web address."""
        address, query = self._address, ""
        if self.scheme in WEB and "?" in address:
            address, _, query = address.partition("?")
            query = f"?{query}"
        folder, slash, name = address.rpartition("/")
        return folder + slash, name, query

    # What is there

    @property
    def lists(self) -> bool:
        """Whether the store can tell what it has; a web server cannot."""
        return self.scheme not in WEB

    def exists(self) -> bool:
        """Return whether there is an object of this name, or one inside a folder of this name."""
        if not self.lists and self.suffix == ".zarr":
            return any((self / name).exists() for name in ("zarr.json", ".zgroup", ".zarray"))
        return self._listed is not None or self._info() is not None

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        if not self.lists and self.suffix == ".zarr":
            return False
        info = {"type": "file"} if self._listed is not None else self._info()
        return info is not None and info["type"] == "file"

    def is_dir(self) -> bool:
        """Return whether there are objects in a folder of this name; on a web server the name decides."""
        if not self.lists:
            return self.suffix == ".zarr"
        if self._listed is not None:
            return False
        info = self._info()
        return info is not None and info["type"] == "directory"

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.listed().size

    def listed(self) -> Listed:
        """Return what the store says about the object."""
        if self._listed is not None:
            return self._listed
        info = self._info()
        if info is None:
            raise FileNotFoundError(f"There is nothing at {self}.")
        if info.get("size") is None:
            raise StoreError(f"{self}: the server does not say how large it is; download it first.")
        return _listed(info)

    def files(self) -> dict[str, RemotePath]:
        """Return all objects inside the folder, by their names from here on."""
        if not self.lists:
            raise StoreError(f"{self}: a web server does not list a folder; name a file, or a .zarr by mgpa.")
        with self._telling():
            entries = self._fs.find(self._path, detail=True)
        found = {}
        for path, info in sorted(entries.items()):
            name = path.removeprefix(self._path).lstrip("/")
            if name and not name.endswith("/") and info["type"] == "file":  # some stores keep empty folders
                found[name] = RemotePath((self / name)._address, _listed(info))
        return found

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the objects and folders that are right inside."""
        with self._telling():
            entries = self._fs.ls(self._path, detail=True) if self.lists else []
        for info in entries:
            name = info["name"].rstrip("/").removeprefix(self._path).lstrip("/")
            if name:
                listed = _listed(info) if info["type"] == "file" else None
                yield RemotePath((self / name)._address, listed)

    def _info(self) -> dict[str, Any] | None:
        with self._telling():
            try:
                info: dict[str, Any] = self._fs.info(self._path)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return info

    # Reading

    def read_range(self, start: int, stop: int) -> bytes:
        """Return some bytes of the object."""
        if start >= stop:
            return b""
        with self._telling():
            if self.scheme in READ_ONLY:
                content = self._file_range(start, stop)
            else:
                content = self._fs.cat_file(self._path, start=start, end=stop)
        if len(content) != stop - start:
            raise StoreError(f"{self}: {stop - start} bytes were asked for and {len(content)} came.")
        return content

    def _file_range(self, start: int, stop: int) -> bytes:
        """Return a range, and stop when a server sends more than that: the other way reads all of it."""
        with self._fs.open(self._path, "rb", cache_type="none", size=stop) as file:
            file.seek(start)
            try:
                content: bytes = file.read(stop - start)
            except ValueError:
                said = f"{self}: the server does not give parts of a file; download it first."
                raise StoreError(said) from None
        return content

    def read_bytes(self) -> bytes:
        """Return the object; of a web server, as much as it said there is."""
        if self.scheme in READ_ONLY:
            return self.read_range(0, self.size)
        with self._telling():
            content: bytes = self._fs.cat_file(self._path)
        return content

    def open(self, mode: str = "rb", buffering: int = BUFFER_BYTES) -> RangeFile | io.BufferedReader:
        """Return the object as a file to read from; without buffering, in the very ranges that are read."""
        if mode != "rb":
            raise ValueError(f"{self} is opened for reading only; got mode {mode!r}.")
        raw = RangeFile(self)
        return io.BufferedReader(raw, buffering) if buffering else raw

    # Writing: an object is there as a whole, or not at all

    def require_writable(self) -> None:
        """Raise if nothing can be written to such addresses."""
        if self.scheme in READ_ONLY:
            raise StoreError(f"{self}: {self.scheme}:// is read only; write to s3://, gs:// or a file.")

    def write_bytes(self, content: bytes, *, new: bool = False) -> None:
        """Write the object; ``new``: only if there is none, which of several processes one succeeds in."""
        with self._telling():
            self._fs.pipe_file(self._path, content, mode="create" if new else "overwrite")

    def upload(self, file: Path) -> None:
        """Write the object from a file; large ones go in pieces, which become an object with the last."""
        with self._telling():
            self._fs.put_file(str(file), self._path)
        sent, arrived = file.stat().st_size, RemotePath(self._address).size
        if sent != arrived:
            raise StoreError(f"{self}: {sent} bytes were sent and {arrived} arrived; run it again.")

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        remove_all([self], missing_ok=missing_ok)

    @property
    def _fs(self) -> Any:
        try:
            import fsspec

            # fsspec keeps one of a kind; it would also keep listings, which other processes make out of date.
            return fsspec.filesystem(self.scheme, use_listings_cache=False)
        except ImportError:
            raise missing(f"{self.scheme}://", *dict.fromkeys(["fsspec", SCHEMES[self.scheme]])) from None

    @property
    def _path(self) -> str:
        path: str = self._fs._strip_protocol(self._address)
        return path

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn whatever a store raises into an error that names the address, and none of its secrets."""
        self._fs  # noqa: B018 - a missing package is another error
        try:
            yield
        except StoreError:
            raise
        except FileNotFoundError:
            raise FileNotFoundError(f"There is nothing at {self}.") from None
        except FileExistsError:
            raise FileExistsError(f"There is something at {self} already.") from None
        except PermissionError as error:
            raise PermissionError(
                f"{self}: no access ({redacted(str(error))}). Credentials are those that fsspec finds."
            ) from None
        # Stores have errors of their own, of any kind, and with addresses in them.
        except Exception as error:
            raise StoreError(f"{self}: {redacted(str(error)) or type(error).__name__}") from None


#: Where something is or shall be, and what people may call it.
Place: TypeAlias = Path | RemotePath
Given: TypeAlias = str | os.PathLike[str] | RemotePath


class RangeFile(io.RawIOBase):
    """An object as a file: what is read is asked for, and what was read last at its end is remembered."""

    def __init__(self, place: RemotePath) -> None:
        self.place, self.size = place, place.size
        self._at, self._kept_from, self._kept = 0, self.size, b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError(f"{self.place}: position {base + offset} is before its beginning.")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return at most so many bytes, and fewer at the end only."""
        stop = self.size if size is None or size < 0 else min(self._at + size, self.size)
        start, self._at = self._at, max(self._at, stop)
        if start >= self._kept_from:
            return self._kept[start - self._kept_from : stop - self._kept_from]
        content = self.place.read_range(start, stop)
        if stop == self.size and len(content) <= BUFFER_BYTES:
            self._kept_from, self._kept = start, content
        return content

    def readinto(self, buffer: Any) -> int:
        """Read into memory that is there."""
        view = memoryview(buffer).cast("B")
        content = self.read(len(view))
        view[: len(content)] = content
        return len(content)


def remove_all(places: Iterable[RemotePath], *, missing_ok: bool = True) -> None:
    """Remove objects of one store."""
    several = list(places)
    # All at once is quicker, and takes some characters for patterns.
    if len(several) > 1 and not set("*?[") & set("".join(place._path for place in several)):
        try:
            with several[0]._telling():
                several[0]._fs.rm([place._path for place in several])
            return
        except FileNotFoundError:
            pass  # of one; the others may be there
    for place in several:
        try:
            with place._telling():
                place._fs.rm_file(place._path)
        except FileNotFoundError:
            if not missing_ok:
                raise


def copy_all(sources: Iterable[RemotePath], targets: Iterable[RemotePath]) -> None:
    """Copy objects to other names, inside the store."""
    pairs = list(zip(sources, targets, strict=True))
    if not pairs:
        return
    store = pairs[0][0]
    with store._telling():
        store._fs.copy([source._path for source, _ in pairs], [target._path for _, target in pairs])


def _listed(info: dict[str, Any]) -> Listed:
    version = " ".join(f"{name}={info[name]}" for name in _VERSION if info.get(name) is not None)
    return Listed(int(info.get("size") or 0), version)
