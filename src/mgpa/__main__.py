"""``python -m mgpa`` and the ``mgpa`` command."""

from __future__ import annotations

import signal
import sys


def entry() -> None:
    """Run the command line, or say what it needs."""
    try:
        from .cli import main
    except ImportError as error:
        if error.name not in ("cyclopts", "cyclopts.config"):
            raise
        from ._common.extras import missing

        needed = ("cyclopts", "pydantic", "pyarrow", "dask", "matplotlib", "pandas")
        sys.exit(f"mgpa: {missing('the command line', *needed)}")
    except KeyboardInterrupt:  # while it loads; later, the command line says it itself
        print("mgpa: interrupted before it started.", file=sys.stderr)
        sys.exit(130)
    for number in (signal.SIGINT, signal.SIGTERM):  # before a command begins and after it has ended
        signal.signal(number, signal.SIG_IGN)
    sys.exit(main())


if __name__ == "__main__":
    entry()
