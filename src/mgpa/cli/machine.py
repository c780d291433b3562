"""Commands that describe this installation: methods, packages, devices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from .. import __version__
from .._common.progress import waiting
from .application import AsJson, app, show

# Packages by purpose; those in the first line are always needed.
PURPOSES = {
    "fit, apply and load maps": ("numpy", "scipy", "scikit-learn", "safetensors"),
    "reader networks, iterative maps": ("torch",),
    "tables, figures": ("pandas", "matplotlib", "pyarrow", "dask"),
    "recordings, encoders": ("mne", "braindecode", "pooch", "curryreader", "edfio"),
    "other methods": ("concept-erasure",),
    "compiled stages": ("numba",),
    "ONNX": ("onnx", "onnxruntime"),
    "tables by address": ("fsspec", "s3fs"),
}
# Explanation if braindecode cannot be imported alone, but through mgpa.
THROUGH_MGPA = (
    "torchaudio and torch are of different builds. mgpa's encoders work; before your own import call "
    "mgpa.eeg.braindecode.import_braindecode(), or install torch and torchaudio from one index."
)


@app.command
def methods(*, json_: AsJson = False) -> None:
    """List all methods and their requirements.

    Example: mgpa methods
    """
    from dataclasses import asdict

    from ..baselines import list_methods

    table = list_methods()
    show({"methods": [asdict(m) for m in table]}, str(table), json_)


@app.command
def doctor(*, json_: AsJson = False) -> None:
    """List installed packages (and whether they load), devices and threads.

    Example: mgpa doctor
    """
    import platform

    from ..maps.runtime.compiled import unavailable_reason

    versions = {name: _version(name) for names in PURPOSES.values() for name in names}
    devices, reason = ["cpu"], unavailable_reason()
    with waiting("doctor: loading packages"):
        broken = import_failures([name for name, version in versions.items() if version is not None])
        helped = "braindecode" in broken and not import_failures(["mgpa.eeg.braindecode"])
        if helped:
            del broken["braindecode"]
        if versions.get("torch") and "torch" not in broken:
            import torch

            devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    machine = {
        "mgpa": __version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "one per core"),
        "devices": devices,
        "stages": "compiled" if reason is None else f"in numpy, not compiled ({reason})",
    }
    lines = [f"{name:<18}{fact}" for name, fact in (machine | {"devices": ", ".join(devices)}).items()]
    lines += _listed(versions, broken | ({"braindecode": THROUGH_MGPA} if helped else {}))
    absent = ", ".join(name for name, version in versions.items() if version is None)
    conclusion = f"All that is installed loads{', braindecode through mgpa only' if helped else ''}."
    conclusion += f" Not installed (fine until you need it): {absent}." if absent else ""
    if broken:
        conclusion = f"Does not load: {', '.join(broken)}. Reinstall what the messages name; the rest works."
    facts = machine | {"packages": versions, "broken": broken}
    show(facts, "\n".join([*lines, "", conclusion]), json_)


def _listed(versions: Mapping[str, str | None], broken: Mapping[str, str]) -> list[str]:
    """Return one line for each package, grouped by purpose."""
    lines = []
    for purpose, names in PURPOSES.items():
        lines += ["", purpose]
        for name in names:
            problem = f" installed, does not load by itself: {broken[name]}" if name in broken else ""
            lines.append(f"  {name:<16}{versions[name] or '–'}{problem}")
    return lines


def _version(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


_IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    try: getattr(importlib.import_module(name), "import_braindecode", int)(); print(flush=True)
    except Exception as error: print(" ".join(f"{type(error).__name__}: {error}".split()), flush=True)
"""


def import_failures(packages: list[str]) -> dict[str, str]:
    """Return the reasons why packages cannot be imported, tested in another process."""
    names = [{"scikit-learn": "sklearn"}.get(name, name.replace("-", "_")) for name in packages]
    command = [sys.executable, "-W", "ignore", "-c", _IMPORT_ALL, *names]
    tried = subprocess.run(command, capture_output=True, text=True)
    lines = [*tried.stdout.splitlines(), f"Python ended with exit code {tried.returncode}"]
    return {name: reason for name, reason in zip(packages, lines, strict=False) if reason}
