"""The ``mgpa`` command: files in, files out, nothing half-written.

Exit codes: 0 done; 1 something unexpected; 2 a wrong file, column or option, said in one line;
130 interrupted.
"""

from __future__ import annotations

import os
import sys
import warnings
from io import TextIOWrapper
from typing import Any

from cyclopts import CycloptsError

from .._common.remote import redacted
from ..errors import StudyError, Worded, printable

# Importing a module adds its commands.
from . import audits, corrections, data, machine, pairs, simulations, studies, tables
from .application import UserError, app
from .settings import load_settings
from .wording import in_options, print_option_error

__all__ = ["app", "audits", "corrections", "data", "machine", "main"]
__all__ += ["pairs", "simulations", "studies", "tables"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""

    def say(message: Any, *_: Any, **__: Any) -> None:
        command = app.parse_commands(arguments)[1][-1]
        # What is wrong with a study may be several things, a line each.
        text = printable(redacted(in_options(message, command)), lines=isinstance(message, StudyError))
        print(f"mgpa: {text}", file=sys.stderr)

    warnings.showwarning = say
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without the letters of an answer still shows it
            stream.reconfigure(errors="backslashreplace")
    try:
        app.config = load_settings()
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print_option_error(error)
        return 2
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyboardInterrupt:
        print("mgpa: interrupted; what was finished is kept.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has left: say nothing, and keep Python from saying something at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, Worded, ValueError, OSError, ImportError) as error:
        say(error)
        return 2
    return 0
