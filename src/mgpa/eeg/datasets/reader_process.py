"""Read providers' files in another process, so that a file that crashes its reader is one clear error.

The libraries that read recordings are partly written in C, and a few changed bytes can crash them or keep
them busy for ever. The process is joblib's (loky), which, unlike the standard library's, needs no
``if __name__ == "__main__"`` in the script that reads.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from ...errors import RecordingError

# What any file may take, and how much more for each of its bytes.
SECONDS, SECONDS_PER_BYTE = 120.0, 1e-6
_pool: Any = None


def read_apart(reader: Callable[..., Any], path: Any, *arguments: Any, n_bytes: int | None = None) -> Any:
    """Return ``reader(*arguments)``, computed in another process; ``path`` is what errors name."""
    from joblib.externals.loky import ProcessPoolExecutor

    global _pool
    if _pool is None:
        _pool = ProcessPoolExecutor(1, timeout=60)
        atexit.register(_pool.shutdown, kill_workers=True)
    seconds = SECONDS + SECONDS_PER_BYTE * (Path(path).stat().st_size if n_bytes is None else n_bytes)
    try:
        return _pool.submit(reader, *arguments).result(seconds)
    except BrokenExecutor:
        problem = "crashed the library that reads it"
    except TimeoutError:
        problem = f"was not read within {seconds:.0f} s"
        _pool.shutdown(wait=True, kill_workers=True)
    _pool = None
    raise RecordingError(f"{path} {problem}: it is damaged. Fetch it again.")
