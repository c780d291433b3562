"""The maps of a study's finished cells, each by its name, ready to be applied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..audit.store import Store, resolve_device
from ..errors import StudyError
from ..maps import CorrectionMap
from .arms import check_arms
from .config import Study
from .material import prepare
from .recordings import Recordings
from .reuse import chosen_maps
from .run import study_plans
from .splits import make_split, split_names


def study_maps(
    study: Study, workspace: Path, *, device: str = "auto"
) -> dict[str, Callable[[], CorrectionMap]]:
    """Return the maps of a study's finished cells, by name; each is opened when it is called for.

    Parameters
    ----------
    study : Study
        As it was run.
    workspace : path
        Where it was run; nothing is computed, and cells that are not finished are not there.
    device : str
        As it was run.

    Returns
    -------
    dict of name to function
        Names are ``split/method/fit``, without the split where there is one, and without the fit where a
        method has one. Maps carry their coordinates: ``from_raw`` takes the encoder's own features.
    """
    workspace = Path(workspace)
    check_arms(study)
    recordings = Recordings(study, workspace, device=device)
    tasks = recordings.tasks if study.reuse is None else study.reuse.tasks
    if not all(recordings.is_kept(task) for task in tasks):
        raise StudyError(f"{workspace} has no tables of this study; was it run there, with these settings?")
    splits = split_names(study)
    maps: dict[str, Callable[[], CorrectionMap]] = {}
    for split, rotation in splits.items():
        start = "" if len(splits) == 1 else f"{split}/"
        if study.reuse is not None:
            material = prepare(study, recordings, rotation)
            store = Store(workspace / "cells")
            for method, fitted in chosen_maps(study, material, store, resolve_device(device)).items():
                maps |= _named(start + method, [_given(m) for m in fitted])
            continue
        _, plan = next(
            study_plans(study, make_split(study, recordings, split, rotation), cache=workspace / "cells",
                        device=device)
        )  # fmt: skip
        for method, openers in plan.finished().items():
            maps |= _named(start + method, openers)
    return maps


def find_map(maps: dict[str, Callable[[], CorrectionMap]], name: str) -> CorrectionMap:
    """Return the map of one cell.

    Parameters
    ----------
    maps : dict
        From :func:`study_maps`.
    name : str
        Of the cell, or as much of it as names one: "MGPA-CF" of a study with one split.
    """
    near = [cell for cell in maps if cell == name] or [cell for cell in maps if f"/{name}/" in f"/{cell}/"]
    if len(near) == 1:
        return maps[near[0]]()
    listed = ", ".join(near or maps) or "none"
    raise StudyError(
        f"{name!r} names {len(near)} finished cells; " + ("they are" if near else "there are") + f" {listed}."
    )


def _named(name: str, openers: list[Any]) -> dict[str, Any]:
    return {name if len(openers) == 1 else f"{name}/{i}": opener for i, opener in enumerate(openers)}


def _given(m: CorrectionMap) -> Callable[[], CorrectionMap]:
    return lambda: m
