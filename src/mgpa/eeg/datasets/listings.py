"""What a repository has: the files behind an OSF project, a figshare article, a Zenodo record or a manifest.

Every listing gives, for each file, its address, its size and a checksum where the repository states one, so
that :func:`~mgpa.eeg.datasets.download.download_file` can check and resume.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, urljoin

from ...errors import DownloadError
from .download import TIMEOUT, explain, refuse_redirect, require_pooch

#: Where the repositories answer; the environment variable of each, MGPA_OSF_API and so on, overrides it.
APIS = {
    "osf": "https://api.osf.io/v2",
    "figshare": "https://api.figshare.com/v2",
    "zenodo": "https://zenodo.org/api",
}
FORMS = "osf:abcde, figshare:12345.v1, zenodo:12345, or the http(s):// address of a list 'sha256  name'"
_NUMBERS = {"osf": r"[0-9a-z]{5,}", "figshare": r"\d+(\.v\d+)?", "zenodo": r"\d+"}
PAGE = 100  # entries a page
# No repository comes near these.
MAX_PAGES = 10_000
MAX_BYTES = 2**26
# What Windows has no files by: characters, and names of devices whatever their suffix.
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9\u00b9\u00b2\u00b3])(\..*)?", re.IGNORECASE)


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
    readers: dict[str, Callable[[_Pages, str, str], list[RemoteFile]]]
    readers = {"osf": _osf, "figshare": _figshare, "zenodo": _zenodo}
    try:
        files = readers[kind](_Pages(base), base, number)
        for file in files:
            _check_facts(file, base)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DownloadError(
            f"{address}: {base} answered in a form that is not known here ({repr(error)[:200]})."
        ) from None
    return _checked(files, address)


def require_portable_names(files: Sequence[RemoteFile]) -> None:
    """Raise if a name is not that of one file, the same on every system, in the folder it is fetched into.

    Examples
    --------
    >>> require_portable_names([RemoteFile("mit Lücke/S003 (neu).mat", "https://a.org/3")])
    >>> require_portable_names([RemoteFile("D:x.exe", "https://a.org/x")])
    Traceback (most recent call last):
    ...
    mgpa.errors.DownloadError: 'D:x.exe' is no name of a file on every system; fetch it by hand, ...
    """
    names: dict[str, str] = {}
    for file in files:
        if not all(map(_is_portable, file.name.split("/"))):
            raise DownloadError(
                f"{file.name!r} is no name of a file on every system; fetch it by hand, under another name."
            )
        same = file.name.casefold()
        # While a file arrives, it lies where its name ends in .part.
        for other in (same, f"{same}.part", same.removesuffix(".part")):
            if other in names:
                raise DownloadError(
                    f"{names[other]!r} and {file.name!r} would be in each other's way; fetch one by hand."
                )
        names[same] = file.name


def _is_portable(part: str) -> bool:
    """Say whether a part of a path is a name on Windows, too."""
    inside = part == part.strip(" ").rstrip(".") and part != ""
    return inside and not _FORBIDDEN.search(part) and not _DEVICE.fullmatch(part)


class _Pages:
    """The pages of a repository, none of which is asked for twice."""

    def __init__(self, base: str) -> None:
        self._base, self._seen = base, set[str]()

    def __call__(self, url: str) -> Any:
        """Return what a page says, in JSON."""
        _require_scheme(url, self._base)
        if url in self._seen or len(self._seen) >= MAX_PAGES:
            raise DownloadError(f"{self._base} lists pages without end; {url} is where it was left.")
        self._seen.add(url)
        return json.loads(_get(url))


def _osf(pages: _Pages, base: str, project: str, inside: str = "") -> list[RemoteFile]:
    """Read a project's storage, folder by folder and page by page, then its components, each in a folder."""
    files: list[RemoteFile] = []
    folders = [f"{base}/nodes/{project}/files/osfstorage/?page[size]={PAGE}"]
    while folders:
        for entry in _osf_entries(pages, folders.pop()):
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
    for child in _osf_entries(pages, f"{base}/nodes/{project}/children/?page[size]={PAGE}"):
        title = _FORBIDDEN.sub("-", child["attributes"]["title"]).replace("/", "-").strip(" .")
        if not re.fullmatch(_NUMBERS["osf"], child["id"]):
            raise ValueError(child["id"])
        files += _osf(pages, base, child["id"], f"{inside}{title}/")
    return files


def _osf_entries(pages: _Pages, page: str | None) -> Iterator[Any]:
    """Yield what a list has, on this page and those that follow."""
    while page:
        answer = pages(page)
        yield from answer["data"]
        page = answer["links"].get("next")


def _figshare(pages: _Pages, base: str, article: str) -> list[RemoteFile]:
    number, _, version = article.partition(".v")
    if version:
        entries = pages(f"{base}/articles/{number}/versions/{version}")["files"]
    else:
        entries, page = [], 0
        while len(entries) == page * PAGE:
            page += 1
            entries += pages(f"{base}/articles/{number}/files?page={page}&page_size={PAGE}")
    return [
        RemoteFile(
            entry["name"],
            entry["download_url"],
            entry["size"],
            md5=entry.get("computed_md5") or entry.get("supplied_md5") or None,
        )
        for entry in entries
    ]


def _zenodo(pages: _Pages, base: str, record: str) -> list[RemoteFile]:
    files = []
    for entry in pages(f"{base}/records/{record}")["files"]:
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


def _get(url: str) -> bytes:
    """Return what is at an address, as long as it is no longer than any list of files."""
    require_pooch()
    import requests

    content = bytearray()
    try:
        with requests.get(url, timeout=TIMEOUT, stream=True, hooks={"response": refuse_redirect}) as response:
            response.raise_for_status()
            for piece in response.iter_content(2**16):
                content += piece
                if len(content) > MAX_BYTES:
                    raise DownloadError(f"{url} is larger than {MAX_BYTES} bytes, and no list of files.")
    except requests.RequestException as error:
        raise DownloadError(explain(url, error)) from None
    return bytes(content)


def _require_scheme(url: Any, base: str) -> None:
    """Raise if an address is none to download from, or less private than the one that gave it."""
    schemes = ("https://",) if base.startswith("https://") else ("http://", "https://")
    if not isinstance(url, str) or not url.startswith(schemes):
        raise ValueError(f"{url!r} does not begin with {' or '.join(schemes)}")


def _check_facts(file: RemoteFile, base: str) -> None:
    """Raise if what a repository says about a file is not of the kind that it says about files."""
    if not isinstance(file.name, str):
        raise TypeError(f"{file.name!r} is no name")
    _require_scheme(file.url, base)
    if file.size is not None and (type(file.size) is not int or file.size < 0):
        raise ValueError(f"{file.size!r} is no size")
    for value, digits in ((file.sha256, 64), (file.md5, 32)):
        if value is not None and not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", value):
            raise ValueError(f"{value!r} is no checksum")


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
