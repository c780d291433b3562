"""What must be right before a study computes anything: methods, files, roles, weights, disk and memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import StudyError, TableError, first_few
from .arms import check_arms
from .config import FIXED, Study
from .recordings import Recordings
from .splits import split_names


def check_study(study: Study, recordings: Recordings) -> None:
    """Raise one error that lists everything that would stop a study later; nothing is computed."""
    check_arms(study)
    problems = [*_files(study, recordings), *_weights(study), *_room(study, recordings.workspace)]
    if problems:
        raise StudyError("The study cannot be run:\n" + "\n".join(f"  {line}" for line in problems))


def _files(study: Study, recordings: Recordings) -> Iterator[str]:
    """Yield what is missing in a folder of recordings, and roles of participants who are not there."""
    data = study.data
    if data.kind == "table":
        if not os.path.lexists(str(data.table)) and "://" not in str(data.table):
            yield f"data.table: {data.table} does not exist"
        return
    if data.folder is None:  # simulated when the study runs
        return
    if not data.folder.is_dir():
        yield f"data: the folder {data.folder} does not exist"
        return
    people = recordings.participants()
    if not people:
        yield f"data: {data.folder} has no recordings of {data.kind} (`mgpa data fetch {data.kind}`)"
        return
    for role, listed in study.roles.people.items():
        absent = sorted(set(listed) - people)
        if absent:
            yield f"roles.people: {role} names {first_few(absent)}, of whom {data.folder} has no recordings"
    if study.roles.rotations:
        from ..tables.roles import rotated

        strata = recordings.strata(study.roles.stratify)
        try:
            for rotation in split_names(study).values():
                rotated(strata, int(rotation or 0), study.roles.folds, study.roles.seed)
        except TableError as error:
            yield f"roles: {error}"


def _weights(study: Study) -> Iterator[str]:
    """Yield a missing checkpoint."""
    encoder = study.encoder
    if encoder is None or encoder.name in FIXED or encoder.parameters.get("weights") == "random":
        return
    if encoder.checkpoint is None:
        yield f"encoder: {encoder.name} needs trained weights; pass checkpoint (--checkpoint FILE)"
    elif encoder.checkpoint != "paper" and not Path(encoder.checkpoint).is_file():
        yield f"encoder.checkpoint: {encoder.checkpoint} does not exist"


def _room(study: Study, workspace: Path) -> Iterator[str]:
    """Yield too little disk or memory, by what the packaged studies were measured to need."""
    place = workspace.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 1e9
    if free < study.needs.disk:
        yield f"disk: {place} has {free:.1f} GB free; the study needs about {study.needs.disk:g} GB"
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (AttributeError, ValueError, OSError):  # a system that does not tell
        return
    if memory < study.needs.memory:
        yield f"memory: this machine has {memory:.1f} GB; the study needs about {study.needs.memory:g} GB"
