"""Optional packages: what needs them, and the command that installs them wherever mgpa came from."""

from __future__ import annotations

import re
from importlib import metadata

CPU_TORCH = "on Linux without a GPU add --index-url https://download.pytorch.org/whl/cpu, or it brings CUDA"


def missing(purpose: str, *packages: str) -> ImportError:
    """Return the error for optional packages that cannot be imported.

    The command names the packages themselves, in the versions that mgpa declares: ``mgpa[extra]`` would look
    for mgpa in an index, although it may have come from a checkout or a file.

    Examples
    --------
    >>> raise missing("Parquet", "pyarrow")
    Traceback (most recent call last):
    ImportError: Parquet needs pyarrow: pip install 'pyarrow>=17'
    """
    command = "pip install " + " ".join(f"'{requirement(name)}'" for name in packages)
    note = f" ({CPU_TORCH})" if "torch" in packages else ""
    return ImportError(f"{purpose} needs {', '.join(packages)}: {command}{note}", name=packages[0])


def requirement(package: str) -> str:
    """Return a package with the versions that mgpa declares for it, as pip takes it."""
    try:
        declared = metadata.requires("mgpa") or []
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        declared = []
    for line in declared:
        wanted = line.partition(";")[0].strip()
        if re.split(r"[^\w.-]", wanted)[0].lower() == package.lower():
            return wanted
    return package
