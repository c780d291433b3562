"""Command that runs the benchmark and builds its page."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from .._common.files import claim
from .application import Folder, Names, UserError, app

Existing = Annotated[Path | None, Parameter(validator=validators.Path(exists=True, file_okay=False))]


@app.command
def bench(
    *,
    out: Folder = Path("mgpa-bench"),
    quick: bool = False,
    data: Existing = None,
    only: Names = [],  # noqa: B006
    methods: Names = [],  # noqa: B006
    jobs: int = 1,
    again: bool = False,
    page: bool = False,
    against: Existing = None,
) -> None:
    """Compare corrections on events recorded by several devices, and write one page.

    Example: mgpa bench --quick

    Parameters
    ----------
    out
        Folder of the results and finished cells; run again to continue.
    quick
        A few simulated settings, one round each, without networks: about a minute.
    data
        Folder with files of the real data sets; other data sets are downloaded, if possible.
    only
        Data sets (worlds, headsets, phone_watch, …), or a word in the names of settings.
    methods
        Names of methods, or a word that occurs in only one name; by default all. Methods that are not
        installed are shown as dashes.
    jobs
        Number of cells computed in parallel.
    again
        Measure the methods again, for example after a change of a method.
    page
        Rebuild the page from the results in --out without measuring.
    against
        Folder of other results, such as docs/bench, to compare with; prints the number of equal values and
        the largest difference.
    """
    from ..bench.datasets import find_settings
    from ..bench.methods import find_methods
    from ..bench.page import build, compare
    from ..bench.protocol import run

    if not page:
        chosen, missing = find_settings(only, data, quick)
        for line in missing:
            print(f"bench: {line}")
        if not chosen:
            reason = ", or its data are missing (see above)" if missing else ""
            raise UserError(f"No data set or setting has {' or '.join(only)} in its name{reason}.")
        claim(out, *sorted({f"{setting.data}.json" for setting in chosen}), "results.md", "results.svg")
        run(chosen, find_methods(methods), out, quick=quick, jobs=jobs, again=again, commit=_commit())
    print(build(out))
    if against is not None:
        print(compare(out, against))


def _commit() -> str:
    """Return the commit of the package's checkout; empty without one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
