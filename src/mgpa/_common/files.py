"""Write files atomically, and replace only files written by mgpa."""

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

#: Error numbers of a full disk or an exceeded quota.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Age in seconds (since the last write) beyond which an unfinished file counts as abandoned.
ABANDONED_AFTER = 24 * 3600
#: Name of the file that lists, one per line, the files that mgpa wrote into its folder.
MARKER = ".mgpa-files"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_UNFINISHED = re.compile(r"\.mgpa-[0-9a-f]{16}\.tmp")


def write_atomically(path: AnyPlace, content: bytes, *, new: bool = False) -> AnyPlace:
    """Write ``content`` to a temporary file, then rename it to ``path``; write remote objects directly.

    With ``new``, raise if ``path`` exists, even if another process created it in the meantime.
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

    With ``new``, raise if ``path`` exists at the end. Abandoned temporary files in the folder are removed.
    Remote objects are written to a local file first.
    """
    if isinstance(path, RemotePath):
        with tempfile.TemporaryDirectory(prefix="mgpa-") as folder:
            yield Path(folder, path.name)
            path.upload(Path(folder, path.name), new=new)
        return
    require_replaceable(path)
    clear_abandoned(path.parent)
    # In the target's folder, because a rename is atomic only within one file system. A plain open() gives
    # normal permissions; the tempfile module would make the file private.
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
    """Rename a file; raise if the new name exists. This uses a link, which never replaces a file."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise OutputExists(path) from None
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise OutputExists(path) from None
        os.rename(new, path)


def clear_abandoned(folder: Path) -> None:
    """Remove unfinished files without a write for a day; the processes that wrote them were killed."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if _UNFINISHED.fullmatch(entry.name)]
    for name in names:
        with suppress(OSError):  # another process may be removing the same file
            if time.time() - (folder / name).stat().st_mtime > ABANDONED_AFTER:
                (folder / name).unlink()


def special_kind(path: Place) -> str | None:
    """Return the kind of a special path (device, pipe or socket) in words; None for files and folders."""
    if isinstance(path, RemotePath) or path.is_file() or path.is_dir() or not path.exists():
        return None
    return "a device, pipe or socket"


def no_such_file(path: Place) -> FileNotFoundError:
    """Return the error for a missing path, with the most similar name in its folder as a suggestion."""
    folder = path.parent if isinstance(path, Path) else None
    beside = os.listdir(folder) if folder is not None and folder.is_dir() else []
    near = [str(folder / name) for name in difflib.get_close_matches(path.name, beside, n=1) if folder]
    hint = f" Did you mean {near[0]}?" if near else ""
    return FileNotFoundError(f"No file or folder {path}.{hint}")


def path_taken(path: Place) -> bool:
    """Return whether a path exists; broken links count."""
    return path.exists() if isinstance(path, RemotePath) else os.path.lexists(path)


def require_replaceable(path: Place) -> None:
    """Raise if ``path`` is a device, pipe or socket, or cannot be written."""
    if isinstance(path, RemotePath):
        if path.scheme in READ_ONLY:
            raise StoreError(f"{path}: {path.scheme}:// is read only; write to s3://, gs:// or a file.")
        return
    if kind := special_kind(path):
        raise FileExistsError(f"{path} is {kind} and must not be replaced; name another output.")
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise PermissionError(f"You may not write to the folder {path.parent}; name another output.")


def require_distinct_paths(output: Place, *inputs: Place) -> None:
    """Raise if ``output`` equals an input, contains one, or lies inside one; links are followed.

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
    """Return a local path with links resolved, or the path of a remote address."""
    return PurePosixPath(str(path)) if isinstance(path, RemotePath) else Path(os.path.realpath(path))


def claim(folder: str | os.PathLike[str], *names: str) -> list[Path]:
    """Return the paths of files to write into a folder; raise unless it is new, empty or written by mgpa.

    Each name is added to the list of mgpa's files (``.mgpa-files``) before the file is written, so that an
    interrupted run can be repeated. Several processes may add to one list. The folder and the subfolders in
    the names are created; without names, the folder is only checked.
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
    """Return the names on the file list of a folder; raise if mgpa did not write the folder."""
    marker = folder / MARKER
    if marker.is_file() and not marker.is_symlink():
        return set(marker.read_text(encoding="utf-8").splitlines())
    if os.path.lexists(folder) and not folder.is_dir():
        raise FileExistsError(f"{folder} is not a folder; name another output folder.")
    # A folder with only mgpa's subfolders is mgpa's; a subfolder is empty until its list is written.
    names = os.listdir(folder) if folder.is_dir() else []
    if others := [name for name in names if not _is_ours(folder / name)]:
        raise FileExistsError(
            f"The folder {folder} holds files that mgpa did not write ({min(others)}); name another one."
        )
    return set()


def _is_ours(path: Path) -> bool:
    """Return whether a path is an empty folder or one with a list of mgpa's files."""
    return (path / MARKER).is_file() or (path.is_dir() and not path.is_symlink() and not os.listdir(path))


def csv_cell(value: Any) -> Any:
    """Return the value of a CSV cell, with a quote before text that a spreadsheet would run as a formula.

    Numbers, and texts that are numbers, are unchanged.

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
    """Return rows as CSV text; None becomes an empty cell, and formulas are quoted."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        writer.writerow([csv_cell(value) for value in row])
    return stream.getvalue()
