"""The data sets this package can read: where each is described, how to fetch it, whether it is complete."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...errors import DownloadError, first_few, printable
from .fetching import EEGPT_WEIGHTS, RemoteFile, is_fetched, listing

_TASKS = ("N170", "oddball_active", "oddball_passive")
#: Data sets, and the weights of an encoder, by name: a title, the paper (``doi``), the provider's page
#: (``home``), and where the files are (``address``, as :func:`~mgpa.eeg.datasets.fetching.listing` takes it,
#: or the one file). Some have ``tasks``; ``only``, patterns of the files that are needed; or ``pinned``, how
#: many files and bytes a version that does not change has.
DATASETS: dict[str, dict[str, Any]] = {
    "wearable_ssvep": {
        "title": "Zhu et al. 2021: SSVEP with dry and wet electrodes, 102 participants",
        "doi": "10.3390/s21041256",
        "home": "http://bci.med.tsinghua.edu.cn/download.html",
        "address": "figshare:13560281.v4",
        "pinned": (106, 973_933_622),
    },
    "neuroscan_flex": {
        "title": "Williams et al. 2020: ERPs with Neuroscan and Emotiv Flex worn at once",
        "doi": "10.7717/peerj.9713",
        "home": "https://osf.io/zj3f5",
        "address": "osf:zj3f5",
        "tasks": _TASKS,
        # The project has other parts, of other tasks and with gel.
        "only": tuple(f"*Saline Raw Data/{task}/*" for task in _TASKS),
    },
    "eegpt": {
        "title": "Wang et al. 2024: trained weights of EEGPT, the paper's encoder",
        "doi": "",
        "home": "https://huggingface.co/braindecode/eegpt-pretrained",
        "address": EEGPT_WEIGHTS,
    },
}


@dataclass(frozen=True)
class Inventory:
    """The files of a data set, present and missing, by the names in the order in which they are expected.

    ``problems`` has a sentence each about files that are there and cannot be used; ``checks`` what was
    published about the data, and what these files give. Simulated files differ there, and are complete.
    """

    dataset: str
    folder: Path
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    checks: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether everything expected is there and can be used."""
        return not self.missing and not self.problems

    def __str__(self) -> str:
        n = len(self.present) + len(self.missing)
        lines = [f"{self.dataset} in {self.folder}: {len(self.present)} of {n} files"]
        if self.missing:
            lines.append(f"missing     {first_few(self.missing, 10)}")
        lines += [f"problem     {problem}" for problem in self.problems]
        for what, (published, computed) in self.checks.items():
            word = "ok" if published == computed else "differs"
            lines.append(f"{word:<12}{beside_published(what, published, computed)}")
        lines.append("complete" if self.complete else "not complete")
        return "\n".join(map(printable, lines))


def beside_published(what: str, published: Any, computed: Any) -> str:
    """Return a line with what the files give, and what was published."""
    return f"{what}: {computed}, {'' if published == computed else f'not {published} '}as published"


def find_dataset(name: str) -> str:
    """Return the name of a data set, which may be written with hyphens."""
    if name.replace("-", "_") not in DATASETS:
        raise ValueError(f"No data set {name!r}. Data sets: {', '.join(DATASETS)}.")
    return name.replace("-", "_")


def dataset_files(name: str, only: Sequence[str] = (), address: str | None = None) -> list[RemoteFile]:
    """Return the files of a data set, published or at another ``address``.

    ``only`` has patterns like ``S00*`` for the whole name or its last part. Without any, everything that is
    needed. A repository that lists other files than the pinned version has is an error.
    """
    source = DATASETS[find_dataset(name)]
    if address is not None:
        files, patterns = listing(address), tuple(only)
    elif isinstance(source["address"], RemoteFile):
        return [source["address"]]
    else:
        files, patterns = listing(source["address"]), tuple(only) or source.get("only", ())
        listed = len(files), sum(file.size for file in files)
        pinned = source.get("pinned", listed)
        if listed != pinned:
            raise DownloadError(
                f"{source['address']} lists {listed[0]} files of {listed[1]} bytes; expected {pinned[0]} of "
                f"{pinned[1]}. Try again later, or look for it at {source['home']}."
            )
    chosen = [
        file
        for file in files
        if not patterns
        or any(fnmatchcase(text, p) for p in patterns for text in (file.name, file.name.rpartition("/")[2]))
    ]
    if not chosen:
        first = ", ".join(file.name for file in files[:5])
        raise ValueError(f"None of the {len(files)} files matches {' '.join(patterns)}. Files: {first}, ….")
    return chosen


def verify_dataset(
    name: str, folder: str | os.PathLike[str], tasks: Sequence[str] | None = None, *, check: bool = False
) -> Inventory:
    """Return what a folder has of a data set, or of some of its tasks, and what it lacks.

    ``check`` also reads every recording, and compares counts with the published ones.
    """
    name, folder = find_dataset(name), Path(folder)
    address, available = DATASETS[name].get("address"), DATASETS[name].get("tasks", ())
    if unknown := [task for task in tasks or () if task not in available]:
        raise ValueError(f"{name} has no task {', '.join(unknown)}. Tasks: {', '.join(available) or 'none'}.")
    if not folder.is_dir():
        raise FileNotFoundError(f"No folder {folder}.")
    if isinstance(address, RemoteFile):
        try:
            present = is_fetched(address, folder)
        except DownloadError as error:
            return Inventory(name, folder, present=(address.name,), problems=(str(error),))
        files = (address.name,)
        return Inventory(name, folder, files if present else (), () if present else files)
    reader = importlib.import_module(f"{__package__}.{name}")
    options = ({"tasks": tasks} if tasks else {}) | ({"check": True} if check else {})
    result: Inventory = getattr(reader, f"{name}_inventory")(folder, **options)
    return result
