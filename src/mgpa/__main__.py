"""``python -m mgpa`` and the ``mgpa`` command."""

from __future__ import annotations

import signal
import sys


def entry() -> None:
    """Run the command line, or print which packages are missing."""
    try:
        from .cli import main
    except ImportError as error:
        if error.name not in ("cyclopts", "cyclopts.config"):
            raise
        from ._common.extras import missing

        needed = ("cyclopts", "pydantic", "pyarrow", "dask", "matplotlib", "pandas")
        sys.exit(f"mgpa: {missing('the command line', *needed)}")
    except KeyboardInterrupt:  # during imports; later, the command line handles interrupts
        print("mgpa: interrupted before it started.", file=sys.stderr)
        sys.exit(130)
    for number in (signal.SIGINT, signal.SIGTERM):  # default handlers before and after a command
        signal.signal(number, signal.SIG_IGN)
    sys.exit(main())


if __name__ == "__main__":
    entry()
