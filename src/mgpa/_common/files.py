"""Writing files: a path holds a complete file or its old content, and only our own files are replaced."""

from __future__ import annotations

import csv
import difflib
import errno
import io
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeVar

from ..errors import OutputExists, StoreError
from .remote import READ_ONLY, Place, RemotePath

AnyPlace = TypeVar("AnyPlace", bound=Place)

#: Errors of a full disk, or of a limit on what may be stored.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Seconds without a write after which an unfinished file is taken for a killed process's.
ABANDONED_AFTER = 24 * 3600
#: Lists, one a line, the files that mgpa wrote into the folder it is in.
MARKER = ".mgpa-files"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_UNFINISHED = re.compile(r"\.mgpa-[0-9a-f]{16}\.tmp")


def write_atomically(path: AnyPlace, content: bytes, *, new: bool = False) -> AnyPlace:
    """Write ``content`` to a temporary file, then rename it to ``path``; remote objects are written at once.

    ``new``: only if there is nothing, not even what another process put there meanwhile.
    """
    if isinstance(path, RemotePath):
        path.write_bytes(content, new=new)
        return path
    with replacing(path, new=new) as temporary:
        temporary.write_bytes(content)
    return path


@contextmanager
def replacing(path: Place, *, new: bool = False) -> Iterator[Path]:
    """Yield a temporary path; its file replaces ``path`` unless there is an error.

    ``new``: only if nothing is in its place by then. Old leftovers of killed processes in the folder are
    removed. An object of a store is a file on this machine meanwhile.
    """
    if isinstance(path, RemotePath):
        with tempfile.TemporaryDirectory(prefix="mgpa-") as folder:
            yield Path(folder, path.name)
            path.upload(Path(folder, path.name), new=new)
        return
    require_replaceable(path)
    clear_abandoned(path.parent)
    # Beside the target, because a rename is atomic only within one file system. A plain open() gives the
    # permissions of any new file, where the tempfile module would make it private.
    temporary = path.with_name(f".mgpa-{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        with open(temporary, "r+b") as stream:
            os.fsync(stream.fileno())
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
        temporary.unlink(missing_ok=True)


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


def clear_abandoned(folder: Path) -> None:
    """Remove unfinished files that were not written to for a day: their writers were killed."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if _UNFINISHED.fullmatch(entry.name)]
    for name in names:
        with suppress(OSError):  # another process may be at it, too
            if time.time() - (folder / name).stat().st_mtime > ABANDONED_AFTER:
                (folder / name).unlink()


def special_kind(path: Place) -> str | None:
    """Return the kind of a path that is neither a file nor a folder, in words; else None."""
    if isinstance(path, RemotePath) or path.is_file() or path.is_dir() or not path.exists():
        return None
    return "a device, pipe or socket"


def no_such_file(path: Place) -> FileNotFoundError:
    """Return the error of a path that does not exist, with the name beside it that is most like it."""
    folder = path.parent if isinstance(path, Path) else None
    beside = os.listdir(folder) if folder is not None and folder.is_dir() else []
    near = [str(folder / name) for name in difflib.get_close_matches(path.name, beside, n=1) if folder]
    hint = f" Did you mean {near[0]}?" if near else ""
    return FileNotFoundError(f"No file or folder {path}.{hint}")


def path_taken(path: Place) -> bool:
    """Return whether anything has this path, even a broken link."""
    return path.exists() if isinstance(path, RemotePath) else os.path.lexists(path)


def require_replaceable(path: Place) -> None:
    """Raise if writing to ``path`` would replace a device, a pipe or a socket, or can never succeed."""
    if isinstance(path, RemotePath):
        if path.scheme in READ_ONLY:
            raise StoreError(f"{path}: {path.scheme}:// is read only; write to s3://, gs:// or a file.")
        return
    if kind := special_kind(path):
        raise FileExistsError(f"{path} is {kind} and must not be replaced; name another output.")
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise PermissionError(f"You may not write to the folder {path.parent}; name another output.")


def require_distinct_paths(output: Place, *inputs: Place) -> None:
    """Raise if ``output`` and an input overlap: equal, or one inside the other; links are followed.

    Examples
    --------
    >>> require_distinct_paths(Path("corrected.parquet"), Path("recordings.parquet"))
    >>> require_distinct_paths(Path("recordings/corrected.parquet"), Path("recordings"))
    Traceback (most recent call last):
    ...
    ValueError: The output recordings/corrected.parquet overlaps the input recordings; name another output.
    """
    place = _resolved(output)
    for path in inputs:
        read = _resolved(path)
        linked = isinstance(place, Path) and isinstance(read, Path) and place.exists() and read.exists()
        same = place.samefile(read) if linked else place == read  # type: ignore[attr-defined]
        if same or read in place.parents or place in read.parents:
            raise ValueError(f"The output {output} overlaps the input {path}; name another output.")


def _resolved(path: Place) -> PurePath:
    """Return a path without links; an address as a path of its own kind."""
    return PurePosixPath(str(path)) if isinstance(path, RemotePath) else Path(os.path.realpath(path))


def claim(folder: str | os.PathLike[str], *names: str) -> list[Path]:
    """Return paths of files to write into a folder; raise unless it is new, empty or written by mgpa.

    Every name is put on the list of our files (``.mgpa-files``) before its file is written, so a run that is
    killed can be repeated. Several processes may add to one list. The folder, and those in the names (with
    "/" between them), are created; without names the folder is only checked.
    """
    folder = Path(folder)
    listed = _listed(folder)
    if not names:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    root, paths = folder.resolve(), []
    for name in names:
        path = folder / name
        if path.is_symlink() or not path.parent.resolve().is_relative_to(root):
            raise FileExistsError(
                f"{path} is outside the output folder, by its name or a link; name another folder."
            )
        if name not in listed and path.exists():
            raise FileExistsError(f"{path} was not written by mgpa; move it, or name another output folder.")
        paths.append(path)
    if added := [name for name in dict.fromkeys(names) if name not in listed]:
        with open(folder / MARKER, "a", encoding="utf-8") as marker:
            marker.write("".join(f"{name}\n" for name in added))
            marker.flush()
            os.fsync(marker.fileno())
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    return paths


def _listed(folder: Path) -> set[str]:
    """Return the names on a folder's list; raise if mgpa did not write the folder."""
    marker = folder / MARKER
    if marker.is_file() and not marker.is_symlink():
        return set(marker.read_text(encoding="utf-8").splitlines())
    if os.path.lexists(folder) and not folder.is_dir():
        raise FileExistsError(f"{folder} is not a folder; name another output folder.")
    # A folder that holds nothing but folders of ours is ours; one is empty before its list is written.
    names = os.listdir(folder) if folder.is_dir() else []
    if others := [name for name in names if not _is_ours(folder / name)]:
        raise FileExistsError(
            f"The folder {folder} holds files that mgpa did not write ({min(others)}); name another one."
        )
    return set()


def _is_ours(path: Path) -> bool:
    """Return whether a path is a folder with a list of our files, or an empty one."""
    return (path / MARKER).is_file() or (path.is_dir() and not path.is_symlink() and not os.listdir(path))


def csv_cell(value: Any) -> Any:
    """Return the text of a cell; what a spreadsheet would run as a formula gets a quote.

    Numbers, and texts that are numbers, stay as they are.

    Examples
    --------
    >>> csv_cell("=HYPERLINK(1)"), csv_cell("-1.5"), csv_cell(-1.5), csv_cell("leace")
    ("'=HYPERLINK(1)", '-1.5', -1.5, 'leace')
    """
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value if value.strip() == value else f"'{value}"


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV: None is empty, and no text is a formula."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        writer.writerow([csv_cell(value) for value in row])
    return stream.getvalue()
