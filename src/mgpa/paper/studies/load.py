"""Load studies from TOML files or by the name of a packaged study.

The section ``[simulated]`` holds settings that differ when recordings are simulated; ``[quick]`` holds those
that differ in a short run.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..._common.untrusted import read_study_text
from ...errors import StudyError
from .config import FIXED, Study

OVERLAYS = ("simulated", "quick")


def presets() -> dict[str, str]:
    """Return the names and titles of the packaged studies."""
    titles = {}
    for entry in files(__package__).joinpath("presets").iterdir():
        if entry.name.endswith(".toml"):
            titles[entry.name.removesuffix(".toml")] = tomllib.loads(entry.read_text("utf-8"))["title"]
    return dict(sorted(titles.items()))


def load_study(
    which: str | Path,
    *,
    recordings: str | Path | None = None,
    checkpoint: str | Path | None = None,
    quick: bool = False,
    **changes: Any,
) -> Study:
    """Read and check a study.

    Parameters
    ----------
    which : str or path
        The name of a packaged study (:func:`presets`), or a TOML file.
    recordings : path or None
        Folder of the recordings, or file of the table. Without it, the recordings are simulated.
    checkpoint : path or None
        File of the encoder's weights. Without it, the file named in the study.
    quick : bool
        Apply the study's ``[quick]`` section, so that the run takes minutes.
    **changes
        Settings that override all others, such as ``gate={"rank": 3}``.

    Examples
    --------
    >>> study = load_study("controlled-ssvep", quick=True)
    >>> study.simulated, study.endpoints.association
    (True, 0.9)
    """
    text, name, beside = read_study(which)
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise StudyError(f"{name} is not TOML: {error}.") from None
    for key in ("data", "encoder", "methods", *OVERLAYS):
        if not isinstance(document.get(key, {}), dict):
            raise StudyError(f"{name}: {key} is {document[key]!r}; it must be a section, [{key}].")
    overlays = {key: document.pop(key, {}) for key in OVERLAYS}
    section = document.setdefault("data", {})
    _name_files(section, document.get("encoder", {}), name, beside, recordings, checkpoint)
    planned = set(document.get("methods", ()))
    simulated = section.get("kind") != "table" and "folder" not in section
    applied = [key for key, used in (("simulated", simulated), ("quick", quick)) if used]
    for key in applied:
        document = _merged(document, overlays[key])
    document = _merged(document, changes) | {"overlays": applied}
    # An overlay that leaves out a method also leaves out its contrasts.
    if left_out := planned - set(document.get("methods", ())):
        contrasts = document.get("contrasts", [])
        document["contrasts"] = [c for c in contrasts if not left_out & {c.get("a"), c.get("b")}]
    try:
        return Study.model_validate(document)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc'])) or 'the study'}: {_reason(e)}" for e in error.errors()]
        raise StudyError(f"{name} is not a study that can be run:\n" + "\n".join(lines)) from None


def _name_files(
    data: dict[str, Any], encoder: dict[str, Any], study: str, beside: Path, recordings: Any, checkpoint: Any
) -> None:
    """Set the file paths of a study: given paths, or paths in the study relative to the folder ``beside``."""
    if recordings is not None:
        data["table" if data.get("kind") == "table" else "folder"] = str(Path(recordings).expanduser())
    else:
        for key in ("table", "folder"):
            if isinstance(data.get(key), str):
                data[key] = str(beside / Path(data[key]).expanduser())
    if checkpoint is not None:
        if encoder.get("name") in (None, *FIXED) or "folder" not in data:
            raise StudyError(f"{study} uses no encoder weights; omit checkpoint.")
        encoder["checkpoint"] = str(Path(checkpoint).expanduser().resolve())
    elif encoder.get("checkpoint", "paper") != "paper":
        encoder["checkpoint"] = str(beside / Path(str(encoder["checkpoint"])).expanduser())


def read_study(which: str | Path) -> tuple[str, str, Path]:
    """Return the text of a study, its name, and the folder to which its paths are relative."""
    path = Path(which).expanduser()
    if path.suffix == ".toml" or path.is_file():
        return read_study_text(path), str(path), path.resolve().parent
    if str(which) == "template":
        return files(__package__).joinpath("template.toml").read_text("utf-8"), "template", Path.cwd()
    packaged = presets()
    if str(which) not in packaged:
        raise StudyError(f"No study {str(which)!r}. Name a .toml file or one of {', '.join(packaged)}.")
    text = files(__package__).joinpath("presets", f"{which}.toml").read_text("utf-8")
    return text, str(which), Path.cwd()


def _merged(document: dict[str, Any], over: dict[str, Any], *, methods: bool = False) -> dict[str, Any]:
    """Return a document with another document's tables merged in and its other values replaced.

    A method set to ``false`` is left out.
    """
    result = dict(document)
    for key, value in over.items():
        if value is None or (methods and value is False):
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            # The parameters of one encoder do not fit another.
            whole = key == "encoder" and value.get("name", result[key].get("name")) != result[key].get("name")
            result[key] = value if whole else _merged(result[key], value, methods=key == "methods")
        else:
            result[key] = value
    return result


def _reason(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown setting"
    if error["type"] == "missing":
        return "is missing"
    got = "" if isinstance(error["input"], dict) else f" (got {error['input']!r:.80})"
    return str(error["msg"]).removeprefix("Value error, ") + got
