"""The data sets this package can read: where each is described, how to fetch it, whether it is complete."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...errors import DownloadError
from .download import download_file
from .inventory import Inventory
from .listings import RemoteFile, listing, require_portable_names


@dataclass(frozen=True)
class PublicDataset:
    """A public data set.

    Parameters
    ----------
    name, title, doi, home : str
        What it is called, what it is, the paper, and the provider's page.
    tasks : tuple of str
        What it can be read in parts by.
    address : str or None
        Where its files are, as :func:`~mgpa.eeg.datasets.listings.listing` takes it.
    only : tuple of str
        Patterns of the files there that are needed; none: all of them.
    n_files, n_bytes : int or None
        How many these are, where a version that does not change is pinned.
    """

    name: str
    title: str
    doi: str
    home: str
    tasks: tuple[str, ...] = ()
    address: str | None = None
    only: tuple[str, ...] = ()
    n_files: int | None = None
    n_bytes: int | None = None

    @property
    def advice(self) -> str:
        """Where to look for another address."""
        return f"Look for it at {self.home} or in https://doi.org/{self.doi} (data availability)."


DATASETS = {
    source.name: source
    for source in (
        PublicDataset(
            "wearable_ssvep",
            "Zhu et al. 2021: SSVEP with dry and wet electrodes, 102 participants",
            "10.3390/s21041256",
            "http://bci.med.tsinghua.edu.cn/download.html",
            address="figshare:13560281.v4",
            n_files=106,
            n_bytes=973_933_622,
        ),
        PublicDataset(
            "neuroscan_flex",
            "Williams et al. 2020: ERPs with Neuroscan and Emotiv Flex worn at once",
            "10.7717/peerj.9713",
            "https://osf.io/zj3f5",
            ("N170", "oddball_active", "oddball_passive"),
            address="osf:zj3f5",
            # The project has other parts, of other tasks and with gel.
            only=tuple(f"*Saline Raw Data/{t}/*" for t in ("N170", "oddball_active", "oddball_passive")),
        ),
    )
}


def find_dataset(name: str) -> PublicDataset:
    """Return the data set of a name, which may have hyphens.

    Examples
    --------
    >>> find_dataset("wearable_ssvep").doi
    '10.3390/s21041256'
    """
    if name.replace("-", "_") not in DATASETS:
        raise ValueError(f"There is no data set {name!r}; there are {', '.join(DATASETS)}.")
    return DATASETS[name.replace("-", "_")]


def dataset_files(name: str, only: Sequence[str] = ()) -> list[RemoteFile]:
    """Return a data set's files where they are published, or those that match a pattern.

    Parameters
    ----------
    name : str
        Of a data set with an address.
    only : sequence of str
        See :func:`remote_files`. Without any, everything that the data set needs.

    Raises
    ------
    DownloadError
        The repository lists other files than the pinned version has.
    """
    source = find_dataset(name)
    if source.address is None:
        raise ValueError(f"No address of {name} is known here. {source.advice}")
    files = listing(source.address)
    listed = len(files), sum(file.size or 0 for file in files)
    if source.n_files is not None and listed != (source.n_files, source.n_bytes):
        raise DownloadError(
            f"{source.address} lists {listed[0]} files of {listed[1]} bytes; expected {source.n_files} of "
            f"{source.n_bytes}. Try again later, or name another source. {source.advice}"
        )
    return _matching(files, only or source.only)


def remote_files(address: str, only: Sequence[str] = ()) -> list[RemoteFile]:
    """Return the files behind an address (see :func:`listing`), or those that match a pattern like ``S00*``.

    A pattern may match the whole name or its last part.
    """
    return _matching(listing(address), only)


def _matching(files: list[RemoteFile], only: Sequence[str]) -> list[RemoteFile]:
    if not only:
        return files
    chosen = [
        file
        for file in files
        if any(fnmatchcase(text, p) for p in only for text in (file.name, file.name.rpartition("/")[2]))
    ]
    if not chosen:
        shown = ", ".join(file.name for file in files[:5])
        raise ValueError(f"None of the {len(files)} files matches {' '.join(only)}; they are {shown}, ….")
    return chosen


def fetch_files(files: Sequence[RemoteFile], folder: str | os.PathLike[str], *, verbose: bool = False) -> int:
    """Download files into a folder and return how many were not there before.

    Run again after an interruption, it goes on where it was.

    Parameters
    ----------
    files : list of RemoteFile
        As :func:`remote_files` gives them; folders in their names are made.
    folder : path
        Where to put them.
    verbose : bool
        Show a line per file on stderr.
    """
    require_portable_names(files)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise DownloadError(f"{folder} is a file; name a folder to put the data in.")
    folder.mkdir(parents=True, exist_ok=True)
    _require_space(files, folder)
    new = 0
    for file in files:
        path = folder / file.name
        before = _identity(path)
        download_file(file.url, path, sha256=file.sha256, md5=file.md5, size=file.size, verbose=verbose)
        new += _identity(path) != before
    return new


def _identity(path: Path) -> Any:
    """Return what changes when a file is put in place anew."""
    stat = path.stat() if path.is_file() else None
    return None if stat is None else (stat.st_ino, stat.st_mtime_ns)


def _require_space(files: Sequence[RemoteFile], folder: Path) -> None:
    """Say before the download, not after hours of it, that the disk is too small."""
    needed = 0
    for file in files:
        here = [folder / file.name, folder / f"{file.name}.part"]
        there = sum(path.stat().st_size for path in here if path.is_file())
        needed += max((file.size or 0) - there, 0)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(
            f"{folder} has {free / 1e9:.1f} GB of free space; {needed / 1e9:.1f} GB are still to be fetched."
        )


def verify_dataset(
    name: str, folder: str | os.PathLike[str], tasks: Sequence[str] | None = None, *, check: bool = False
) -> Inventory:
    """Return what a folder has of a data set, or of some of its tasks, and what it lacks.

    Parameters
    ----------
    name : str
        Of the data set.
    folder : path
        Where its files are.
    tasks : sequence of str or None
        None: all of them.
    check : bool
        Also read every recording, and compare counts with the published ones where there are any. Without it
        only what is quick is compared.
    """
    source = find_dataset(name)
    if tasks is not None and not source.tasks:
        raise ValueError(f"{name} has no tasks to choose from; leave them out.")
    unknown = [task for task in tasks or () if task not in source.tasks]
    if unknown:
        raise ValueError(f"{name} has no task {', '.join(unknown)}; there are {', '.join(source.tasks)}.")
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}.")
    reader = importlib.import_module(f"{__package__}.{source.name}")
    options: dict[str, Any] = ({"tasks": tasks} if tasks else {}) | ({"check": True} if check else {})
    inventory: Inventory = getattr(reader, f"{source.name}_inventory")(folder, **options)
    return inventory
