"""The wearable SSVEP collection of Zhu et al. (2021, doi 10.3390/s21041256), as its providers store it.

102 people, each with dry and with wet electrodes: twelve flickering targets, ten blocks. One file a person
(S001.mat, …) with ``data`` of channels x samples x electrodes x blocks x targets, in microvolts, and
Subjects_Information.mat.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.progress import progress
from ..trials import Trials
from .inventory import Inventory
from .matlab import read_array, read_rows

CHANNELS = ("POz", "PO3", "PO4", "PO5", "PO6", "Oz", "O1", "O2")
ELECTRODES = ("dry", "wet")
# Of the twelve targets, in the order of the files.
FREQUENCIES = (9.25, 11.25, 13.25, 9.75, 11.75, 13.75, 10.25, 12.25, 14.25, 10.75, 12.75, 14.75)
SFREQ = 250.0
TMIN = -0.5
SAMPLES = 710
BLOCKS = 10
N_PEOPLE = 102
FAST = 12.0
INFORMATION = "Subjects_Information.mat"

# By which words a column is known, the most telling first.
_WORDS = {
    "id": ("id", "participant", "subject", "subjects", "sub", "name", "number", "no", "index"),
    "gender": ("gender", "sex"),
    "first_electrode": ("first", "order", "electrode", "electrodes"),
    "age": ("age", "ages"),
}
_GENDERS = {"f": "female", "female": "female", "woman": "female", "m": "male", "male": "male", "man": "male"}


@dataclass(frozen=True)
class Subject:
    """What is known about a participant; ``age`` is None where the provider does not say."""

    id: str
    gender: str
    first_electrode: str
    age: int | float | None = None


def wearable_ssvep_inventory(
    folder: str | Path, *, check: bool = False, blocks: int = BLOCKS, verbose: bool = False
) -> Inventory:
    """Say which files are there, missing, or cannot be used.

    Parameters
    ----------
    folder : path
        Where they should be. Expected are the people in Subjects_Information.mat; without it, all 102.
    check : bool
        Also read every file.
    blocks : int
        Blocks a file should have; the provider's have ten.
    verbose : bool
        Show progress.
    """
    folder = _folder(folder)
    misnamed = _misnamed(folder)
    problems = list(misnamed.values())
    try:
        people = list(subjects(folder))
    except FileNotFoundError:
        people = [_id(i + 1) for i in range(N_PEOPLE)]
    except (OSError, ValueError) as error:
        people = [_id(i + 1) for i in range(N_PEOPLE)]
        problems.append(str(error))
    expected = [f"{person}.mat" for person in people] + [INFORMATION]
    names = {path.name for path in folder.iterdir() if path.suffix.lower() == ".mat"}
    present = [name for name in expected if name in names]
    seen: dict[bytes, str] = {}
    for i in progress(range(len(people) if check else 0), "checking", verbose):
        if f"{people[i]}.mat" in names:
            try:
                _read_person(folder, people[i], blocks, seen)
            except (OSError, ValueError) as error:
                problems.append(str(error))
    return Inventory(
        "Wearable SSVEP",
        folder,
        tuple(present),
        tuple(name for name in expected if name not in names),
        tuple(sorted(names - set(expected) - set(misnamed))),
        tuple(problems),
    )


def participants(folder: str | Path) -> tuple[str, ...]:
    """Return the ids of the people whose files are there, in order."""
    folder = _folder(folder)
    _refuse_misnamed(folder)
    people = tuple(sorted(path.stem for path in folder.iterdir() if re.fullmatch(r"S\d{3}\.mat", path.name)))
    if not people:
        raise FileNotFoundError(f"{folder} has no files S001.mat, S002.mat, ….{_elsewhere(folder)}")
    return people


def subjects(folder: str | Path) -> dict[str, Subject]:
    """Read Subjects_Information.mat: who took part, and which electrode each of them wore first.

    Its columns are known by the words in their names (subject or id; gender or sex; age; first, order or
    electrode), its rows may be a struct array, a struct of arrays, or a cell with a header row. An unknown
    gender or electrode is kept as it is written there.
    """
    path = _folder(folder) / INFORMATION
    rows = read_rows(path)
    names = list(rows[0])
    columns = {wanted: _column(path, names, wanted) for wanted in _WORDS}
    people: dict[str, Subject] = {}
    for i, row in enumerate(rows):
        entry = {wanted: row[name] if name else None for wanted, name in columns.items()}
        number = re.findall(r"\d+", str(entry["id"]))
        if len(number) != 1:
            raise ValueError(f"{path}: row {i} has {entry['id']!r} as its participant; expected S001 or 1.")
        person = _id(int(number[0]))
        if person in people:
            raise ValueError(f"{path} lists {person} twice.")
        for name in ("gender", "first_electrode"):
            if entry[name] in ("", None):
                raise ValueError(f"{path} does not say the {name.replace('_', ' ')} of {person}.")
        gender = str(entry["gender"]).lower()
        age = entry["age"] if isinstance(entry["age"], (int, float)) else None
        people[person] = Subject(
            person, _GENDERS.get(gender, gender), _first_electrode(str(entry["first_electrode"])), age
        )
    return dict(sorted(people.items()))


def read_wearable_ssvep(
    folder: str | Path,
    participants: Sequence[str] | None = None,
    electrodes: Sequence[str] = ELECTRODES,
    *,
    blocks: int = BLOCKS,
    verbose: bool = False,
) -> Trials:
    """Read trials: 8 channels at 250 Hz, from half a second before the flicker on, in volts (float32).

    Parameters
    ----------
    folder : path
        With the provider's files.
    participants : sequence of str or None
        Ids as S001. None: everybody in Subjects_Information.mat, each of whom must have a file.
    electrodes : sequence of str
        "dry", "wet" or both.
    blocks : int
        Blocks in every file; the provider's have ten.
    verbose : bool
        Show progress.

    Returns
    -------
    Trials
        By participant, electrode, block and target, with the columns participant, source (the electrode),
        block and target (both counted from 0), frequency (Hz), label (1 from 12 Hz on, else 0) and trial.
    """
    folder = _folder(folder)
    electrodes = [electrodes] if isinstance(electrodes, str) else list(electrodes)
    unknown = [name for name in electrodes if name not in ELECTRODES]
    if unknown or not electrodes or len(set(electrodes)) != len(electrodes):
        raise ValueError(f"electrodes are {electrodes}; expected dry, wet or both.")
    _refuse_misnamed(folder)
    people = _listed(folder) if participants is None else list(participants)
    if not people or len(set(people)) != len(people):
        raise ValueError(f"participants are {people}; expected different ids, at least one.")
    missing = [person for person in people if not (folder / f"{person}.mat").is_file()]
    if missing:
        names = ", ".join(f"{person}.mat" for person in missing[:8])
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise FileNotFoundError(f"{folder} has no {names}{more}.{_elsewhere(folder)}")
    each = len(electrodes) * blocks * len(FREQUENCIES)
    data = np.empty((len(people) * each, len(CHANNELS), SAMPLES), np.float32)
    index = [ELECTRODES.index(name) for name in electrodes]
    seen: dict[bytes, str] = {}
    for i in progress(range(len(people)), "reading", verbose):
        microvolts = _read_person(folder, people[i], blocks, seen)[:, :, index]
        data[i * each : (i + 1) * each] = (microvolts.transpose(2, 3, 4, 0, 1) * 1e-6).reshape(
            each, *data.shape[1:]
        )
    grid = np.meshgrid(people, electrodes, np.arange(blocks), np.arange(len(FREQUENCIES)), indexing="ij")
    person, source, block, target = (values.reshape(-1) for values in grid)
    frequency = np.array(FREQUENCIES)[target]
    columns = {
        "participant": person,
        "source": source,
        "label": (frequency >= FAST).astype(np.int64),
        "block": block,
        "target": target,
        "frequency": frequency,
        "trial": np.array(
            [f"{p}-{s}-{b}-{t}" for p, s, b, t in zip(person, source, block, target, strict=True)]
        ),
    }
    info = {"dataset": "Wearable SSVEP", "doi": "10.3390/s21041256"}
    return Trials(data, CHANNELS, SFREQ, TMIN, columns, info)


def _folder(folder: str | Path) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}.")
    return folder


def _id(number: int) -> str:
    return f"S{number:03d}"


def _listed(folder: Path) -> list[str]:
    listed = list(subjects(folder))
    unlisted = sorted(set(participants(folder)) - set(listed))
    if unlisted:
        names = ", ".join(f"{person}.mat" for person in unlisted)
        raise ValueError(f"{folder / INFORMATION} does not list {names}; pass participants to read them.")
    return listed


def _misnamed(folder: Path) -> dict[str, str]:
    """Return the files that look like somebody's and have another name than theirs, and what to do."""
    problems = {}
    for path in sorted(folder.iterdir()):
        like = re.fullmatch(r"s(?:ub(?:ject)?)?[\W_]*0*(\d+)(\D.*)?\.mat", path.name, re.IGNORECASE)
        if not like or re.fullmatch(r"S\d{3}\.mat", path.name) or int(like[1]) > N_PEOPLE:
            continue
        right = folder / f"{_id(int(like[1]))}.mat"
        advice = (
            f"is a second file of {right.stem} besides {right.name}; remove one of them"
            if right.exists()
            else f"looks like the file of {right.stem}; rename it to {right.name}"
        )
        problems[path.name] = f"{path} {advice}."
    return problems


def _refuse_misnamed(folder: Path) -> None:
    problems = _misnamed(folder)
    if problems:
        raise ValueError(" ".join(problems.values()))


def _elsewhere(folder: Path) -> str:
    path = next(folder.glob("*/S[0-9][0-9][0-9].mat"), None)
    return f" There is {path}; put all files into one folder." if path else ""


def _read_person(folder: Path, person: str, blocks: int, seen: dict[bytes, str]) -> NDArray[Any]:
    """Return somebody's signals, which nobody of those seen before may have."""
    shape = (len(CHANNELS), SAMPLES, len(ELECTRODES), blocks, len(FREQUENCIES))
    path = folder / f"{person}.mat"
    signals = read_array(path, "data", shape)
    # One person under two names would be on both sides of every split.
    digest = hashlib.sha256(signals.tobytes(order="A")).digest()
    if seen.setdefault(digest, person) != person:
        raise ValueError(
            f"{path} holds the same signals as {seen[digest]}.mat; one of them is a copy. Fetch both again."
        )
    return signals


def _column(path: Path, names: list[str], wanted: str) -> str | None:
    """Return the column that the most telling of a property's words names."""
    for word in _WORDS[wanted]:
        # firstElectrode and First_Electrode are two words, each.
        matches = [name for name in names if word in re.findall(r"[a-z]+", _spaced(name))]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise ValueError(f"{path} has several columns for {wanted}: {', '.join(matches)}.")
    if wanted == "age":
        return None
    raise ValueError(
        f"{path} has no column for {wanted} (by its name: {', '.join(_WORDS[wanted])}); it has "
        f"{', '.join(names)}."
    )


def _spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _first_electrode(text: str) -> str:
    words = re.findall("dry|wet", text.lower())
    return words[0] if words else text
