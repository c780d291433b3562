"""Remote paths: objects of stores and files of web servers, through fsspec.

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
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ..errors import StoreError
from .extras import missing
from .progress import waiting

#: What an address may begin with, and the package that fsspec needs for it.
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
#: Seconds until a web server must accept a connection, and until it must answer or send the next bytes.
TIMEOUT = (10, 12)
#: In every such time it must send at least as many bytes for each second.
SLOWEST = 1000

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")
# A scheme begins where a word does: else a text without one takes time as the square of its length.
_IN_TEXT = re.compile(r"(?<![A-Za-z0-9+.-])" + _SCHEME.pattern + r"://[^\s'\"<>]+")


def redacted(text: str) -> str:
    """Return a text without the secrets of its addresses: user, password and query.

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
    """Return a path on this machine, or a remote path; ``file://`` is on this machine.

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
        from urllib.request import url2pathname  # loads much, and is seldom needed

        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{text} names another machine; a local address is file:/// with three slashes.")
        return Path(url2pathname(parts.path))
    if scheme not in SCHEMES:
        raise ValueError(f"{redacted(text)} begins with {scheme}://; expected {', '.join(SCHEMES)} or file.")
    return RemotePath(scheme + text[match.end() :].rstrip("/"))


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
        """The scheme of the address, such as "s3"."""
        return self._address.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part of the address."""
        address = self._address.partition("?")[0] if self.scheme in WEB else self._address
        return address.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name, from the last dot on."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.name).stem

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self._address}/{name}")  # never of the web: it has no folders

    def exists(self) -> bool:
        """Return whether there is an object of this name, or one inside a folder of this name."""
        return bool(self._info())

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        return self._info().get("type") == "file"

    def is_dir(self) -> bool:
        """Return whether a folder of this name has objects; False on a web server."""
        return self._info().get("type") == "directory"

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the objects and folders directly inside."""
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
        """Return the object as a file; without buffering, only the ranges that are read are fetched."""
        with self._naming() as (store, path):
            if self.scheme == "memory":  # fsspec would hand out one and the same file to all readers
                return io.BytesIO(store.cat_file(path))
            file = store.open(path, mode, cache_type="none")
        return io.BufferedReader(file, buffering) if buffering else file

    def read_bytes(self) -> bytes:
        """Return the object's bytes."""
        with self._naming() as (store, path):
            return bytes(store.cat_file(path))

    def write_bytes(self, content: bytes, *, new: bool = False) -> None:
        """Write the object; with ``new``, only if it does not exist (one of several processes succeeds)."""
        with self._naming() as (store, path):
            store.pipe_file(path, content, mode="create" if new else "overwrite")

    def upload(self, file: Path, *, new: bool = False) -> None:
        """Write the object from a file, in several parts if it is large."""
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
        """Yield the store and the path in it; an error names the address, and none of its secrets."""
        store = self._store()
        try:
            with waiting(f"waiting for {self}", self.scheme in WEB):
                yield store, str(store._strip_protocol(self._address))
        except FileExistsError:
            raise FileExistsError(f"{self} already exists.") from None
        # Stores have errors of their own, of any kind, and with addresses in them.
        except Exception as error:
            # Of a web server, fsspec calls whatever goes wrong a missing file.
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
        # fsspec keeps one of a kind; it would also keep listings, which other processes make out of date.
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
    """Return an answer of a web server that ends with an error if it comes in drips."""
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
                        f"it sent {received - before} bytes in {TIMEOUT[1]} s, too few to wait."
                    )
            return await reading

    return Steady


#: Where something is or shall be, and what people may call it.
Place: TypeAlias = Path | RemotePath
Given: TypeAlias = str | os.PathLike[str] | RemotePath
