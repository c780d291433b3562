"""Writing files so that, whatever happens meanwhile, a path holds a complete file or its old content."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> Path:
    """Write ``content`` to ``path`` by way of a file beside it."""
    # Beside the target, because a rename is atomic only within one file system. A plain open() gives the
    # permissions of any new file, where the tempfile module would make it private.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
