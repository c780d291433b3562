"""The file ``mgpa.toml``: defaults of options, a section a command. What it cannot mean is an error."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .application import SETTINGS, UserError, app, option_names


def check_settings(path: Path = Path(SETTINGS)) -> None:
    """Raise if the file has a section that is no command, or a key that is no option of it."""
    if not path.is_file():
        return
    try:
        sections = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a TOML file: {error}.") from None
    _check_section(path, (), sections, app)


def _check_section(path: Path, section: tuple[str, ...], values: dict[str, Any], command: Any) -> None:
    below = {name for name in command if not name.startswith("-")}
    options = option_names(command)
    where = f"[{'.'.join(section)}] in {path}" if section else str(path)
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


def _hint(name: str, choices: Iterable[str]) -> str:
    close = get_close_matches(name, choices, 1)
    return f"Did you mean {close[0]}?" if close else f"There is {', '.join(sorted(choices))}."
