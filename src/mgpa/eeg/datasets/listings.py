"""What a repository has: the files behind an OSF project, a figshare article, a Zenodo record or a manifest.

Every listing gives, for each file, its address, its size and a checksum where the repository states one, so
that :func:`~mgpa.eeg.datasets.download.download_file` can check and resume.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, urljoin

from ...errors import DownloadError
from .download import TIMEOUT, explain, require_pooch

#: Where the repositories answer; the environment variable of each, MGPA_OSF_API and so on, overrides it.
APIS = {
    "osf": "https://api.osf.io/v2",
    "figshare": "https://api.figshare.com/v2",
    "zenodo": "https://zenodo.org/api",
}
FORMS = "osf:abcde, figshare:12345.v1, zenodo:12345, or the http(s):// address of a list 'sha256  name'"
_NUMBERS = {"osf": r"[0-9a-z]{5,}", "figshare": r"\d+(\.v\d+)?", "zenodo": r"\d+"}
PAGE = 100  # entries a page


@dataclass(frozen=True)
class RemoteFile:
    """A file in a repository: its name (with folders, by ``/``), address, and what is known about it."""

    name: str
    url: str
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None


def listing(address: str, *, api: str | None = None) -> list[RemoteFile]:
    """Return the files behind an address, sorted by name.

    Parameters
    ----------
    address : str
        ``osf:abcde`` (a project with its components), ``figshare:12345.v1`` (a version of an article; without
        one, the newest), ``zenodo:12345`` (a record), or the address of a manifest: lines ``sha256  name`` as
        sha256sum writes them, its files beside it.
    api : str or None
        Another address of the repository's interface, for a mirror.

    Examples
    --------
    >>> listing("dropbox:1")
    Traceback (most recent call last):
    ...
    ValueError: 'dropbox:1' is no address of files; it must be osf:abcde, figshare:12345.v1, ...
    """
    if re.match(r"https?://.", address):
        return _checked(_manifest(address), address)
    kind, _, number = address.partition(":")
    if kind not in APIS or not re.fullmatch(_NUMBERS[kind], number):
        raise ValueError(f"{address!r} is no address of files; it must be {FORMS}.")
    base = (api or os.environ.get(f"MGPA_{kind.upper()}_API") or APIS[kind]).rstrip("/")
    readers: dict[str, Callable[[str, str], list[RemoteFile]]]
    readers = {"osf": _osf, "figshare": _figshare, "zenodo": _zenodo}
    try:
        files = readers[kind](base, number)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DownloadError(
            f"{address}: {base} answered in a form that is not known here ({error!r})."
        ) from None
    return _checked(files, address)


def _osf(base: str, project: str, inside: str = "") -> list[RemoteFile]:
    """Read a project's storage, folder by folder and page by page, then its components, each in a folder."""
    files: list[RemoteFile] = []
    folders = [f"{base}/nodes/{project}/files/osfstorage/?page[size]={PAGE}"]
    while folders:
        for entry in _osf_entries(folders.pop()):
            facts = entry["attributes"]
            if facts["kind"] == "folder":
                folders.append(entry["relationships"]["files"]["links"]["related"]["href"])
                continue
            hashes = (facts.get("extra") or {}).get("hashes") or {}
            name = inside + facts["materialized_path"].lstrip("/")
            files.append(
                RemoteFile(
                    name, entry["links"]["download"], facts["size"], hashes.get("sha256"), hashes.get("md5")
                )
            )
    for child in _osf_entries(f"{base}/nodes/{project}/children/?page[size]={PAGE}"):
        title = child["attributes"]["title"].strip().replace("/", "-")
        files += _osf(base, child["id"], f"{inside}{title}/")
    return files


def _osf_entries(page: str | None) -> Iterator[Any]:
    """Yield what a list has, on this page and those that follow."""
    while page:
        answer = _json(page)
        yield from answer["data"]
        page = answer["links"].get("next")


def _figshare(base: str, article: str) -> list[RemoteFile]:
    number, _, version = article.partition(".v")
    if version:
        entries = _json(f"{base}/articles/{number}/versions/{version}")["files"]
    else:
        entries, page = [], 0
        while len(entries) == page * PAGE:
            page += 1
            entries += _json(f"{base}/articles/{number}/files?page={page}&page_size={PAGE}")
    return [
        RemoteFile(
            entry["name"],
            entry["download_url"],
            entry["size"],
            md5=entry.get("computed_md5") or entry.get("supplied_md5") or None,
        )
        for entry in entries
    ]


def _zenodo(base: str, record: str) -> list[RemoteFile]:
    files = []
    for entry in _json(f"{base}/records/{record}")["files"]:
        kind, _, value = (entry.get("checksum") or "").partition(":")
        sums = {kind: value} if kind in ("md5", "sha256") else {}
        files.append(RemoteFile(entry["key"], entry["links"]["self"], entry["size"], **sums))
    return files


def _manifest(address: str) -> list[RemoteFile]:
    files = []
    for i, line in enumerate(_get(address).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](.+)", line)
        if match is None:
            raise DownloadError(
                f"{address}, line {i}: {line[:60]!r} is not 'sha256  name'; the address must be that of a "
                f"list as sha256sum writes it. Other addresses: {FORMS}."
            )
        name = match[2].removeprefix("./")
        files.append(RemoteFile(name, urljoin(address, quote(name)), sha256=match[1].lower()))
    return files


def _json(url: str) -> Any:
    return json.loads(_get(url))


def _get(url: str) -> bytes:
    require_pooch()
    import requests

    try:
        response = requests.get(url, timeout=TIMEOUT)
        response.raise_for_status()
    except requests.RequestException as error:
        raise DownloadError(explain(url, error)) from None
    return bytes(response.content)


def _checked(files: list[RemoteFile], address: str) -> list[RemoteFile]:
    """Refuse names that would leave the folder they are fetched into, and names that occur twice."""
    names = set()
    for file in files:
        path = PurePosixPath(file.name)
        if path.is_absolute() or ".." in path.parts or "\\" in file.name or not path.parts:
            raise DownloadError(f"{address} lists {file.name!r}, which is no name inside a folder.")
        if file.name in names:
            raise DownloadError(f"{address} lists {file.name} twice; fetch one of them by hand.")
        names.add(file.name)
    if not files:
        raise DownloadError(f"{address} has no files.")
    return sorted(files, key=lambda file: file.name)
