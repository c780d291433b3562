"""List, download and verify public data sets.

pooch moves a file into place only when its checksum is right, and existing files are never replaced. To
continue an interrupted download, run it again.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..._common.extras import missing
from ..._common.progress import progress
from ...errors import DownloadError, first_few, printable

#: Base addresses of the repositories. Environment variables such as MGPA_OSF_API set a mirror.
APIS = {"osf": "https://api.osf.io/v2", "figshare": "https://api.figshare.com/v2"}
_NUMBERS = {"osf": r"[0-9a-z]{5,}", "figshare": r"\d+\.v\d+"}
_HUB = "https://huggingface.co"
TIMEOUT = 60  # seconds without any data
RETRIES = 2
_FORBIDDEN = '<>:"|?*\\'  # in file names of at least one operating system


@dataclass(frozen=True)
class RemoteFile:
    """A file in a repository: name (folders separated by ``/``), size, checksum ("sha256:…" or "md5:…")."""

    name: str
    url: str
    size: int
    checksum: str

    @property
    def sha256(self) -> str | None:
        """The SHA-256 checksum, or None if the repository gives another kind."""
        kind, _, value = self.checksum.partition(":")
        return value if kind == "sha256" else None


#: The trained weights of the paper's encoder. The environment variable HF_ENDPOINT sets a mirror.
EEGPT_WEIGHTS = RemoteFile(
    "model.safetensors",
    f"{_HUB}/braindecode/eegpt-pretrained/resolve/e41cb3ae2ce4fd9eb736862292c91f8128d15618/model.safetensors",
    101_160_080,
    "sha256:fb34c20609983324679b9534f9d17a2289a232d0276dd2b8b7d5b088f876f621",
)

_TASKS = ("N170", "oddball_active", "oddball_passive")
#: Data sets and encoder weights by name: title, paper (``doi``), provider's page (``home``) and location of
#: the files (``address`` for :func:`listing`, or a single file). Optional entries are ``tasks``, ``only``
#: (patterns of the required files) and ``pinned`` (number and total size of the files in a fixed version).
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
        # The project also holds other tasks, and recordings with gel.
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
    """The files of a data set, present and missing, in the expected order.

    ``problems`` has one sentence for each unusable file. ``checks`` compares published facts about the data
    with these files; simulated files may differ from them and still be complete.
    """

    dataset: str
    folder: Path
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    checks: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all expected files are present and usable."""
        return not self.missing and not self.problems

    @property
    def simulated(self) -> bool:
        """Whether the files are simulated (the simulator writes truth.json beside them)."""
        return (self.folder / "truth.json").exists()

    def __str__(self) -> str:
        n = len(self.present) + len(self.missing)
        lines = [f"{self.dataset} in {self.folder}: {len(self.present)} of {n} files"]
        if self.missing:
            lines.append(f"missing     {first_few(self.missing, 10)}")
        lines += [f"problem     {problem}" for problem in self.problems]
        for what, (published, computed) in self.checks.items():
            word = "ok" if published == computed else "differs"
            lines.append(f"{word:<12}{beside_published(what, published, computed)}")
        lines += ["simulated   not the published files; see truth.json for the effects"] * self.simulated
        lines.append("complete" if self.complete else "not complete")
        return "\n".join(map(printable, lines))


def beside_published(what: str, published: Any, computed: Any) -> str:
    """Return a line that compares a computed value with the published one."""
    return f"{what}: {computed}, {'' if published == computed else f'not {published} '}as published"


def find_dataset(name: str) -> str:
    """Return the name of a data set; hyphens may replace underscores."""
    if name.replace("-", "_") not in DATASETS:
        raise ValueError(f"No data set {name!r}. Data sets: {', '.join(DATASETS)}.")
    return name.replace("-", "_")


def dataset_files(name: str, only: Sequence[str] = (), address: str | None = None) -> list[RemoteFile]:
    """Return the files of a data set at its published address or at another ``address``.

    ``only`` has patterns like ``S00*`` for the path or the file name; without patterns, all required files
    are returned. Raises if the repository lists other files than the pinned version.
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
                f"{pinned[1]}. Try again later, or download the files from {source['home']}."
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
    """Return which files of a data set (or of some of its tasks) are present in a folder or missing.

    With ``check``, also read all recordings and compare counts with the published ones.
    """
    name, folder = find_dataset(name), Path(folder)
    address, available = DATASETS[name].get("address"), DATASETS[name].get("tasks", ())
    if unknown := [task for task in tasks or () if task not in available]:
        raise ValueError(f"{name} has no task {', '.join(unknown)}. Tasks: {', '.join(available) or 'none'}.")
    if not folder.is_dir():
        raise FileNotFoundError(f"No folder {folder}.")
    if isinstance(address, RemoteFile):
        problems = () if is_fetched(address, folder) else (f"{address.name} is missing.",)
        return Inventory(name, folder, problems=problems)
    reader = importlib.import_module(f"{__package__}.{name}")
    options = ({"tasks": tasks} if tasks else {}) | ({"check": True} if check else {})
    result: Inventory = getattr(reader, f"{name}_inventory")(folder, **options)
    return result


def listing(address: str) -> list[RemoteFile]:
    """Return the files behind an address, sorted by name.

    The address is ``osf:abcde`` (a project with its components) or ``figshare:12345.v1`` (a version of an
    article).
    """
    kind, _, number = address.partition(":")
    if kind not in APIS or not re.fullmatch(_NUMBERS[kind], number):
        raise ValueError(f"{address!r} is not a valid address; expected osf:abcde or figshare:12345.v1.")
    base = (os.environ.get(f"MGPA_{kind.upper()}_API") or APIS[kind]).rstrip("/")
    try:
        files = (_osf if kind == "osf" else _figshare)(base, number)
        unsafe = [file.name for file in files if not _is_safe(file.name)]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DownloadError(f"{address}: unexpected answer ({repr(error)[:200]}).") from None
    if unsafe:
        raise DownloadError(f"{unsafe[0]!r} is not a safe file name; download it by hand under another name.")
    if not files:
        raise DownloadError(f"{address} has no files.")
    return sorted(files, key=lambda file: file.name)


def _is_safe(name: str) -> bool:
    """Return whether a path stays inside its folder, is valid on all systems, and is not hidden."""
    inside = all(part and part == part.strip(" .") for part in name.split("/"))
    return inside and name.isprintable() and not set(name) & set(_FORBIDDEN)


def _osf(base: str, project: str) -> list[RemoteFile]:
    """List all files in the storage of a project, then those of its components, each in its own folder."""
    files, seen = [], set[str]()

    def entries(page: str | None) -> Iterator[Any]:
        while page:
            if page in seen:
                raise ValueError(f"an endless list of pages, at {page}")
            seen.add(page)
            answer = _json(page)
            yield from answer["data"]
            page = answer["links"].get("next")

    nodes = [(project, "")]
    while nodes:
        node, inside = nodes.pop()
        folders = [f"{base}/nodes/{node}/files/osfstorage/?page[size]=100"]
        while folders:
            for entry in entries(folders.pop()):
                facts = entry["attributes"]
                if facts["kind"] == "folder":
                    folders.append(entry["relationships"]["files"]["links"]["related"]["href"])
                    continue
                name = inside + facts["materialized_path"].lstrip("/")
                checksum = f"sha256:{facts['extra']['hashes']['sha256']}"
                files.append(RemoteFile(name, entry["links"]["download"], int(facts["size"]), checksum))
        for child in entries(f"{base}/nodes/{node}/children/?page[size]=100"):
            title = re.sub(f"[/{re.escape(_FORBIDDEN)}]", "-", child["attributes"]["title"]).strip(" .")
            nodes.append((child["id"], f"{inside}{title}/"))
    return files


def _figshare(base: str, article: str) -> list[RemoteFile]:
    # pooch lists articles by DOI, but without sizes, and requests the address of each file twice.
    entries = _json(f"{base}/articles/{article.replace('.v', '/versions/')}")["files"]
    return [
        RemoteFile(one["name"], one["download_url"], int(one["size"]), f"md5:{one['computed_md5']}")
        for one in entries
    ]


def _json(url: str) -> Any:
    require_pooch()
    import requests

    try:
        response = requests.get(url, timeout=TIMEOUT)
        response.raise_for_status()
    except requests.RequestException as error:
        raise DownloadError(f"{error}. Check the address and your network, and run it again.") from None
    return response.json()


def fetch_files(files: Sequence[RemoteFile], folder: str | os.PathLike[str], *, verbose: bool = False) -> int:
    """Download missing files into a folder and return their number.

    Existing files are compared and kept; a file that differs raises an error and is kept too.
    """
    pooch = require_pooch()
    import requests

    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise DownloadError(f"{folder} is a file; name a folder to put the data in.")
    new = [file for file in files if not is_fetched(file, folder)]
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = sum(file.size for file in new), shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(
            f"{folder} has {free / 1e9:.1f} GB of free space; the download needs {needed / 1e9:.1f} GB."
        )
    hub = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    checksums = {file.name: file.checksum for file in new}
    urls = {file.name: file.url.replace(_HUB, hub, 1) for file in new}
    registry = pooch.create(folder, "", registry=checksums, urls=urls, retry_if_failed=RETRIES)
    pooch.get_logger().setLevel("WARNING")
    download = pooch.HTTPDownloader(chunk_size=2**18, timeout=TIMEOUT)
    for i in progress(range(len(new)), "fetching", verbose):
        try:
            registry.fetch(new[i].name, downloader=download)
        except (requests.RequestException, ValueError) as error:
            raise DownloadError(
                f"{new[i].url}: {error} Check your network and run it again; downloaded files are kept."
            ) from None
    return len(new)


def is_fetched(file: RemoteFile, folder: Path) -> bool:
    """Return whether a file was downloaded; raise if a different file has its name."""
    path = folder / file.name
    if not path.exists():
        return False
    kind, _, value = file.checksum.partition(":")
    if not path.is_file() or require_pooch().file_hash(str(path), alg=kind) != value.lower():
        raise DownloadError(f"{path} differs from the published file; move it away and fetch again.")
    return True


def require_pooch() -> Any:
    """Import pooch, or raise with installation advice."""
    try:
        import pooch
    except ImportError:
        raise missing("A download", "pooch") from None
    return pooch
