"""Errors speak of Python arguments; on the command line they should speak of options and columns."""

from __future__ import annotations

import re
import sys

from cyclopts import CycloptsError, CycloptsPanel, MissingArgumentError

# In this order: whole sentences first, then what is left of single arguments.
_WORDINGS = (
    (
        r"pass pairs=\(A, B\), two aligned views of the same events, or pair_id=, one id per row of X,",
        "give the table a pair_id column, or pass a table that has one with --pairs: one id per row,",
    ),
    (
        r"pairs=\(A, B\) does not say which of the (\d+) sources each view is; use pair_id= with source=\.",
        r"--pairs is for two sources, and there are \1; put the pairs into the table, by a pair_id column.",
    ),
    (r"[Aa]dd such rows to X_val", "give some participants who have it the role VAL"),
    (r"[Pp]ass X_val and source_val", "Give some participants the role VAL"),
    (r"X_val and source_val: held-out rows with sources", "rows with the role VAL"),
    (r"\bX_val\b", "the VAL rows"),
    (r"\boverwrite=True", "--overwrite"),
    (r"\bcolumns=\[(.*?)\]", lambda m: f"--columns {m[1].replace(', ', ' ')}"),
    (r"\brank=", "--rank "),
    (r"\b(embedding|pairs|rename)=", r"--\1"),
    (r"\bset (\w+)=(True|False)", lambda m: f"pass --set.{m[1]} {m[2].lower()}"),
    (r"\b(\w+)=(True|False)", lambda m: f"--set.{m[1]} {m[2].lower()}"),
    (r"\b(\w+)='(\w+)'", r"--set.\1 \2"),
)


def in_options(text: str) -> str:
    """Return an error's text in the words of the command line.

    Examples
    --------
    >>> in_options("m.safetensors exists; pass overwrite=True to replace it.")
    'm.safetensors exists; pass --overwrite to replace it.'
    >>> in_options("Pass X_val and source_val, or set do_no_harm=False.")
    'Give some participants the role VAL, or pass --set.do_no_harm false.'
    """
    for pattern, wording in _WORDINGS:
        text = re.sub(pattern, wording, text)
    return text


def print_option_error(error: CycloptsError) -> None:
    """Say what is wrong with options: of a missing one its name, what it is for, and an example."""
    from rich.console import Console

    if not isinstance(error, MissingArgumentError) or error.argument is None or error.app is None:
        Console(stderr=True).print(CycloptsPanel(error))
        return
    argument = error.argument
    name = argument.name if argument.index is None else argument.name.removeprefix("--").upper()
    # Only here are options read together with what the docstring says about them.
    options = error.app.assemble_argument_collection(parse_docstring=True)
    described = options.get(argument.name)
    about = " ".join(((described.parameter.help if described else None) or "").split())
    lines = [" ".join(["mgpa", *(error.command_chain or ()), "needs", f"{name}: {about}" if about else name])]
    known = {name for option in options for name in option.names}
    unknown = [word for word in error.unused_tokens or () if word.startswith("--") and word not in known]
    lines += [f"There is no option {', '.join(unknown)}."] if unknown else []
    lines += re.findall(r"Example: .*", getattr(error.target, "__doc__", None) or "")
    print("\n".join(lines), file=sys.stderr)
