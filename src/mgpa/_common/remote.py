"""Remote paths: objects of stores (through fsspec) and files of web servers (through requests).

A :class:`RemotePath` has the methods of :class:`pathlib.Path` that tables and maps use. Objects are written
whole; an address is shown without the secrets in it. Credentials are those that fsspec finds.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ..errors import StoreError
from .extras import missing

#: What an address may begin with, and the package that reads it.
SCHEMES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "https": "requests",
    "http": "requests",
    "hf": "huggingface_hub",
    "memory": "fsspec",
}
WEB = ("https", "http")
READ_ONLY = (*WEB, "hf")
#: Seconds until a server must answer, and until it must send the next bytes.
TIMEOUT = (20, 60)
BUFFER_BYTES = 2**20

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_SHORTENED = re.compile(rf"({'|'.join([*SCHEMES, 'file'])}):/[^/]")
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")


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
    """Return a path on this machine, or a remote path; ``file://`` is on this machine.

    Examples
    --------
    >>> as_place("s3://bucket/table.parquet").name
    'table.parquet'
    >>> as_place("file:///data/table.parquet").suffix
    '.parquet'
    >>> as_place("ftp://host/t.npz")
    Traceback (most recent call last):
    ...
    ValueError: ftp://host/t.npz begins with ftp://; expected s3, gs, https, http, hf, memory or file.
    """
    if isinstance(given, RemotePath):
        return given
    text = os.fspath(given)
    match = _ADDRESS.match(text)
    if match is None:
        if _SHORTENED.match(text) and not isinstance(given, str):
            raise ValueError(f"pathlib removed a slash from the address {text}; pass it as a string.")
        return Path(given)
    scheme = match["scheme"].lower()
    if scheme == "file":
        from urllib.request import url2pathname  # loads much, and is seldom needed

        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{redacted(text)} is on another machine; a file:// address has three slashes.")
        return Path(url2pathname(parts.path))
    if scheme not in SCHEMES:
        raise ValueError(f"{redacted(text)} begins with {scheme}://; expected {', '.join(SCHEMES)} or file.")
    return RemotePath(scheme + text[match.end("scheme") :].rstrip("/"))


@dataclass(frozen=True, repr=False)
class RemotePath:
    """An object of a store or a file of a web server, by its address; or a folder of objects.

    Parameters
    ----------
    _address : str
        In full, with whatever secrets are in it; as text it is shown without.
    """

    _address: str

    def __str__(self) -> str:
        return _redacted_address(self._address)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

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

    def __truediv__(self, name: str | os.PathLike[str]) -> RemotePath:
        folder, last, query = self._split()
        return RemotePath(f"{folder}{last}/{'/'.join(Path(name).parts)}{query}")

    def _split(self) -> tuple[str, str, str]:
        """Return what precedes the name, the name, and the query of a web address."""
        address, mark, query = self._address.partition("?") if self.scheme in WEB else (self._address, "", "")
        folder, slash, name = address.rpartition("/")
        return folder + slash, name, mark + query

    def exists(self) -> bool:
        """Return whether there is an object of this name, or one inside a folder of this name."""
        return bool(self._info())

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        return self._info().get("type") == "file"

    def is_dir(self) -> bool:
        """Return whether there are objects in a folder of this name; a web server has none."""
        return self._info().get("type") == "directory"

    @property
    def size(self) -> int:
        """Bytes of the object, 0 if there is none."""
        return int(self._info().get("size") or 0)

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the objects and folders that are right inside."""
        with self._naming():
            entries = [] if self.scheme in WEB else self._fs.ls(self._path, detail=True)
        for info in entries:
            name = info["name"].rstrip("/").removeprefix(self._path).lstrip("/")
            if name:
                yield self / name

    def _info(self) -> dict[str, Any]:
        """Return what a store says about an object or folder; nothing if there is none."""
        with self._naming():
            try:
                if self.scheme in WEB:
                    return {"type": "file", "size": WebFile(self).size}
                return dict(self._fs.info(self._path))
            except (FileNotFoundError, NotADirectoryError):
                return {}

    def open(self, mode: str = "rb", buffering: int = BUFFER_BYTES) -> Any:
        """Return the object as a file to read from; without buffering, in the very ranges that are read."""
        if mode != "rb":
            raise ValueError(f"{self} is opened for reading only; got mode {mode!r}.")
        with self._naming():
            if self.scheme == "memory":  # fsspec would hand out one and the same file to all readers
                return io.BytesIO(self._fs.cat_file(self._path))
            file = WebFile(self) if self.scheme in WEB else self._fs.open(self._path, cache_type="none")
        return io.BufferedReader(file, buffering) if buffering else file

    def read_bytes(self) -> bytes:
        """Return the object."""
        with self.open(buffering=0) as file, self._naming():
            content: bytes = file.read()
        return content

    def write_bytes(self, content: bytes, *, new: bool = False) -> None:
        """Write the object; ``new``: only if there is none, which one of several processes succeeds in."""
        with self._naming():
            self._fs.pipe_file(self._path, content, mode="create" if new else "overwrite")

    def upload(self, file: Path, *, new: bool = False) -> None:
        """Write the object from a file; large ones go in pieces, which become an object with the last."""
        if new and self.exists():
            raise FileExistsError(f"{self} already exists.")
        with self._naming():
            self._fs.put_file(str(file), self._path, **({"mode": "create"} if new else {}))
        sent, arrived = file.stat().st_size, self.size
        if sent != arrived:
            raise StoreError(f"{self}: {sent} bytes were sent and {arrived} arrived; run it again.")

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        try:
            with self._naming():
                self._fs.rm_file(self._path)
        except FileNotFoundError:
            if not missing_ok:
                raise

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
        return str(self._fs._strip_protocol(self._address))

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Turn whatever a store raises into an error that names the address, and none of its secrets."""
        try:
            yield
        except (StoreError, ImportError):
            raise
        except FileNotFoundError:
            raise FileNotFoundError(f"Nothing found at {self}.") from None
        except FileExistsError:
            raise FileExistsError(f"{self} already exists.") from None
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


class WebFile(io.RawIOBase):
    """A file of a web server, read in ranges: one version of it, and never more bytes than were asked for."""

    def __init__(self, place: RemotePath) -> None:
        self.place, self._at = place, 0

    @cached_property
    def _described(self) -> tuple[int, str | None]:
        """The file's size, and what tells this version from others if the server says so."""
        with self._get(0, 1) as answer:
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status_code not in (206, 416) or not total.isdigit():
                raise StoreError(f"{self.place}: the server cannot send parts of a file; download it first.")
            return int(total), answer.headers.get("ETag") or answer.headers.get("Last-Modified")

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._described[0]

    def _get(self, start: int, stop: int) -> Any:
        try:
            import requests
        except ImportError:
            raise missing("A web address", "requests") from None
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        answer = requests.get(self.place._address, headers=headers, stream=True, timeout=TIMEOUT)
        if answer.status_code in (404, 410):
            raise FileNotFoundError(self.place._address)
        if answer.status_code in (401, 403):
            raise PermissionError(f"the server answered {answer.status_code}")
        if answer.status_code not in (200, 206, 416):
            raise StoreError(f"{self.place}: the server answered {answer.status_code} {answer.reason}.")
        return answer

    def readable(self) -> bool:
        """Return True."""
        return True

    seekable = readable

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return so many bytes, and fewer at the end only."""
        start = self._at
        stop = self.size if size is None or size < 0 else min(start + size, self.size)
        if start >= stop:
            return b""
        content = bytearray()
        with self.place._naming(), self._get(start, stop) as answer:
            version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
            if answer.status_code != 206 or version != self._described[1]:
                raise StoreError(f"{self.place} changed while it was read; run it again.")
            # One byte beyond what was asked for shows that there is more, and nothing is kept of it.
            while len(content) <= stop - start:
                piece = answer.raw.read(min(stop - start + 1 - len(content), BUFFER_BYTES))
                if not piece:
                    break
                content += piece
        if len(content) != stop - start:
            more = "more" if len(content) > stop - start else f"{len(content)}"
            raise StoreError(f"{self.place}: {stop - start} bytes were asked for and {more} came.")
        self._at = stop
        return bytes(content)

    def readinto(self, buffer: Any) -> int:
        """Read into memory that is there."""
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)
