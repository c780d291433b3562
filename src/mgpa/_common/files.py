"""Writing files so that, whatever happens meanwhile, a path holds a complete file or its old content."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import TypeVar

from ..errors import OutputExists
from .remote import Place, RemotePath

AnyPlace = TypeVar("AnyPlace", bound=Place)

#: Errors of a full disk, or of a limit on what may be stored.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Seconds without a write after which an unfinished file is taken for a killed process's.
ABANDONED_AFTER = 24 * 3600
_UNFINISHED = re.compile(r"\.mgpa-[0-9a-f]{16}\.tmp")


def write_atomically(path: AnyPlace, content: bytes, *, new: bool = False) -> AnyPlace:
    """Write ``content`` to ``path`` by way of a file beside it; an object of a store is written at once.

    ``new``: only if there is nothing, not even what another process put there meanwhile.
    """
    if isinstance(path, RemotePath):
        path.write_bytes(content, new=new)
        return path
    with replacing(path, new=new) as temporary, open(temporary, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return path


@contextmanager
def replacing(path: Place, *, new: bool = False) -> Iterator[Path]:
    """Yield a path beside ``path`` for a new file, which takes its place unless there is an error.

    ``new``: only if nothing is in its place by then. What killed processes left in the folder long ago is
    cleared away. An object of a store is a file on this machine meanwhile.
    """
    if isinstance(path, RemotePath):
        with scratch_folder() as folder:
            yield folder / path.name
            path.upload(folder / path.name, new=new)
        return
    require_replaceable(path)
    clear_abandoned(path.parent)
    # Beside the target, because a rename is atomic only within one file system. A plain open() gives the
    # permissions of any new file, where the tempfile module would make it private.
    temporary = path.with_name(_unfinished())
    try:
        yield temporary
        if new:
            _rename_if_free(temporary, path)
        else:
            os.replace(temporary, path)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise OSError(
                error.errno, f"{os.strerror(error.errno)}; nothing was replaced", str(path)
            ) from None
        raise
    finally:
        _remove(temporary)


def _rename_if_free(new: Path, path: Path) -> None:
    """Rename a file unless something has the name: a link, unlike a rename, replaces nothing."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise OutputExists(path) from None
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise OutputExists(path) from None
        os.rename(new, path)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a private folder, and remove it after use."""
    place = Path(tempfile.gettempdir())
    clear_abandoned(place)
    folder = place / _unfinished()
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        _remove(folder)


def clear_abandoned(folder: Path) -> None:
    """Remove unfinished files that were not written to for a day: their writers were killed."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if _UNFINISHED.fullmatch(entry.name)]
    for name in names:
        with suppress(OSError):  # another process may be at it, too
            if time.time() - (folder / name).stat().st_mtime > ABANDONED_AFTER:
                _remove(folder / name)


def _unfinished() -> str:
    return f".mgpa-{secrets.token_hex(8)}.tmp"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def special_kind(path: Place) -> str | None:
    """Return what a path is, in words, if it is neither a file nor a folder nor missing; links are followed.

    Examples
    --------
    >>> special_kind(Path("/dev/null"))
    'a device'
    >>> special_kind(Path("/dev"))
    """
    if isinstance(path, RemotePath):
        return None
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def lies_there(path: Place) -> bool:
    """Return whether there is anything of this name, even a link that leads nowhere."""
    return path.exists() if isinstance(path, RemotePath) else os.path.lexists(path)


def require_replaceable(path: Place) -> None:
    """Raise if writing to ``path`` would replace a device, a pipe or a socket, or can never succeed."""
    if isinstance(path, RemotePath):
        path.require_writable()
        return
    kind = special_kind(path)
    if kind is not None:
        raise FileExistsError(f"{path} is {kind}, which a file would replace; name another output.")
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise PermissionError(f"You may not write to the folder {path.parent}; name another output.")


def require_distinct_paths(output: Place, *inputs: Place) -> None:
    """Raise if ``output`` is one of the inputs, lies in one, or one lies in it; links are followed.

    Examples
    --------
    >>> require_distinct_paths(Path("corrected.parquet"), Path("recordings.parquet"))
    >>> require_distinct_paths(Path("recordings/corrected.parquet"), Path("recordings"))
    Traceback (most recent call last):
    ...
    ValueError: recordings/corrected.parquet lies in recordings, which is read; name another output.
    """
    place = _resolved(output)
    for path in inputs:
        read = _resolved(path)
        same = place == read
        if isinstance(place, Path) and isinstance(read, Path) and place.exists() and read.exists():
            same = place.samefile(read)
        if same:
            raise ValueError(f"{output} is what is read; name another output.")
        if read in place.parents:
            raise ValueError(f"{output} lies in {path}, which is read; name another output.")
        if place in read.parents:
            raise ValueError(f"{output} holds {path}, which is read; name another output.")


def _resolved(path: Place) -> PurePath:
    """Return a path without links; an address as a path of its own kind."""
    return PurePosixPath(str(path)) if isinstance(path, RemotePath) else Path(os.path.realpath(path))
