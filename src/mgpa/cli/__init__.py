"""The ``mgpa`` command, which reads files and writes complete files or none.

Exit codes: 0 success; 1 unexpected error; 2 wrong file, column or option, named in one line; 3 success, but
rows come from a device that was not in the fit; 130 interrupted (Ctrl-C); 143 terminated.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib import import_module
from io import TextIOWrapper
from typing import Any

from cyclopts import App, CycloptsError, Group, MissingArgumentError, UnusedCliTokensError

from .._common.remote import redacted
from ..errors import (
    PASS_PAIRS,
    BudgetNotAttained,
    ClusterError,
    NotEnoughMemory,
    StoreError,
    StudyError,
    WorkerError,
    printable,
)

# Importing a module registers its commands.
from . import audits, bench, corrections, devices, machine, simulate, tables
from .application import NAME_PAIRS, UserError, app
from .ending import about_signal, stoppable

__all__ = ["app", "audits", "bench", "corrections", "devices", "machine", "main", "simulate", "tables"]

# Imported by name, because no other package may import the paper's package.
import_module("mgpa.paper.commands")

# The help lists commands in the order of their use in a project.
ORDER = {
    "First look": ("demo", "simulate", "doctor", "methods"),
    "Prepare": ("convert", "check-pairs", "pairs-needed"),
    "Correct": ("fit", "apply", "adapt", "select", "export", "inspect"),
    "Measure": ("audit", "leave-one-out", "bench"),
    "The paper": ("study", "data"),
}
for _place, (_title, _names) in enumerate(ORDER.items()):
    _group = Group(_title, sort_key=_place)
    for _position, _name in enumerate(_names):
        app[_name].group, app[_name].sort_key = (_group,), _position

RUNTIME = (BudgetNotAttained, ClusterError, NotEnoughMemory, StoreError, WorkerError)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    warnings.showwarning = _say
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # terminals show unsupported characters as escapes
            stream.reconfigure(errors="backslashreplace")
    with stoppable() as signals:
        try:
            return _run(arguments, signals)
        except BaseException as error:
            # A library may answer a signal with an error of its own.
            if not signals and not isinstance(error, KeyboardInterrupt):
                raise
            code, line = about_signal(signals)
            _say(line)
            return code


def _run(arguments: list[str] | None, signals: list[int]) -> int:
    """Run a command; return its exit code, or raise an unforeseen error."""
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print(printable(redacted(_about_options(error)), lines=True), file=sys.stderr)
        return 2
    except SystemExit as stop:
        return int(stop.code or 0)
    except BrokenPipeError:
        # The program that reads the output has ended: print nothing, and avoid Python's error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        _say("Not enough memory; use fewer rows or columns.")
        return 2
    except (UserError, ValueError, OSError, ImportError, *RUNTIME) as error:
        if signals:
            raise
        text = " ".join([in_shell(str(error), arguments), *getattr(error, "__notes__", [])])
        print(f"mgpa: {printable(redacted(text), lines=isinstance(error, StudyError))}", file=sys.stderr)
        return 2
    return 0


def in_shell(text: str, arguments: list[str] | None) -> str:
    """Return the error of a function with options as typed in the shell: --folds 5 for folds=5."""
    text = _with_columns(text)
    chain, apps, _ = app.parse_commands(arguments)
    if not chain:
        return text
    options = {
        name.removeprefix("--").replace("-", "_"): name
        for option in apps[-1].assemble_argument_collection()
        for name in option.names
        if name.startswith("--") and option.index is None
    }
    if not options:
        return text
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))

    def with_value(found: re.Match[str]) -> str:
        option, value = options[found[1]], found[3]
        return option if value in ("", "True") else f"{option} {value}"

    text = re.sub(r"rename=\{'(.+?)': '(\w+)'\}", r"--rename.\1 \2", text)
    text = re.sub(rf"(?<![\w'.-])({names})=(')?((?:[\w+-]|\.(?=\d))*)(?(2)')", with_value, text)
    text = re.sub(r",? or None(?=[;.])", "", text)
    # At the beginning of a sentence, where the word can only be the option.
    begins = rf"(?:^|(?<=[.;:] ))({names})(?= (?:is|must)\b)"
    return re.sub(begins, lambda found: options[found[1]], text)


def _with_columns(text: str) -> str:
    """Return a message about pairs with the options of commands instead of Python arguments."""
    return text.replace(PASS_PAIRS, NAME_PAIRS)


def _say(message: Any, *_: Any, **__: Any) -> None:
    """Print a warning in one line."""
    print(f"mgpa: {printable(redacted(_with_columns(str(message))))}", file=sys.stderr)


def _about_options(error: CycloptsError) -> str:
    """Return the problem with options as a sentence."""
    command = " ".join(["mgpa", *(error.command_chain or ())])
    if isinstance(error, UnusedCliTokensError):
        return f"{command} takes no further arguments; got {' '.join(error.unused_tokens or ())}."
    if isinstance(error, MissingArgumentError) and error.argument is not None and error.app is not None:
        return _about_missing(error, error.argument.name, error.app, command)
    return f"mgpa: {error}"


def _about_missing(error: MissingArgumentError, name: str, command_app: App, command: str) -> str:
    """Return the name of a missing option, its purpose, and an example."""
    # Only here are options read together with what the docstring says about them.
    options = command_app.assemble_argument_collection(parse_docstring=True)
    [option] = (option for option in options if option.name == name)
    argument = option.name if option.index is None else option.name.removeprefix("--").upper()
    names = {each for option in options for each in option.names}
    unknown = [word for word in error.unused_tokens or () if word.startswith("--") and word not in names]
    lines = [f"{command} needs {argument}: {' '.join((option.parameter.help or '').split())}"]
    lines += [f"Unknown option: {', '.join(unknown)}."] if unknown else []
    return "\n".join(lines + re.findall(r"Example: .*", getattr(error.target, "__doc__", None) or ""))
