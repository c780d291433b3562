"""Writing files so that, whatever happens meanwhile, a path holds a complete file or its old content."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> Path:
    """Write ``content`` to ``path`` by way of a file beside it."""
    with replacing(path) as temporary, open(temporary, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return path


@contextmanager
def replacing(path: Path, *, even_folder: bool = False) -> Iterator[Path]:
    """Yield a path beside ``path`` for a new file or folder, which takes its place unless there is an error.

    A folder that is there already is an error too, unless ``even_folder`` says to replace it.
    """
    # Beside the target, because a rename is atomic only within one file system. A plain open() gives the
    # permissions of any new file, where the tempfile module would make it private.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        put_in_place(temporary, path, even_folder=even_folder)
    finally:
        remove(temporary)


def put_in_place(new: Path, path: Path, *, even_folder: bool = False) -> None:
    """Rename ``new`` to ``path``. ``even_folder``: a folder there is moved aside, and removed last."""
    if not (even_folder and path.exists() and (path.is_dir() or new.is_dir())):
        os.replace(new, path)
        return
    old = path.with_name(f".{secrets.token_hex(8)}.old")
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
