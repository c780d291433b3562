"""Fetch one file over HTTP: checked, resumed where it broke off, and in place only when it is whole.

What has arrived lies in ``<name>.part`` beside the target. The next run asks the server for the rest (HTTP
Range), the checksum decides, and a rename puts the file in its place; so a name always holds a whole file.
"""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urljoin

from ..._common.extras import missing
from ..._common.files import NO_SPACE, require_replaceable
from ...errors import DownloadError, printable

TIMEOUT = 60  # seconds without a byte
ATTEMPTS = 5  # connections for one file, each going on where the last one broke off


def download_file(
    url: str,
    path: str | os.PathLike[str],
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    verbose: bool = False,
) -> Path:
    """Fetch a file, unless it is there already, and return its path.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``.
    path : path
        Where to put it; folders are made. A file that is there and right is kept as it is, one with another
        checksum or size is replaced once the new one has arrived.
    sha256, md5 : str or None
        Checksums of the whole file. Without one a broken download starts over: nothing could tell whether
        its pieces belong together.
    size : int or None
        Bytes.
    verbose : bool
        Show a line on stderr.

    Raises
    ------
    DownloadError
        Not found, no connection, no space, or not the file that was promised. A wrong file is removed; an
        incomplete one stays as ``<name>.part`` for the next run.

    Examples
    --------
    >>> download_file("ftp://a.org/x", "x")
    Traceback (most recent call last):
    ...
    ValueError: 'ftp://a.org/x' is not an address to download from; it must begin with http(s)://.
    """
    if not re.match(r"https?://.", str(url)):
        raise ValueError(f"{url!r} is not an address to download from; it must begin with http(s)://.")
    expected = _Expected(
        _checksum(sha256, "sha256", 64), _checksum(md5, "md5", 32), None if size is None else int(size)
    )
    target = Path(path)
    require_replaceable(target)
    if target.is_dir():
        raise DownloadError(f"{target} is a folder; name the file to write.")
    if target.is_file() and expected.mismatch(target) is None:
        return target
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(part):
            # Whoever was at it before may have finished.
            if target.is_file() and expected.sums and expected.mismatch(target) is None:
                part.unlink(missing_ok=True)
                return target
            _receive(url, part, expected, verbose)
            problem = expected.mismatch(part)
            if problem is not None:
                raise _NotExpected(problem)
            os.replace(part, target)
    except _NotExpected as problem:
        part.unlink(missing_ok=True)
        raise DownloadError(
            f"{url} is not the file that was expected: {problem}. It was removed; try again, and if it stays "
            "so, the file on the server has changed."
        ) from None
    except OSError as error:
        if error.errno in NO_SPACE:
            raise DownloadError(
                f"No space is left in {target.parent} for {target.name}; make room and run it again: it "
                "goes on where it was."
            ) from None
        raise
    return target


@contextmanager
def _alone(part: Path) -> Iterator[None]:
    """Keep other processes from the same download meanwhile; their pieces would be mixed up with ours."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(part, "ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DownloadError(
                f"Another process is fetching {part.name.removesuffix('.part')}; wait until it is done."
            ) from None
        except OSError:
            pass  # some network file systems have no locks
        yield


class _NotExpected(Exception):
    """What is wrong with a file that is arriving, or has arrived."""


class _Expected:
    """What is known about a file before it is here."""

    def __init__(self, sha256: str | None, md5: str | None, size: int | None) -> None:
        self.sums = {name: value for name, value in (("sha256", sha256), ("md5", md5)) if value is not None}
        self.size = size

    def mismatch(self, path: Path) -> str | None:
        """Return what is wrong with a file, or None."""
        pooch = require_pooch()
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"it has {size} bytes instead of {self.size}"
        for name, value in self.sums.items():
            checksum = pooch.file_hash(str(path), alg=name)
            if checksum != value:
                return f"its {name} is {checksum} instead of {value}"
        return None


def require_pooch() -> Any:
    """Return pooch, or say how to install it."""
    try:
        import pooch
    except ImportError:
        raise missing("A download", "pooch") from None
    return pooch


def _checksum(value: str | None, name: str, length: int) -> str | None:
    if value is None:
        return None
    text = value.lower().removeprefix(f"{name}:")
    if not re.fullmatch(f"[0-9a-f]{{{length}}}", text):
        raise ValueError(f"{name} must be {length} hexadecimal digits; got {value!r}.")
    return text


def _receive(url: str, part: Path, expected: _Expected, verbose: bool) -> None:
    """Fill ``part`` with what the server has, going on after a lost connection as long as bytes arrive."""
    require_pooch()
    import requests

    lost = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    if part.exists() and (not expected.sums or part.stat().st_size > (expected.size or sys.maxsize)):
        os.truncate(part, 0)
    for attempt in range(1, ATTEMPTS + 1):
        before = part.stat().st_size if part.exists() else 0
        if before and before == expected.size:
            return
        try:
            with open(part, "ab") as stream:
                _request(url, _UpTo(stream, expected.size), before, verbose)
            return
        except requests.RequestException as error:
            arrived = part.stat().st_size > before
            if isinstance(error, lost) and arrived and expected.sums and attempt < ATTEMPTS:
                continue
            if not part.stat().st_size:
                part.unlink()
            raise DownloadError(explain(url, error)) from None


class _UpTo:
    """A stream that takes so many bytes, and not one more."""

    def __init__(self, stream: BinaryIO, size: int | None) -> None:
        self.name, self.flush, self._stream, self._size = stream.name, stream.flush, stream, size

    def write(self, content: bytes) -> None:
        """Write bytes, unless they are more than were promised."""
        there = self._stream.tell() + len(content)
        if self._size is not None and there > self._size:
            raise _NotExpected(f"it has {there} bytes or more instead of {self._size}")
        self._stream.write(content)

    def start_over(self) -> None:
        """Forget what was written."""
        self._stream.truncate(0)
        self._stream.seek(0)


def _request(url: str, stream: _UpTo, start: int, verbose: bool) -> None:
    """Append what follows ``start`` to the stream, by pooch's downloader."""
    pooch = require_pooch()
    import requests

    # Compressed on the way, positions would not be those in the file.
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    line = _Line(Path(stream.name).name.removesuffix(".part"), start) if verbose else None

    def look(response: Any, *_: Any, **__: Any) -> None:
        if start and response.status_code == 200:
            warnings.warn(f"{url}: the server cannot resume; starting over.", stacklevel=2)
            stream.start_over()
            if line is not None:
                line.start = 0

    download_rest = pooch.HTTPDownloader(
        progressbar=line or False,
        chunk_size=2**16,
        timeout=TIMEOUT,
        headers=headers,
        hooks={"response": [refuse_redirect, look]},
    )
    try:
        download_rest(url, stream, None)
    except requests.HTTPError as error:
        # "Range not satisfiable": nothing follows, and the checksum will judge what is there.
        if not (start and error.response is not None and error.response.status_code == 416):
            raise
    finally:
        if line is not None:
            line.end()


def refuse_redirect(response: Any, *_: Any, **__: Any) -> None:
    """Raise if an answer leads elsewhere than to http(s), or from https back to http."""
    if not response.is_redirect:
        return
    target = urljoin(response.url, response.headers["location"])
    if not target.startswith("https://" if response.url.startswith("https://") else ("http://", "https://")):
        raise DownloadError(
            f"{response.url} leads to {target!r}; from there nothing is fetched, as it is not "
            f"{'https' if response.url.startswith('https://') else 'http(s)'}."
        )


def explain(url: str, error: Any) -> str:
    """Return what an error of :mod:`requests` means, and what to do about it."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        code = error.response.status_code
        advice = {
            401: "it wants a login; download it by hand",
            403: "it does not allow this; download it by hand",
            404: "there is no such file; check the address",
            429: "too many requests; try again later",
        }
        return f"{url}: the server answered {code}: {advice.get(code, 'try again later')}."
    if isinstance(error, requests.Timeout):
        return f"{url}: no answer within {TIMEOUT} s; try again, it goes on where it was."
    if isinstance(error, requests.exceptions.ConnectionError) and "refused" in str(error).lower():
        return f"{url}: the connection was refused; check the address, your network and proxy."
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)):
        return f"{url}: this is not a valid address."
    return f"{url}: the connection failed ({type(error).__name__}); check your network and run it again."


class _Line:
    """A progress line as pooch wants it: ``total`` is set, ``update`` counts, ``close`` ends it."""

    def __init__(self, name: str, start: int) -> None:
        self.name, self.start, self.done, self.total = printable(name), start, 0, 0
        self._begun = self._shown = time.monotonic()

    def update(self, n_bytes: int) -> None:
        """Count bytes, and show them twice a second."""
        self.done += n_bytes
        now = time.monotonic()
        if now - self._shown > 0.5:
            self._shown = now
            self._write(now)

    def _write(self, now: float) -> None:
        here, whole = self.start + self.done, self.start + self.total
        speed = self.done / max(now - self._begun, 1e-9)
        share = f" of {whole / 1e6:.1f} MB ({here / whole:.0%})" if self.total else " MB"
        left = f", {max(self.total - self.done, 0) / speed:.0f} s left" if self.total and speed else ""
        sys.stderr.write(f"\r{self.name} {here / 1e6:.1f}{share}, {speed / 1e6:.1f} MB/s{left}    ")
        sys.stderr.flush()

    def reset(self) -> None:
        """Forget the count: pooch gives the exact number at the end."""
        self.done = 0

    def close(self) -> None:
        """Leave the line open: it ends with the connection, whole or not."""

    def end(self) -> None:
        """Show the last count and end the line."""
        self._write(time.monotonic())
        sys.stderr.write("\n")
