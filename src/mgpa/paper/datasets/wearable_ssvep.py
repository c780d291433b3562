"""Read the wearable SSVEP data set of Zhu et al. (2021, doi 10.3390/s21041256).

The data set has 102 participants with dry and wet electrodes, twelve flickering targets and ten blocks. One
file per participant (S001.mat, …) has ``data`` of channels x samples x electrodes x blocks x targets, in
microvolts. Subjects_Information.mat is a cell array with one row per participant. The files may be in one
folder or in its subfolders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.progress import progress
from ...eeg.trials import Trials
from ...errors import RecordingError, first_few
from ...tables.columns import rotated
from .catalogue import Inventory
from .raw_files import read_array, read_cell

CHANNELS = ("POz", "PO3", "PO4", "PO5", "PO6", "Oz", "O1", "O2")
ELECTRODES = ("dry", "wet")
# Frequencies of the twelve targets in Hz, in the order of the files.
FREQUENCIES = (9.25, 11.25, 13.25, 9.75, 11.75, 13.75, 10.25, 12.25, 14.25, 10.75, 12.75, 14.75)
SFREQ, TMIN, SAMPLES, BLOCKS, N_PEOPLE = 250.0, -0.5, 710, 10, 102
FAST = 12.0
INFORMATION = "Subjects_Information.mat"
# Columns read from Subjects_Information.
COLUMNS = {"gender": "Gender", "first_electrode": "Headband to wear first"}

# The paper's fold (of five, stratified by first electrode and gender) for S001, S002, ….
FOLD_SEED = 20260903
PAPER_FOLDS = (
    "142312310402333022210433440402131234324104001112112432443020210312114134334040023330140242304102120140"
)


def wearable_ssvep_inventory(folder: str | Path, *, check: bool = False) -> Inventory:
    """Return which files are present, missing or unusable, and whether they match the published ones."""
    files = _files(folder)
    problems: list[str] = []
    checks: dict[str, tuple[Any, Any]] = {}
    people = [_id(i + 1) for i in range(N_PEOPLE)]
    if INFORMATION in files:
        try:
            people, checks = list(subjects(folder)), published_checks(folder)
        except (OSError, ValueError) as error:
            problems.append(str(error))
    expected = [f"{person}.mat" for person in people] + [INFORMATION]
    for person in people if check else ():
        try:
            if f"{person}.mat" in files:
                _read_person(files, person, BLOCKS)
        except (OSError, ValueError) as error:
            problems.append(str(error))
    present = tuple(name for name in expected if name in files)
    missing = tuple(name for name in expected if name not in files)
    return Inventory("Wearable SSVEP", Path(folder), present, missing, tuple(problems), checks)


def subjects(folder: str | Path) -> dict[str, dict[str, str]]:
    """Read Subjects_Information.mat: each participant's ``gender`` and ``first_electrode``, in lower case.

    The first row names the columns; the first column has no name and is ignored. Participants are S001, S002
    and so on, in the order of their rows.
    """
    path = _files(folder).get(INFORMATION)
    if path is None:
        raise FileNotFoundError(f"{folder} has no {INFORMATION}.")
    header, *rows = read_cell(path, "Subjects_Information")
    names = [" ".join(str(name).split()).lower() for name in header]
    people: dict[str, dict[str, str]] = {_id(i + 1): {} for i in range(len(rows))}
    for key, title in COLUMNS.items():
        if names.count(title.lower()) != 1:
            raise RecordingError(f"{path}: expected one column {title!r}. Columns: {header}.")
        for person, row in zip(people, rows, strict=True):
            value = row[names.index(title.lower())]
            if not isinstance(value, str) or not value:
                raise RecordingError(f"{path}: {title} of {person} is {value!r}; expected a text.")
            people[person][key] = value.lower()
    return people


def published_checks(folder: str | Path) -> dict[str, tuple[int, int]]:
    """Return published and computed facts about participants, if all 102 are listed."""
    people = subjects(folder)
    if len(people) != N_PEOPLE:
        return {}
    strata = {name: f"{person['first_electrode']}|{person['gender']}" for name, person in people.items()}
    fold = {
        name: str(k)
        for k in range(5)
        for name, role in rotated(strata, k, 5, FOLD_SEED).items()
        if role == "EVAL"
    }
    same = sum(fold[name] == published for name, published in zip(people, PAPER_FOLDS, strict=True))
    return {
        "men": (64, sum(person["gender"] == "male" for person in people.values())),
        "participants who wore dry electrodes first": (
            53,
            sum(person["first_electrode"] == "dry" for person in people.values()),
        ),
        f"participants in the paper's folds (seed {FOLD_SEED})": (N_PEOPLE, same),
    }


def read_wearable_ssvep(
    folder: str | Path,
    participants: Sequence[str] | None = None,
    electrodes: Sequence[str] = ELECTRODES,
    *,
    blocks: int = BLOCKS,
    verbose: bool = False,
) -> Trials:
    """Read trials: 8 channels at 250 Hz, starting 0.5 s before the flicker, in volts (float32).

    Trials are ordered by participant, electrode, block and target. Columns: participant, source (electrode),
    block and target (both counted from 0), frequency (Hz), label (1 from 12 Hz on, else 0) and trial.

    Parameters
    ----------
    folder : path
        Folder of the provider's files.
    participants : sequence of str or None
        Ids such as S001. None: all participants in Subjects_Information.mat; each must have a file.
    electrodes : sequence of str
        "dry", "wet" or both.
    blocks : int
        Number of blocks in each file; the provider's files have ten.
    """
    files = _files(folder)
    electrodes = [electrodes] if isinstance(electrodes, str) else list(electrodes)
    if sorted(set(electrodes)) != sorted(electrodes) or not set(electrodes) <= set(ELECTRODES):
        raise ValueError(f"electrodes is {electrodes}; expected dry, wet or both.")
    people = _people_with_files(folder, files, participants)
    each = len(electrodes) * blocks * len(FREQUENCIES)
    data = np.empty((len(people) * each, len(CHANNELS), SAMPLES), np.float32)
    index = [ELECTRODES.index(name) for name in electrodes]
    for i in progress(range(len(people)), "reading", verbose):
        microvolts = _read_person(files, people[i], blocks)[:, :, index]
        volts = microvolts.transpose(2, 3, 4, 0, 1) * 1e-6
        data[i * each : (i + 1) * each] = volts.reshape(each, *data.shape[1:])
    grid = np.meshgrid(people, electrodes, np.arange(blocks), np.arange(len(FREQUENCIES)), indexing="ij")
    person, source, block, target = (values.reshape(-1) for values in grid)
    frequency = np.array(FREQUENCIES)[target]
    trial = [f"{p}-{s}-{b}-{t}" for p, s, b, t in zip(person, source, block, target, strict=True)]
    columns = {
        "participant": person,
        "source": source,
        "label": (frequency >= FAST).astype(np.int64),
        "block": block,
        "target": target,
        "frequency": frequency,
        "trial": np.array(trial),
    }
    info = {"dataset": "Wearable SSVEP", "doi": "10.3390/s21041256"}
    return Trials(data, CHANNELS, SFREQ, TMIN, columns, info)


def _people_with_files(
    folder: str | Path, files: Mapping[str, Path], participants: Sequence[str] | None
) -> list[str]:
    """Return the requested ids, by default all listed ids; raise unless each has a file."""
    people = list(subjects(folder)) if participants is None else list(participants)
    stored = sorted(name[:4] for name in files if re.fullmatch(r"S\d{3}\.mat", name))
    if participants is None and (unlisted := [f"{person}.mat" for person in stored if person not in people]):
        raise RecordingError(
            f"{INFORMATION} in {folder} does not list {', '.join(unlisted)}; pass participants to read them."
        )
    if not people or len(set(people)) != len(people):
        raise ValueError(f"participants is {people}; expected different ids, at least one.")
    if missing := [f"{person}.mat" for person in people if f"{person}.mat" not in files]:
        raise FileNotFoundError(
            f"{folder} has no {first_few(missing)}; files must be named S001.mat, S002.mat, …."
        )
    return people


def _files(folder: str | Path) -> dict[str, Path]:
    """Return the data files by name, from the folder or else from its subfolders."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"No folder {folder}.")
    # Hidden files are unfinished or belong to the operating system.
    paths = [path for path in folder.rglob("[!.]*.[mM][aA][tT]") if path.is_file()]
    return {path.name: path for path in sorted(paths, key=lambda p: (len(p.parts), p), reverse=True)}


def _id(number: int) -> str:
    return f"S{number:03d}"


def _read_person(files: Mapping[str, Path], person: str, blocks: int) -> NDArray[Any]:
    shape = (len(CHANNELS), SAMPLES, len(ELECTRODES), blocks, len(FREQUENCIES))
    return read_array(files[f"{person}.mat"], "data", shape)
