"""What was really run: a study's effective settings, their digest, and how they differ from the preset.

Only a run without differences is headed "Ours"; every other says "Simulated", "Quick" or "Changed", and lists
what differs wherever its numbers are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..audit.store import key_of
from .arms import recipes, unfitted
from .config import FIXED, Study, load_study, presets

#: What does not change a number, or is compared in another way.
_IGNORED = ("name", "title", "about", "overlays", "paper", "contrasts", "needs")


def effective_settings(study: Study) -> dict[str, Any]:
    """Return everything that defines a study's numbers; methods with all parameters, files by name alone."""
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


def settings_digest(settings: dict[str, Any], checksums: dict[str, str], weights: str) -> str:
    """Return one checksum of settings, input files and weights: equal digests, equal study."""
    return key_of(settings, dict(sorted(checksums.items())), weights)


def weights_of(tables: dict[str, dict[str, Any]]) -> str:
    """Return where the encoder's weights come from: "none", "random …", or their SHA-256."""
    for info in tables.values():
        record = (info.get("encoder") or {}).get("checkpoint")
        if isinstance(record, dict):
            return str(record.get("sha256", record))
        if record is not None:
            return str(record)
    return "none"


def deviations(study: Study, files: str, weights: str, device: str = "cpu") -> list[str]:
    """Return how a run differs from the packaged study of its name, a phrase each.

    Parameters
    ----------
    study : Study
        As it was run.
    files : str
        "published", "simulated", or how they differ (``Recordings.origin``).
    weights : str
        From :func:`weights_of`.
    device : str
        Where networks and critics were trained.

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
    if study.encoder is not None and study.encoder.name not in FIXED:
        from ..eeg.encoders import EEGPT_WEIGHTS

        if weights.startswith("random"):
            lines.append("encoder weights are random")
        elif study.encoder.name == "eegpt" and weights != EEGPT_WEIGHTS.sha256:
            lines.append("encoder weights are not the published file")
    ours, published = _flat(study), _flat(preset)
    solved = [m for m in study.methods.values() if m.method == "iterative_mgpa"]
    if device.startswith("cuda") and any("lbfgs" not in m.parameters.get("critics", ()) for m in solved):
        lines.append(
            "logistic critics are converged Newton solutions on a GPU (published: early-stopped lbfgs)"
        )
    if "quick" in study.overlays:
        lines.append("quick settings")
    if ours["encoder.name"] != published["encoder.name"]:  # whose parameters are then others, too
        for flat in (ours, published):
            for key in [key for key in flat if key.startswith("encoder.") and key != "encoder.name"]:
                del flat[key]
    absent = [name for name in preset.methods if name not in study.methods]
    added = [name for name in study.methods if name not in preset.methods]
    lines += [f"left out: {', '.join(absent)}"] if absent else []
    lines += [f"added: {', '.join(added)}"] if added else []
    for key in {**published, **ours}:
        if key.startswith("methods.") and key.split(".", 1)[1].startswith(
            tuple(f"{n}." for n in absent + added)
        ):
            continue
        if ours.get(key) != published.get(key) and not (
            key.endswith(".critics") and "lbfgs" in (ours.get(key) or ())
        ):
            lines.append(f"{key} is {_short(ours.get(key))} (preset: {_short(published.get(key))})")
    return lines


def heading(study: Study, files: str, differences: list[str]) -> str:
    """Return what a run's numbers are called: "Ours" only if nothing differs from the preset."""
    if study.name not in presets():
        return "This study"
    if not differences:
        return "Ours"
    if files == "simulated":
        return "Simulated"
    return "Quick" if "quick" in study.overlays else "Changed"


def _flat(study: Study) -> dict[str, Any]:
    """Return settings by their dotted names; where files are is left out."""
    settings = study.model_dump(mode="json", exclude=set(_IGNORED))
    for name in ("folder", "table", "simulate"):
        del settings["data"][name]
    if settings["encoder"] is not None:
        del settings["encoder"]["checkpoint"]  # known by its checksum
    return dict(_pairs(settings))


def _pairs(value: Any, start: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _pairs(inner, f"{start}.{key}" if start else str(key))
    else:
        yield start, value


def _short(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
