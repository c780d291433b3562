"""Files ``mgpa.toml``: defaults of options, a section a command. What they cannot mean is an error.

One may lie in the working folder, beside the data, and one in the user's own configuration folder. Data come
from anywhere, and their folder's file with them; so that file may choose how something is computed, but not
what is replaced, whom to connect to, or a path outside its folder.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cyclopts.config import Dict

from .._common.files import special_kind
from .application import UserError, app, option_names

SETTINGS = "mgpa.toml"
MAX_BYTES = 2**20
# Options that a file beside the data may not set, and what they would let it do.
NOT_FROM_A_FOLDER = {
    "scheduler": "hands the work to a cluster, whose answers can run code here",
    "from": "names an address to download from",
    "overwrite": "lets files be replaced",
    "force": "switches a check off",
}


def user_settings() -> Path | None:
    """Return where the user's own settings are, if there are any; None of a user without a home."""
    variable, below = ("APPDATA", "AppData/Roaming") if os.name == "nt" else ("XDG_CONFIG_HOME", ".config")
    try:
        base = os.environ.get(variable) or Path.home() / below
    except RuntimeError:  # as in a container, under a number that has no name there
        return None
    return Path(base) / "mgpa" / SETTINGS


def load_settings() -> list[Dict]:
    """Return the defaults of options: from the working folder, then the user's own.

    An option in both is taken from the first; the command line goes before either.
    """
    folder, user = Path(SETTINGS), user_settings()
    of_the_folder, of_the_user = _read(folder), {} if user is None else _read(user)
    if not (user and of_the_user and of_the_folder and folder.samefile(user)):
        _refuse_reaching_outside(folder, of_the_folder)
    both = ((folder, of_the_folder), (user, of_the_user))
    return [Dict(sections, source=str(path)) for path, sections in both if sections]


def _read(path: Path) -> dict[str, Any]:
    """Return the sections of a file, each of them a command's; none if there is no file."""
    kind = "a folder" if path.is_dir() else special_kind(path)
    if kind is not None:
        raise UserError(f"{path} is {kind}; settings are read from a TOML file of this name. Remove it.")
    if not path.exists():
        return {}
    with open(path, "rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UserError(f"{path} has more than {MAX_BYTES} bytes, which no settings have. Remove it.")
    try:
        sections = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not a TOML file: {error}.") from None
    _check_section(path, (), sections, app)
    return sections


def _check_section(path: Path, section: tuple[str, ...], values: dict[str, Any], command: Any) -> None:
    """Raise if there is a section that is no command, or a key that is no option of it."""
    below = {name for name in command if not name.startswith("-")}
    options = option_names(command)
    where = _where(path, section)
    for name, value in values.items():
        if name in below:
            if not isinstance(value, dict):
                raise UserError(f"{where} has {name} = {value!r}; {name} is a command and wants a section.")
            _check_section(path, (*section, name), value, command[name])
        elif name.replace("_", "-") not in options:
            kind = "section" if isinstance(value, dict) else "key"
            what = f"option of mgpa {' '.join(section)}" if options else "command of mgpa"
            raise UserError(
                f"{where} has a {kind} {name!r}, which is no {what}. {_hint(name, below | options)}"
            )


def _refuse_reaching_outside(path: Path, values: dict[str, Any], section: tuple[str, ...] = ()) -> None:
    """Raise if settings beside the data set what only the user may."""
    here = path.absolute().parent.resolve()
    own = user_settings()
    advice = "Pass it on the command line" + (f", or set it in {own}" if own else "")
    for name, value in values.items():
        if isinstance(value, dict):
            _refuse_reaching_outside(path, value, (*section, name))
            continue
        reason = NOT_FROM_A_FOLDER.get(name.strip("-_").removeprefix("no-").removeprefix("no_"))
        if reason is not None:
            raise UserError(
                f"{_where(path, section)} sets {name}, which {reason}; settings beside data may not. "
                f"{advice}."
            )
        for text in _texts(value):
            # Every text, whatever it is for: an option that takes paths cannot be forgotten here.
            outside = "://" in text or "\0" in text or text.startswith("~")
            if outside or not Path(os.path.realpath(here / text)).is_relative_to(here):
                raise UserError(
                    f"{_where(path, section)} has {name} = {text!r}, which leads out of the folder; settings "
                    f"beside data may not. {advice}."
                )


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value of a TOML file."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _where(path: Path, section: tuple[str, ...]) -> str:
    return f"[{'.'.join(section)}] in {path}" if section else str(path)


def _hint(name: str, choices: Iterable[str]) -> str:
    close = get_close_matches(name, choices, 1)
    return f"Did you mean {close[0]}?" if close else f"There is {', '.join(sorted(choices))}."
