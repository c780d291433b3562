"""Commands about this installation: methods, packages, devices."""

from __future__ import annotations

import os
import subprocess
import sys

from .. import __version__
from .._common.progress import waiting
from .application import AsJson, app, show

# What each package is for. The first line is always needed.
PURPOSES = {
    "fit, apply and load maps": ("numpy", "scipy", "scikit-learn", "safetensors"),
    "audits, iterative maps": ("torch",),
    "tables, figures": ("pandas", "matplotlib", "pyarrow", "dask"),
    "recordings, encoders": ("mne", "braindecode", "pooch", "curryreader", "edfio"),
    "other methods": ("concept-erasure", "pyriemann"),
    "compiled stages": ("numba",),
    "ONNX": ("onnx", "onnxruntime"),
    "tables by address": ("fsspec", "s3fs"),
}


@app.command
def methods(*, json_: AsJson = False) -> None:
    """List the methods that can be fitted, and what each needs.

    Example: mgpa methods
    """
    from dataclasses import asdict

    from ..baselines import available

    table = available()
    show({"methods": [asdict(m) for m in table]}, str(table), json_)


@app.command
def doctor(*, json_: AsJson = False) -> None:
    """List what is installed and whether it loads, devices, and threads.

    Example: mgpa doctor
    """
    import importlib.metadata as metadata
    import platform

    from ..maps.runtime.compiled import unavailable_reason

    versions: dict[str, str | None] = {}
    for name in (name for names in PURPOSES.values() for name in names):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    with waiting("doctor: loading packages"):
        broken = import_failures([name for name, version in versions.items() if version is not None])
        devices = ["cpu"]
        if versions["torch"] is not None and "torch" not in broken:
            import torch

            devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    reason, threads = unavailable_reason(), os.environ.get("OMP_NUM_THREADS")
    facts = {
        "mgpa": __version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "OMP_NUM_THREADS": threads,
        "devices": devices,
        "stages": "compiled" if reason is None else f"in numpy, not compiled ({reason})",
        "packages": versions,
        "broken": broken,
    }
    lines = [
        f"{'mgpa':<18}{facts['mgpa']}, Python {facts['python']}",
        f"{'devices':<18}{', '.join(devices)}; {facts['cores']} cores",
        f"{'threads':<18}{'one per core' if threads is None else f'{threads} (OMP_NUM_THREADS)'}",
        f"{'stages':<18}{facts['stages']}",
    ]
    for purpose, names in PURPOSES.items():
        lines += ["", purpose]
        for name in names:
            problem = f" installed, does not load: {broken[name]}" if name in broken else ""
            lines.append(f"  {name:<16}{versions[name] or '–'}{problem}")
    show(facts, "\n".join([*lines, "", _conclusion(versions, broken)]), json_)


def _conclusion(versions: dict[str, str | None], broken: dict[str, str]) -> str:
    """Return in a sentence whether something needs mending."""
    if broken:
        return f"Does not load: {', '.join(broken)}. Reinstall it; what does not need it works."
    absent = [name for name, version in versions.items() if version is None]
    if not absent:
        return "Everything is installed and loads."
    return f"All that is installed loads. Not installed (fine until you need it): {', '.join(absent)}."


_IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    try: getattr(importlib.import_module(name), "import_braindecode", int)(); print(flush=True)
    except Exception as error: print(" ".join(f"{type(error).__name__}: {error}".split()), flush=True)
"""


def import_failures(packages: list[str]) -> dict[str, str]:
    """Return why packages cannot be imported, tried in another process, which they may end."""
    modules = {"scikit-learn": "sklearn", "braindecode": "mgpa.eeg._braindecode"}
    names = [modules.get(name, name.replace("-", "_")) for name in packages]
    command = [sys.executable, "-W", "ignore", "-c", _IMPORT_ALL, *names]
    tried = subprocess.run(command, capture_output=True, text=True)
    lines = [*tried.stdout.splitlines(), f"Python ended with exit code {tried.returncode}"]
    return {name: reason for name, reason in zip(packages, lines, strict=False) if reason}
