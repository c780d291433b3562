"""Remote paths: objects in stores and files on web servers, accessed through fsspec.

A :class:`RemotePath` has the methods of :class:`pathlib.Path` that tables and maps use. Objects are written
in one piece. Messages show addresses without secrets. fsspec finds the credentials.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ..errors import StoreError
from .extras import missing
from .progress import waiting

#: Supported schemes, and the package that fsspec needs for each.
SCHEMES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "https": "aiohttp",
    "http": "aiohttp",
    "hf": "huggingface_hub",
    "memory": "fsspec",
}
WEB = ("https", "http")
READ_ONLY = (*WEB, "hf")
#: Time limits in seconds: for a web server's connection, and for its answer or next bytes.
TIMEOUT = (10, 12)
#: Minimum number of bytes per second that a web server must send within the second time limit.
SLOWEST = 1000

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")
# The scheme must start at a word boundary; otherwise the search takes quadratic time for texts without one.
_IN_TEXT = re.compile(r"(?<![A-Za-z0-9+.-])" + _SCHEME.pattern + r"://[^\s'\"<>]+")


def redacted(text: str) -> str:
    """Return a text with the user, password and query removed from its addresses.

    Examples
    --------
    >>> redacted("no access to https://me:secret@host/t.parquet?signature=123")
    'no access to https://…@host/t.parquet?…'
    """
    return _IN_TEXT.sub(lambda match: _redacted_address(match[0]), text)


def _redacted_address(address: str) -> str:
    address, asks, _ = address.partition("?")
    return re.sub("://[^/]+@", "://…@", address) + ("?…" if asks else "")


def is_address(text: str) -> bool:
    """Return whether a text is an address, such as ``s3://bucket/table.parquet``."""
    return _SCHEME.match(text) is not None


def as_place(given: Given) -> Place:
    """Return a local or remote path for a path, address or ``file://`` address.

    Examples
    --------
    >>> as_place("s3://bucket/table.parquet").name
    'table.parquet'
    >>> as_place("ftp://host/t.npz")
    Traceback (most recent call last):
    ...
    ValueError: ftp://host/t.npz begins with ftp://; expected s3, gs, https, http, hf, memory or file.
    """
    if isinstance(given, RemotePath):
        return given
    text = os.fspath(given)
    match = _SCHEME.match(text)
    if match is None:
        if not isinstance(given, str) and text.startswith(tuple(f"{scheme}:/" for scheme in SCHEMES)):
            raise ValueError(f"pathlib removed a slash from the address {text}; pass it as a string.")
        return Path(given)
    scheme = match[0].lower()
    if scheme == "file":
        from urllib.request import url2pathname  # slow to import and seldom needed

        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{text} names another machine; a local address starts with file:///.")
        return Path(url2pathname(parts.path))
    if scheme not in SCHEMES:
        raise ValueError(f"{redacted(text)} begins with {scheme}://; expected {', '.join(SCHEMES)} or file.")
    return RemotePath(scheme + text[match.end() :].rstrip("/"))


@dataclass(frozen=True, repr=False)
class RemotePath:
    """The address of an object or folder in a store, or of a file on a web server.

    Parameters
    ----------
    _address : str
        The full address, including secrets; ``str`` and ``repr`` omit them.
    """

    _address: str

    def __str__(self) -> str:
        return _redacted_address(self._address)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    @property
    def scheme(self) -> str:
        """The scheme of the address, such as "s3"."""
        return self._address.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part of the address."""
        address = self._address.partition("?")[0] if self.scheme in WEB else self._address
        return address.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name, starting at the last dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.name).stem

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self._address}/{name}")  # only for stores: web servers have no folders

    def exists(self) -> bool:
        """Return whether an object or a folder with objects has this address."""
        return bool(self._info())

    def is_file(self) -> bool:
        """Return whether an object has this address."""
        return self._info().get("type") == "file"

    def is_dir(self) -> bool:
        """Return whether this is a folder with objects; False on a web server."""
        return self._info().get("type") == "directory"

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the objects and folders directly inside this folder."""
        with self._naming() as (store, path):
            names = [
                entry.rstrip("/").removeprefix(path).lstrip("/") for entry in store.ls(path, detail=False)
            ]
        yield from (self / name for name in names if name)

    def _info(self) -> dict[str, Any]:
        try:
            with self._naming() as (store, path):
                return dict(store.info(path))
        except FileNotFoundError:
            return {}

    def open(self, mode: str = "rb", buffering: int = 2**20) -> Any:
        """Open the object as a file; without buffering, only the ranges being read are downloaded."""
        with self._naming() as (store, path):
            if self.scheme == "memory":  # fsspec would give the same file object to all readers
                return io.BytesIO(store.cat_file(path))
            file = store.open(path, mode, cache_type="none")
        return io.BufferedReader(file, buffering) if buffering else file

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        with self._naming() as (store, path):
            return bytes(store.cat_file(path))

    def write_bytes(self, content: bytes, *, new: bool = False) -> None:
        """Write the object; with ``new``, raise if it exists (of several processes, one succeeds)."""
        with self._naming() as (store, path):
            store.pipe_file(path, content, mode="create" if new else "overwrite")

    def upload(self, file: Path, *, new: bool = False) -> None:
        """Upload a file as the object, in several parts if it is large."""
        if new and self.exists():
            raise FileExistsError(f"{self} already exists.")
        with self._naming() as (store, path):
            store.put_file(str(file), path, **({"mode": "create"} if new else {}))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        try:
            with self._naming() as (store, path):
                store.rm_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    @contextmanager
    def _naming(self) -> Iterator[tuple[Any, str]]:
        """Yield the store and the path inside it; errors name the address without its secrets."""
        store = self._store()
        try:
            with waiting(f"waiting for {self}", self.scheme in WEB):
                yield store, str(store._strip_protocol(self._address))
        except FileExistsError:
            raise FileExistsError(f"{self} already exists.") from None
        # Stores raise errors of any type, with addresses in their messages.
        except Exception as error:
            # For web servers, fsspec reports any problem as a missing file.
            reason = error.__cause__ if self.scheme in WEB and error.__cause__ else error
            if isinstance(reason, FileNotFoundError) or getattr(reason, "status", 0) in (404, 410):
                raise FileNotFoundError(f"Nothing found at {self}.") from None
            late = (
                "timed out waiting for an answer"
                if isinstance(reason, TimeoutError)
                else type(reason).__name__
            )
            raise StoreError(f"{self}: {redacted(str(reason)) or late}") from None

    def _store(self) -> Any:
        # fsspec caches store objects. Its cached listings would go out of date through other processes.
        options: dict[str, Any] = {"use_listings_cache": False}
        try:
            import fsspec

            if self.scheme in WEB:
                import aiohttp

                timeout = aiohttp.ClientTimeout(None, sock_connect=TIMEOUT[0], sock_read=TIMEOUT[1])
                options["client_kwargs"] = {
                    "trust_env": True,
                    "timeout": timeout,
                    "response_class": _steady_response(),
                }
            return fsspec.filesystem(self.scheme, **options)
        except ImportError:
            raise missing(f"{self.scheme}://", *dict.fromkeys(["fsspec", SCHEMES[self.scheme]])) from None


@cache
def _steady_response() -> Any:
    """Return a class of web responses that raises an error if the data arrive too slowly."""
    import asyncio

    import aiohttp

    class Steady(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> Any:
            async with asyncio.timeout(TIMEOUT[1]):
                return await super().start(connection)

        async def read(self) -> bytes:
            reading, received = asyncio.ensure_future(super().read()), 0
            while not (await asyncio.wait({reading}, timeout=TIMEOUT[1]))[0]:
                before, received = received, self.content.total_bytes
                if received - before < SLOWEST * TIMEOUT[1]:
                    reading.cancel()
                    raise TimeoutError(
                        f"it sent only {received - before} bytes in {TIMEOUT[1]} s, which is too slow."
                    )
            return await reading

    return Steady


#: A resolved location, and the forms in which users may give one.
Place: TypeAlias = Path | RemotePath
Given: TypeAlias = str | os.PathLike[str] | RemotePath
