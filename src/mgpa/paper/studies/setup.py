"""Check a study before it runs, and record how the run differs from the packaged study.

Only runs without differences have the heading "Ours". All others are headed "Simulated", "Quick" or
"Changed", and list their differences wherever their numbers are shown.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..._common.checks import total_memory
from ...errors import StudyError, TableError
from .arms import recipes, unfitted
from .config import FIXED, Study
from .load import load_study, presets
from .recordings import Recordings, sha256_of
from .splits import roles_of, split_names


def check_study(study: Study, recordings: Recordings) -> None:
    """Raise one error that lists all problems that would stop a study, before anything is computed."""
    for name, method in study.methods.items():
        for recipe in recipes(method):
            unfitted(name, method, recipe)
    problems = [*_files(study, recordings), *_weights(study), *_room(study, recordings.workspace)]
    if problems:
        raise StudyError("The study cannot be run:\n" + "\n".join(f"  {line}" for line in problems))


def _files(study: Study, recordings: Recordings) -> Iterator[str]:
    """Yield a message for each missing table, recording, or participant with a role."""
    data = study.data
    if data.kind == "table":
        if not os.path.lexists(str(data.table)) and "://" not in str(data.table):
            yield f"data.table: {data.table} does not exist"
        return
    if data.folder is None:  # recordings are simulated when the study runs
        return
    if not data.folder.is_dir():
        yield f"data: the folder {data.folder} does not exist"
        return
    people = recordings.people()
    if not len(people):
        yield f"data: {data.folder} has no recordings of {data.kind} (`mgpa data fetch {data.kind}`)"
        return
    try:
        for rotation in split_names(study).values():
            roles_of(people, study.roles, rotation)
    except (StudyError, TableError) as error:
        yield str(error).rstrip(".")


def _weights(study: Study) -> Iterator[str]:
    """Yield a message if the checkpoint is missing or is not the published file."""
    encoder = study.encoder
    if encoder is None or encoder.name in FIXED:
        return
    if encoder.parameters.get("weights") == "random":
        if encoder.checkpoint is not None:
            yield 'encoder: weights = "random" takes no checkpoint; omit one of them'
    elif encoder.checkpoint is None:
        yield f"encoder: {encoder.name} needs trained weights; pass checkpoint (--checkpoint FILE)"
    elif encoder.checkpoint != "paper" and not Path(encoder.checkpoint).is_file():
        yield f"encoder.checkpoint: {encoder.checkpoint} does not exist"
    elif encoder.checkpoint != "paper":
        from ..encoder import EEGPT_WEIGHTS

        expected = encoder.parameters.get("sha256", EEGPT_WEIGHTS.sha256)
        if expected not in ("any", sha256_of(Path(encoder.checkpoint))):
            yield (
                f"encoder.checkpoint: {encoder.checkpoint} is not the published file. Fetch it again "
                '(`mgpa data fetch eegpt`), or allow it: sha256 = "any" among encoder.parameters'
            )


def _room(study: Study, workspace: Path) -> Iterator[str]:
    """Yield a message if disk space or memory is below the study's measured needs."""
    place = next(path for path in (workspace.absolute(), *workspace.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free / 1e9
    if free < study.needs.disk:
        yield f"disk: {place} has {free:.1f} GB free; the study needs about {study.needs.disk:g} GB"
    memory = total_memory() / 1e9
    if memory < study.needs.memory:
        yield f"memory: this machine has {memory:.1f} GB; the study needs about {study.needs.memory:g} GB"


def effective_settings(study: Study) -> dict[str, Any]:
    """Return all settings that determine a study's numbers, with all parameters, and files by name only."""
    settings: dict[str, Any] = study.model_dump(mode="json", exclude={"paper", "contrasts", "about"})
    for section, name in (("data", "folder"), ("data", "table"), ("encoder", "checkpoint")):
        if settings[section] is not None and settings[section][name] is not None:
            settings[section][name] = Path(settings[section][name]).name
    for name, method in study.methods.items():
        model = unfitted(name, method, recipes(method)[0])
        parameters = model.get_params(deep=False)
        settings["methods"][name]["parameters"] = {
            key: value for key, value in parameters.items() if key not in ("gate", "anchor_gate", "verbose")
        }
    return settings


def deviations(study: Study, files: str, weights: str, device: str = "cpu") -> list[str]:
    """Return one phrase for each difference between a run and the packaged study of the same name.

    ``files`` is the ``origin`` of the recordings; ``weights`` is the SHA-256 of the encoder's weights,
    "random …" or "none".

    Examples
    --------
    >>> study = load_study("temporal-n170", recordings="flex", seeds=[17])
    >>> deviations(study, "published", "none")
    ['seeds is [17] (preset: [17, 29, 43])']
    """
    if study.name not in presets():
        return []
    preset = load_study(study.name, recordings=Path("recordings"))
    lines = {"published": [], "simulated": ["recordings are simulated"]}.get(files, [f"recordings: {files}"])
    lines += [*_other_weights(study, weights), *_other_solvers(study, device)]
    lines += ["quick settings"] if "quick" in study.overlays else []
    return [*lines, *_other_settings(study, preset)]


def _other_weights(study: Study, weights: str) -> Iterator[str]:
    """Yield a message if the encoder's weights are not the published ones."""
    if study.encoder is not None and study.encoder.name not in FIXED:
        from ..encoder import EEGPT_WEIGHTS

        if weights.startswith("random"):
            yield "encoder weights are random"
        elif study.encoder.name == "eegpt" and weights != EEGPT_WEIGHTS.sha256:
            yield "encoder weights are not the published file"


def _other_solvers(study: Study, device: str) -> Iterator[str]:
    """Yield the differences between the solvers on a GPU and those of the published CPU run."""
    if not device.startswith("cuda"):
        return
    solved = [m for m in study.methods.values() if m.method == "iterative_mgpa"]
    if any("lbfgs" not in m.parameters.get("critics", ()) for m in solved):
        yield "logistic critics are converged Newton solutions on a GPU (published: early-stopped lbfgs)"
    if study.readers.restarts:
        newton = "logistic readers are converged Newton solutions on a GPU"
        yield f"{newton}, except for all tokens (published: lbfgs)"


def _other_settings(study: Study, preset: Study) -> Iterator[str]:
    """Yield the methods and settings that differ."""
    ours, published = _flat(study), _flat(preset)
    absent = [name for name in preset.methods if name not in study.methods]
    added = [name for name in study.methods if name not in preset.methods]
    for what, names in (("left out", absent), ("added", added)):
        if names:
            yield f"{what}: {', '.join(names)}"
    named = tuple(f"methods.{name}." for name in absent + added)
    if ours.get("encoder.name") != published["encoder.name"]:  # another encoder has other parameters
        named += ("encoder.parameters", "encoder.pool", "encoder.flatten")
    for key in {**published, **ours}:
        default = _default(study, key)
        value, printed = ours.get(key, default), published.get(key, default)
        same_critic = key.endswith(".critics") and "lbfgs" in (value or ())  # the published solver
        if value != printed and not key.startswith(named) and not same_critic:
            yield f"{key} is {_short(value)} (preset: {_short(printed)})"


def _default(study: Study, key: str) -> Any:
    """Return the default of a method parameter such as "methods.IGBP.parameters.n_stages", else None."""
    section, _, rest = key.partition(".")
    name, separator, parameter = rest.partition(".parameters.")
    if section != "methods" or not separator or name not in study.methods:
        return None
    method = study.methods[name].model_copy(update={"parameters": {}})
    return unfitted(name, method).get_params().get(parameter)


def heading(study: Study, files: str, differences: list[str]) -> str:
    """Return the heading of a run's numbers: "Ours" only if nothing differs from the preset."""
    if study.name not in presets():
        return "This study"
    if not differences:
        return "Ours"
    if files == "simulated":
        return "Simulated"
    return "Quick" if "quick" in study.overlays else "Changed"


def _flat(study: Study) -> dict[str, Any]:
    """Return the settings that change numbers, by dotted name, without files, which checksums identify."""
    unchanging = {"name", "title", "about", "overlays", "paper", "contrasts", "needs"}
    hidden: Any = dict.fromkeys(unchanging, True)
    hidden |= {"data": {"folder", "table", "simulate"}, "encoder": {"checkpoint"}}
    return dict(_pairs(study.model_dump(mode="json", exclude=hidden)))


def _pairs(value: Any, start: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _pairs(inner, f"{start}.{key}" if start else str(key))
    elif value != {}:
        yield start, value


def _short(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
