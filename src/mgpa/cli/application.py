"""The application that commands join, and what they share."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import App, Parameter, Token, convert

from .. import __version__
from .._common.files import lies_there, require_distinct_paths, require_replaceable
from .._common.remote import Place, RemotePath, as_place
from ..errors import OutputExists, printable


def _read_value(kind: Any, tokens: Sequence[Token] | dict[str, Any]) -> Any:
    """Return what was typed as the type an option has.

    Left alone, cyclopts would round 2.7 to a whole number, read no JSON here before 5.4, and take an address
    for a path and have files written to a folder called ``s3:``.
    """
    kinds = {kind, *get_args(kind)}
    if Path in kinds and get_origin(kind) not in (list, tuple) and not isinstance(tokens, dict):
        # Shells leave the ~ of --out=~/maps to us, and a folder called ~ is a trap.
        place = as_place(os.path.expanduser(tokens[0].value))
        if isinstance(place, RemotePath) and RemotePath not in kinds:
            raise ValueError(f"{place} is an address; a path on this machine is expected here.")
        return place
    if dict[str, str] in kinds and not isinstance(tokens, dict) and tokens[0].value.startswith("{"):
        return {str(name): str(value) for name, value in json.loads(tokens[0].value).items()}
    if int in kinds and float not in kinds and not isinstance(tokens, dict):
        for token in tokens:
            if "." in token.value:
                raise ValueError(f"{token.value} is no whole number.")
    return convert(kind, tokens)


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
Tokens = Literal["mean", "joint", "each"]


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


def with_rank(model: Any, rank: float | None) -> Any:
    """Return a method with this rank of its gate, if it has a gate."""
    if rank is not None and "gate" in model.get_params():
        from ..gate import MeasurementGate

        model.set_params(gate=MeasurementGate(rank=whole_or_share(rank)))
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


def whole_or_share(rank: float) -> int | float:
    """Return a rank as methods want it: a whole number of directions, or a share of energy.

    What is neither, as 2.5, stays for them to refuse.
    """
    return int(rank) if rank.is_integer() else rank
