"""The data sets this package can read: where each is described, how to fetch it, whether it is complete."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import DownloadError, first_few, printable
from .fetching import EEGPT_WEIGHTS, RemoteFile, is_fetched, listing


class Check(NamedTuple):
    """Something that was published about a data set, and what these files give."""

    what: str
    published: Any
    computed: Any

    @property
    def passed(self) -> bool:
        """Whether both agree."""
        return bool(self.published == self.computed)

    def __str__(self) -> str:
        beside = "as published" if self.passed else f"not {self.published} as published"
        return f"{self.what}: {self.computed}, {beside}"


@dataclass(frozen=True)
class Inventory:
    """The files of a data set, present and missing, by the names in the order in which they are expected.

    ``problems`` has a sentence each about files that are there and cannot be used; ``checks`` compare what
    they hold with what was published. Simulated files fail these, and are complete.
    """

    dataset: str
    folder: Path
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything expected is there and can be used."""
        return not self.missing and not self.problems

    def __str__(self) -> str:
        n = len(self.present) + len(self.missing)
        lines = [f"{self.dataset} in {self.folder}: {len(self.present)} of {n} files."]
        if self.missing:
            lines.append(f"Missing ({len(self.missing)}): {first_few(self.missing)}")
        return "\n".join(map(printable, [*lines, *self.problems, *map(str, self.checks)]))


@dataclass(frozen=True)
class PublicDataset:
    """A public data set, or the public weights of an encoder: its paper, and the provider's page.

    ``address`` says where its files are, as :func:`~mgpa.eeg.datasets.fetching.listing` takes it, or is the
    one file. ``only`` has patterns of the files there that are needed, if not all are; ``pinned`` how many
    files and bytes a version that does not change has.
    """

    name: str
    title: str
    doi: str
    home: str
    address: str | RemoteFile = ""
    tasks: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    pinned: tuple[int, int] | None = None


_TASKS = ("N170", "oddball_active", "oddball_passive")
DATASETS = {
    source.name: source
    for source in (
        PublicDataset(
            "wearable_ssvep",
            "Zhu et al. 2021: SSVEP with dry and wet electrodes, 102 participants",
            "10.3390/s21041256",
            "http://bci.med.tsinghua.edu.cn/download.html",
            "figshare:13560281.v4",
            pinned=(106, 973_933_622),
        ),
        PublicDataset(
            "neuroscan_flex",
            "Williams et al. 2020: ERPs with Neuroscan and Emotiv Flex worn at once",
            "10.7717/peerj.9713",
            "https://osf.io/zj3f5",
            "osf:zj3f5",
            tasks=_TASKS,
            # The project has other parts, of other tasks and with gel.
            only=tuple(f"*Saline Raw Data/{task}/*" for task in _TASKS),
        ),
        PublicDataset(
            "eegpt",
            "Wang et al. 2024: trained weights of EEGPT, the paper's encoder",
            "",
            "https://huggingface.co/braindecode/eegpt-pretrained",
            EEGPT_WEIGHTS,
        ),
    )
}


def find_dataset(name: str) -> PublicDataset:
    """Return the data set of a name, which may have hyphens."""
    if name.replace("-", "_") not in DATASETS:
        raise ValueError(f"No data set {name!r}. Data sets: {', '.join(DATASETS)}.")
    return DATASETS[name.replace("-", "_")]


def dataset_files(name: str, only: Sequence[str] = (), address: str | None = None) -> list[RemoteFile]:
    """Return the files of a data set, published or at another ``address``.

    ``only`` has patterns like ``S00*`` for the whole name or its last part. Without any, everything that is
    needed. A repository that lists other files than the pinned version has is an error.
    """
    source = find_dataset(name)
    if address is not None:
        files, patterns = listing(address), tuple(only)
    elif isinstance(source.address, RemoteFile):
        return [source.address]
    else:
        files, patterns = listing(source.address), tuple(only) or source.only
        listed = len(files), sum(file.size or 0 for file in files)
        if source.pinned not in (None, listed):
            raise DownloadError(
                f"{source.address} lists {listed[0]} files of {listed[1]} bytes; expected {source.pinned[0]} "
                f"of {source.pinned[1]}. Try again later, or look for it at {source.home}."
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
    source, folder = find_dataset(name), Path(folder)
    unknown = [task for task in tasks or () if task not in source.tasks]
    if unknown:
        raise ValueError(
            f"{name} has no task {', '.join(unknown)}. Tasks: {', '.join(source.tasks) or 'none'}."
        )
    if not folder.is_dir():
        raise FileNotFoundError(f"No folder {folder}.")
    if isinstance(source.address, RemoteFile):
        files = (source.address.name,)
        try:
            present = is_fetched(source.address, folder)
        except DownloadError as error:
            return Inventory(source.name, folder, files, (), (str(error),))
        return Inventory(source.name, folder, files if present else (), () if present else files)
    reader = importlib.import_module(f"{__package__}.{source.name}")
    options = ({"tasks": tasks} if tasks else {}) | ({"check": True} if check else {})
    result: Inventory = getattr(reader, f"{source.name}_inventory")(folder, **options)
    return result
