"""Commands that list, fetch and verify public data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ...cli.application import AsJson, Folder, Names, app, show
from ...errors import printable

data = App(name="data", help="List, fetch and verify public data sets.")
app.command(data)


@data.command(name="list")
def list_(*, json_: AsJson = False) -> None:
    """List the available data sets and their descriptions.

    Example: mgpa data list
    """
    from ..datasets.catalogue import DATASETS

    lines = []
    for name, source in DATASETS.items():
        doi = f"https://doi.org/{source['doi']}  " if source["doi"] else ""
        lines += [f"{name:<16}{source['title']}", f"{'':<16}{doi}{source['home']}"]
    sources = [{"name": name, **source} for name, source in DATASETS.items()]
    show({"datasets": sources}, "\n".join(lines), json_)


@data.command
def fetch(
    name: str,
    *,
    out: Folder,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    only: Names = [],  # noqa: B006
    dry_run: bool = False,
    json_: AsJson = False,
) -> None:
    """Download a data set and check each file; run it again to continue after an interruption.

    Example: mgpa data fetch wearable_ssvep --out ssvep --only 'S00*' 'Sub*'

    Parameters
    ----------
    name
        As listed by `mgpa data list`.
    out
        Folder for the files.
    from_
        Another repository instead of the published one: osf:abcde (a project) or figshare:12345.v1 (a version
        of an article).
    only
        Fetch only files whose names match one of these patterns.
    dry_run
        List the files and their sizes without downloading.
    """
    from ..datasets.catalogue import DATASETS, dataset_files, fetch_files, find_dataset

    home = DATASETS[find_dataset(name)]["home"]
    files = dataset_files(name, only, from_)
    total = sum(file.size for file in files)
    names = [file.name for file in files]
    facts = {"dataset": name, "from": from_ or home, "files": names, "bytes": total}
    size = f", {total / 1e6:.1f} MB"
    if dry_run:
        show(facts, "\n".join([*map(printable, names), f"{len(files)} files{size}"]), json_)
        return
    new = fetch_files(files, out, verbose=sys.stderr.isatty())
    text = f"{len(files)} files{size} in {out}: {new} new, {len(files) - new} were there already"
    show(facts | {"folder": str(out), "new": new}, text, json_)


@data.command
def verify(
    name: str,
    folder: Path,
    *,
    tasks: Names | None = None,
    check: bool = False,
    json_: AsJson = False,
) -> int:
    """List files of a data set that are missing in a folder or differ from the published files.

    The exit code is 2 if the data set is not complete.

    Example: mgpa data verify wearable_ssvep ssvep

    Parameters
    ----------
    name
        As listed by `mgpa data list`.
    folder
        Folder with the files.
    tasks
        For neuroscan_flex: only files of N170, oddball_active or oddball_passive.
    check
        Also read every recording, which takes minutes.
    """
    from ..datasets.catalogue import verify_dataset

    inventory = verify_dataset(name, folder, tasks, check=check)
    facts = {
        "dataset": name,
        "folder": str(folder),
        "complete": inventory.complete,
        "simulated": inventory.simulated,
        "present": len(inventory.present),
        "missing": list(inventory.missing),
        "problems": list(inventory.problems),
        "checks": inventory.checks,
    }
    show(facts, str(inventory), json_)
    return 0 if inventory.complete else 2
