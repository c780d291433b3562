"""The application that commands join, and what they share."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import App, Parameter, Token, convert, validators

from .. import __version__
from .._common.files import lies_there, require_distinct_paths, require_replaceable
from .._common.remote import Place, RemotePath, as_place
from ..errors import OutputExists, printable


def _read_value(kind: Any, tokens: Sequence[Token] | dict[str, Any]) -> Any:
    """Return what was typed as the type an option has.

    Left alone, cyclopts would round 2.7 to a whole number, read no JSON here before 5.4, name Python's types
    in errors, and take an address for a path and have files written to a folder called ``s3:``.
    """
    kinds = {kind, *get_args(kind)}
    if Path in kinds and get_origin(kind) not in (list, tuple) and not isinstance(tokens, dict):
        # Shells leave the ~ of --out=~/maps to us, and a folder called ~ is a trap.
        place = as_place(os.path.expanduser(tokens[0].value))
        if isinstance(place, RemotePath) and RemotePath not in kinds:
            raise ValueError(f"{place} is an address; a path on this machine is expected here.")
        return place
    if dict[str, str] in kinds and not isinstance(tokens, dict):
        option, text = tokens[0].keyword, tokens[0].value
        try:
            return {str(name): str(value) for name, value in json.loads(text).items()}
        except (json.JSONDecodeError, AttributeError):
            raise ValueError(f"{text!r} names nothing; it is typed as {option}.NAME VALUE.") from None
    if kinds & {int, float} and not isinstance(tokens, dict):
        for token in tokens:
            # Of several values cyclopts does not say whose they are.
            value = token.value if len(tokens) == 1 else f"{token.keyword}: {token.value}"
            whole = re.fullmatch(r"[+-]?\d+", token.value)
            if not whole and float not in kinds:
                raise ValueError(f"{value} is no whole number.")
            if not whole and not _is_number(token.value):
                raise ValueError(f"{value} is no number.")
        if {int, float} <= kinds:  # 1 is a number of directions, and 1.0 a share
            return (int if whole else float)(tokens[0].value)
    return convert(kind, tokens)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


app = App(
    name="mgpa",
    help="Remove how it was measured, keep what was measured: correct embeddings and audit the result.",
    suppress_keyboard_interrupt=False,
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(converter=_read_value),
)

app.register_install_completion_command()

AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead of text.")]
Out = Annotated[Path, Parameter(name=["--out", "-o"])]
# Where there may be an address: s3://bucket/table.parquet.
AnyPlace = Annotated[Place, Parameter(accepts_keys=False, n_tokens=1)]
AnyOut = Annotated[Place, Parameter(name=["--out", "-o"], accepts_keys=False, n_tokens=1)]
MaybePlace = Annotated[Place | None, Parameter(accepts_keys=False, n_tokens=1)]
Tokens = Literal["mean", "joint"]
Folder = Annotated[Path, Parameter(name=["--out", "-o"], validator=validators.Path(file_okay=False))]
Rank = int | float | None
Seed = Annotated[int, Parameter(validator=validators.Number(gte=0))]
Seeds = Annotated[list[int], Parameter(consume_multiple=True, validator=validators.Number(gte=0))]


class UserError(Exception):
    """Something the user can put right; its text says what."""


def refuse_existing(path: Place, overwrite: bool, *inputs: Place | None) -> None:
    """Refuse an output before the work, not after it: it is there, is an input, or is no ordinary file."""
    require_distinct_paths(path, *(given for given in inputs if given is not None))
    require_replaceable(path)
    if lies_there(path) and not overwrite:
        raise OutputExists(path)
    if isinstance(path, Path) and not path.parent.is_dir():
        raise UserError(f"The folder {path.parent} does not exist; create it first.")


def option_names(command: App) -> set[str]:
    """Return the options of a command, without their dashes; a group of commands has none."""
    if command.default_command is None:
        return set()
    names = [name for argument in command.assemble_argument_collection() for name in argument.names]
    return {name.lstrip("-") for name in names if name.startswith("--")}


def show(facts: dict[str, Any], text: str, as_json: bool) -> None:
    """Print an answer: facts for a script, or text for a person."""
    print(json.dumps(facts, indent=2, default=str) if as_json else printable(text, lines=True))


def with_rank(model: Any, rank: Rank) -> Any:
    """Return a method with this rank of its gate, if it has a gate."""
    if rank is not None and "gate" in model.get_params():
        from ..gate import MeasurementGate

        model.set_params(gate=MeasurementGate(rank=rank))
    return model


def of_tokens(model: Any, how: str, table: Place) -> Any:
    """Return a method that takes the tokens of a table as told."""
    from ..tables import open_table
    from ..tokens import TOKENS

    if how == "mean":  # which is what tables of tokens are fitted by anyway
        return model
    if len(open_table(table).shape) != 2:
        raise UserError(f"{table} holds vectors, not tokens; leave --tokens out.")
    return TOKENS[how](model)
