"""What is said to people at a terminal: in the words of options and columns, where Python has arguments."""

from __future__ import annotations

import json
import re
import shlex
import sys
from functools import partial
from typing import Any

from cyclopts import App, CycloptsError, CycloptsPanel, MissingArgumentError, UnusedCliTokensError

from .._common.remote import redacted
from ..errors import Mention, Worded, printable
from .application import option_names

# What is not passed, but stands in the table.
IN_THE_TABLE = {
    "X_val": "the VAL rows",
    "source_val": "the VAL rows",
    "held_out": "rows with the role VAL",
    "pairs": "a table with a pair_id column",
    "y": "the label column",
    "assign_roles": "mgpa convert --roles",
}
# Options whose name is not that of the parameter.
OPTIONS = {
    "gate__rank": "rank",
    "d": "features",
    "n_components": "components",
    "n_people": "people",
    "n_sources": "sources",
    "n_jobs": "jobs",
    "random_state": "seed",
}
# Parameters of reading a file: one command has them, and makes a table that the others read as it is.
OF_CONVERT = ("columns", "embedding", "rename")


def in_options(message: Any, command: App) -> str:
    """Return an error's or a warning's text, with its notes, in the words of the command that was used.

    Examples
    --------
    >>> from pathlib import Path
    >>> from mgpa.cli import app
    >>> from mgpa.errors import OutputExists, ParameterError
    >>> in_options(OutputExists(Path("m.safetensors")), app["fit"])
    'm.safetensors exists; pass --overwrite to replace it.'
    >>> in_options(ParameterError("ridge", "maybe", "a number, 0 or more"), app["fit"])
    "--set.ridge must be a number, 0 or more; got 'maybe'."
    """
    text = message.worded(partial(_say, command)) if isinstance(message, Worded) else str(message)
    return " ".join([text, *getattr(message, "__notes__", [])])


def _say(command: App, mention: Mention) -> str:
    """Return how this command is given a parameter; one that it cannot be given stays in Python's words."""
    options, name = option_names(command), OPTIONS.get(mention.name, mention.name)
    if name in IN_THE_TABLE:
        return IN_THE_TABLE[name] + (f" (or such a table by --{name})" if name in options else "")
    if name in options:
        return _typed(f"--{name}", mention.value)
    if name == "convert":
        return f"mgpa convert {_quoted(mention.value)} --out table.parquet"
    if name in OF_CONVERT:
        return _typed(f"mgpa convert --{name}", mention.value)
    if "set" in options:
        value = "" if mention.value is ... else f" {_quoted(mention.value)}"
        return f"--set.{mention.name}{value}"
    return str(mention)


def _typed(option: str, value: Any) -> str:
    """Return an option with its value as it is typed: a switch has none, a list is spelt out."""
    if value is ... or value is True:
        return option
    if value is False:
        return option.replace("--", "--no-")
    if isinstance(value, dict) and all(key.isidentifier() for key in value):
        return " ".join(f"{option}.{key} {_quoted(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return f"{option} {shlex.join(value)}" if value else option.replace("--", "--empty-")
    return f"{option} {_quoted(value)}"


def _quoted(value: Any) -> str:
    """Return a value as `mgpa fit --set` reads it, fit for a shell."""
    return shlex.quote(value if isinstance(value, str) else json.dumps(value, default=str))


def print_option_error(error: CycloptsError) -> None:
    """Say what is wrong with options: of a missing one its name, what it is for, and an example."""
    from rich.console import Console

    if isinstance(error, UnusedCliTokensError):
        command = " ".join(["mgpa", *(error.command_chain or ())])
        extra = " ".join(error.unused_tokens or ())
        print(printable(redacted(f"{command} takes no further arguments, and got {extra}.")), file=sys.stderr)
        return
    if not isinstance(error, MissingArgumentError) or error.argument is None or error.app is None:
        panel = CycloptsPanel(printable(redacted(str(error)), lines=True))
        Console(stderr=True).print(panel)
        return
    # Only here are options read together with what the docstring says about them.
    options = error.app.assemble_argument_collection(parse_docstring=True)
    given = {word.partition("=")[0] for word in error.root_input_tokens or ()}
    wanting = [error.argument.name]
    wanting += [
        option.name
        for option in options
        if option.required and option.index is None and not given & {*option.names, error.argument.name}
    ]
    needs = [_described(name, options) for name in dict.fromkeys(wanting)]
    lines = [" ".join(["mgpa", *(error.command_chain or ()), "needs", needs[0]])]
    lines += [f"and {other}" for other in needs[1:]]
    names = {name for option in options for name in option.names}
    unknown = [word for word in error.unused_tokens or () if word.startswith("--") and word not in names]
    lines += [f"There is no option {', '.join(unknown)}."] if unknown else []
    lines += re.findall(r"Example: .*", getattr(error.target, "__doc__", None) or "")
    print("\n".join(lines), file=sys.stderr)


def _described(name: str, options: Any) -> str:
    """Return an option as it is typed, or an argument in capitals, and what it is for."""
    option = options.get(name)
    if option is None:
        return name
    about = " ".join((option.parameter.help or "").split())
    shown = name if option.index is None else name.removeprefix("--").upper()
    return f"{shown}: {about}" if about else shown
