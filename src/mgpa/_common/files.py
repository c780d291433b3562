"""Writing files so that, whatever happens meanwhile, a path holds a complete file or its old content."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import TypeVar

from .remote import Place, RemotePath, remove_all

AnyPlace = TypeVar("AnyPlace", bound=Place)

#: Errors of a full disk, or of a limit on what may be stored.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Unfinished files tell whose they are; processes of other machines can share a folder, unseen from here.
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_UNFINISHED = re.compile(r"\.mgpa-(?P<host>[0-9a-f]{8})-(?P<process>\d{1,9})-[0-9a-f]{16}\.tmp")
_ASIDE = re.compile(r"\.(?P<target>.+)\.mgpa-(?P<host>[0-9a-f]{8})-(?P<process>\d{1,9})-[0-9a-f]{16}\.old")


def write_atomically(path: AnyPlace, content: bytes) -> AnyPlace:
    """Write ``content`` to ``path`` by way of a file beside it; an object of a store is written at once."""
    if isinstance(path, RemotePath):
        path.write_bytes(content)
        return path
    with replacing(path) as temporary, open(temporary, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return path


@contextmanager
def replacing(path: Place, *, even_folder: bool = False) -> Iterator[Path]:
    """Yield a path beside ``path`` for a new file or folder, which takes its place unless there is an error.

    A folder that is there already is an error too, unless ``even_folder`` says to replace it. What killed
    processes left in the folder is cleared away. What shall be an object of a store is a file on this machine
    meanwhile, and no folder.
    """
    if isinstance(path, RemotePath):
        with scratch_folder() as folder:
            temporary = folder / path.name
            yield temporary
            replaced = path.files().values() if even_folder and path.is_dir() else ()
            path.upload(temporary)
            remove_all(replaced)
        return
    require_replaceable(path)
    clear_leftovers(path.parent)
    # Beside the target, because a rename is atomic only within one file system. A plain open() gives the
    # permissions of any new file, where the tempfile module would make it private.
    temporary = path.with_name(f".{_signature()}.tmp")
    try:
        yield temporary
        put_in_place(temporary, path, even_folder=even_folder)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise OSError(
                error.errno, f"{os.strerror(error.errno)}; nothing was replaced", str(path)
            ) from None
        raise
    finally:
        remove(temporary)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder that nobody else may read, and remove it after use; and those of killed processes."""
    place = Path(tempfile.gettempdir())
    clear_leftovers(place)
    folder = place / f".{_signature()}.tmp"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove(folder)


def put_in_place(new: Path, path: Path, *, even_folder: bool = False) -> None:
    """Rename ``new`` to ``path``. ``even_folder``: a folder there is moved aside, and removed last."""
    if not (even_folder and path.exists() and (path.is_dir() or new.is_dir())):
        os.replace(new, path)
        return
    old = path.with_name(f".{path.name}.{_signature()}.old")
    os.rename(path, old)
    try:
        os.rename(new, path)
    except BaseException:
        os.rename(old, path)
        raise
    remove(old)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def clear_leftovers(folder: Path) -> None:
    """Remove what writers that were killed left in a folder; put back what they had only moved aside."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith((".tmp", ".old"))]
    for name in names:
        match = _UNFINISHED.fullmatch(name) or _ASIDE.fullmatch(name)
        if match is None or match["host"] != _HOST or _is_running(int(match["process"])):
            continue
        target = folder / match["target"] if name.endswith(".old") else None
        with suppress(OSError):  # another writer may be at it, too
            if target is None or os.path.lexists(target):
                remove(folder / name)
            else:
                os.rename(folder / name, target)


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


def size_of(path: Place) -> int:
    """Return how many bytes a file or an object has."""
    return path.size if isinstance(path, RemotePath) else path.stat().st_size


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
        given = _resolved(path)
        same = place == given
        if isinstance(place, Path) and isinstance(given, Path) and place.exists() and given.exists():
            same = place.samefile(given)
        if same:
            raise ValueError(f"{output} is what is read; name another output, lest it be lost.")
        if given in place.parents:
            raise ValueError(f"{output} lies in {path}, which is read; name another output.")
        if place in given.parents:
            raise ValueError(f"{output} holds {path}, which is read; name another output, lest it be lost.")


def _resolved(path: Place) -> PurePath:
    """Return a path without links; an address as a path of its own kind, which is none on this machine."""
    return PurePosixPath(str(path)) if isinstance(path, RemotePath) else Path(os.path.realpath(path))


def _signature() -> str:
    return f"mgpa-{_HOST}-{os.getpid()}-{secrets.token_hex(8)}"


def _is_running(process: int) -> bool:
    if os.name != "posix":  # elsewhere, asking would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's
    return True
