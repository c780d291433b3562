"""The command-line application, and options and helpers shared by commands."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from cyclopts import App, Parameter, Token, convert, validators

from .. import __version__
from .._common.files import path_taken, require_distinct_paths, require_replaceable
from .._common.remote import Place, RemotePath, as_place
from ..errors import OutputExists, first_few, printable
from .ending import will_write

if TYPE_CHECKING:
    from ..maps import CorrectionMap

INTEGER = r"[+-]?\d+"
NUMBER = r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|nan)"


def _read_value(kind: Any, tokens: Sequence[Token] | dict[str, Any]) -> Any:
    """Convert a command-line value to the type of its option.

    Without this, cyclopts would round 2.7 to an integer, name Python types in errors, and treat a URL as a
    path, so that files would be written to a folder ``s3:``.
    """
    kinds = {kind, *get_args(kind)}
    if isinstance(tokens, dict):
        return convert(kind, tokens)
    if Path in kinds and get_origin(kind) not in (list, tuple):
        # Shells do not expand the tilde in --out=~/maps; a folder named ~ would be dangerous.
        place = as_place(os.path.expanduser(tokens[0].value))
        if isinstance(place, RemotePath) and RemotePath not in kinds:
            raise ValueError(f"{place} is an address; expected a path on this machine.")
        return place
    if dict[str, str] in kinds:
        return _names_with_values(tokens[0])
    words = {word for part in kinds if get_origin(part) is Literal for word in get_args(part)}
    if kinds & {int, float} and not {token.value for token in tokens} <= words:
        _require_numbers(tokens, *((NUMBER, "a number") if float in kinds else (INTEGER, "an integer")))
        if {int, float} <= kinds:  # 1 is a number of directions; 1.0 is a share
            return (int if re.fullmatch(INTEGER, tokens[0].value) else float)(tokens[0].value)
    return convert(kind, tokens)


def _names_with_values(token: Token) -> dict[str, str]:
    """Return the names and values of an option given as JSON."""
    try:
        return {str(name): str(value) for name, value in json.loads(token.value).items()}
    except (json.JSONDecodeError, AttributeError):
        raise ValueError(f"{token.value!r} has no name and value; type {token.keyword}.NAME VALUE.") from None


def _require_numbers(tokens: Sequence[Token], pattern: str, wanted: str) -> None:
    """Raise if a typed value is not a number, because the error of cyclopts does not name the option."""
    for token in tokens:
        if not re.fullmatch(pattern, token.value, re.IGNORECASE):
            value = token.value if len(tokens) == 1 else f"{token.keyword}: {token.value}"
            raise ValueError(f"{value} is not {wanted}.")


def _shown(default: Any) -> str | None:
    """Return the default shown in the help; nothing for options that are off."""
    if default is None or default is False:
        return None
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


app = App(
    name="mgpa",
    help="Correct embeddings for the device that recorded them, and audit the result.",
    suppress_keyboard_interrupt=False,
    version=__version__,
    help_format="markdown",  # which fills lines, where plain text keeps the docstring's
    default_parameter=Parameter(
        converter=_read_value, show_default=_shown, negative_bool="", negative_iterable=""
    ),
)

app.register_install_completion_command()

AsJson = Annotated[bool, Parameter(name="--json", help="Print JSON instead of text.")]
Out = Annotated[Path, Parameter(name=["--out", "-o"])]
# Local paths and addresses (s3://bucket/table.parquet).
AnyPlace = Annotated[Place, Parameter(accepts_keys=False, n_tokens=1)]
AnyOut = Annotated[Place, Parameter(name=["--out", "-o"], accepts_keys=False, n_tokens=1)]
MaybePlace = Annotated[Place | None, Parameter(accepts_keys=False, n_tokens=1)]
Tokens = Literal["mean", "joint"]
Folder = Annotated[Path, Parameter(name=["--out", "-o"], validator=validators.Path(file_okay=False))]
Rank = int | float | Literal["auto"] | None
Overwrite = Annotated[bool, Parameter(help="Replace an existing output.")]
Scheduler = Annotated[
    str | None,
    Parameter(help='Address of a Dask scheduler (tcp://…), or "local" for a cluster on this machine.'),
]
Seed = Annotated[int, Parameter(validator=validators.Number(gte=0), help="Seed of the random numbers.")]
Seeds = Annotated[list[int], Parameter(consume_multiple=True, validator=validators.Number(gte=0))]
Names = Annotated[list[str], Parameter(consume_multiple=True, show_default=False)]


@Parameter(name="*", group="How to read the table")
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options that name the columns of a table.

    Parameters
    ----------
    embedding
        The column with the embedding, a prefix of columns (f for f0, f1, …), a range (1100:2492), several
        columns (--embedding alpha beta), or numeric for all numeric columns.
    rename
        New names of columns: --rename.device source. The names are source, participant, role, label and
        pair_id. A name with a dot: --rename '{"Sample No.": "pair_id"}'.
        Several columns joined to one id: --rename.site+subject participant. One column used twice:
        --rename.sample pair_id+participant.
    columns
        Keep only these columns besides the embedding (names in the file).
    replicates
        For rows of one source with the same pair_id: average them (mean), or pair the first of one source
        with the first of another, and so on (pair).
    skip_rows
        Number of lines of a CSV file before the line with the column names.
    """

    embedding: Names | None = None
    rename: dict[str, str] | None = None
    columns: Names | None = None
    replicates: Literal["mean", "pair"] | None = None
    skip_rows: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0

    def open(self, table: Place | list[Place], m: CorrectionMap | None = None) -> Any:
        """Open a table; for a map, columns that are not named are those of its fit."""
        from ..tables import open_table
        from ..tables.rows import open_for

        choice = asdict(self)
        if self.embedding is not None and len(self.embedding) == 1:
            [choice["embedding"]] = self.embedding
        file = open_table(table, **choice) if m is None else open_for(m, table, **choice)
        if self.embedding is not None and "feature_names" in file.info and (numeric := _numbers(file)):
            text = f"mgpa: numeric columns that are not part of the embedding: {first_few(numeric)}."
            print(printable(text), file=sys.stderr)
        return file


def _numbers(file: Any) -> list[str]:
    """Return numeric columns outside the embedding and the standard columns, except empty CSV columns."""
    import numpy as np

    from ..tables.columns import COLUMNS

    kinds = ("int", "uint", "float", "double", "half", "decimal")
    numeric = [name for name, kind in file.columns.items() if name not in COLUMNS and kind.startswith(kinds)]
    some = file.read_columns(*numeric) if str(file.path).endswith(".csv") else {}
    return [name for name in numeric if name not in some or not np.isnan(some[name]).all()]


AS_IT_IS = TableOptions()


class UserError(Exception):
    """An error that the user can fix; the message explains how."""


NAME_PAIRS = (
    "name the column that is equal for rows of one event (--rename.NAME pair_id), or pass a second table "
    "with --pairs."
)


def require_pairs(file: Any, table: Place) -> None:
    """Raise unless a table has sources and pairs."""
    from ..statistics import NO_PAIRS
    from ..tables.columns import column_names, require_columns

    require_columns(["source"], file.columns, table)
    if "pair_id" not in file.columns:
        raise UserError(f"{table} lacks pair_id; it has {column_names(file.columns)}. {NO_PAIRS}")


def refuse_existing(path: Place, overwrite: bool, *inputs: Place | None) -> None:
    """Raise before any work if an output exists, is also an input, or is a device or pipe."""
    require_distinct_paths(path, *(place for place in inputs if place is not None))
    require_replaceable(path)
    will_write(path)
    if path_taken(path) and not overwrite:
        raise OutputExists(path)
    if isinstance(path, Path) and not path.parent.is_dir():
        raise UserError(f"The folder {path.parent} does not exist; create it first.")


def show(facts: dict[str, Any], text: str, as_json: bool) -> None:
    """Print JSON facts, or text."""
    print(json.dumps(facts, indent=2, default=str) if as_json else printable(text, lines=True))


def with_rank(model: Any, rank: Rank) -> Any:
    """Return a method with this gate rank, if it has a gate."""
    if rank is not None and "gate" in model.get_params():
        from .._common.parameters import check_parameters
        from ..gate import MeasurementGate

        check_parameters(MeasurementGate(rank=rank))  # for an error that names the option
        model.set_params(gate=rank)
    return model


def set_reference(methods: Mapping[str, Any], reference: str | None) -> None:
    """Set the reference of methods that have one."""
    if reference is None:
        return
    having = [model for model in methods.values() if "reference" in getattr(model, "get_params", dict)()]
    if not having:
        have = "has" if len(methods) == 1 else "have"
        raise UserError(f"{', '.join(methods)} {have} no reference; leave --reference out.")
    for model in having:
        model.set_params(reference=reference)


def with_tokens(model: Any, tokens: str, file: Any) -> Any:
    """Return a method that corrects the tokens of a table together, or by their mean."""
    from ..estimators.tokens import TOKENS

    if tokens == "mean":  # the default for tables of tokens
        return model
    if len(file.shape) != 2:
        raise UserError(f"{file.path} holds vectors, not tokens; leave --tokens out.")
    return TOKENS[tokens](model)
