"""Commands about what is here: methods, packages, devices."""

from __future__ import annotations

import os
import subprocess
import sys

from .. import __version__
from .application import AsJson, app, show

PACKAGES = (
    *("numpy", "scipy", "scikit-learn", "safetensors", "torch", "numba", "onnx", "onnxruntime", "pandas"),
    *("matplotlib", "pyarrow", "zarr", "dask", "mne", "torchaudio", "braindecode", "pooch", "curryreader"),
    *("edfio", "concept-erasure", "pyriemann", "fsspec", "s3fs"),
)


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
    """Say what is installed, which devices there are, and how many threads will be used.

    Example: mgpa doctor
    """
    import importlib.metadata as metadata
    import platform

    from ..maps.runtime.compiled import why_not

    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    broken, notes = _broken(versions)
    devices = ["cpu"]
    if versions["torch"] is not None:
        import torch

        devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    reason = why_not()
    facts = {
        "mgpa": __version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "devices": devices,
        "stages": "compiled" if reason is None else f"in numpy, not compiled ({reason})",
        "packages": versions,
        "broken": broken,
    }
    lines = [f"{k:<18}{v}" for k, v in facts.items() if k not in ("packages", "broken")]
    for name, version in versions.items():
        lines.append(f"  {name:<16}{version or 'not installed'}")
        if name in broken:
            lines[-1] += f" installed, does not load: {broken[name]}"
        if name in notes:
            lines[-1] += f" {notes[name]}"
    show(facts, "\n".join(lines), json_)


def _broken(versions: dict[str, str | None]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what is installed and cannot be imported, and what does without a part of itself."""
    if versions["braindecode"] is None:
        return {}, {}
    from ..eeg._braindecode import LEFT_OUT

    why = _fails("from mgpa.eeg._braindecode import import_braindecode; import_braindecode()")
    if why is not None:
        return {"braindecode": why}, {}
    if versions["torchaudio"] is not None and _fails("import torchaudio") is not None:
        return {}, {"torchaudio": LEFT_OUT}
    return {}, {}


def _fails(code: str) -> str | None:
    """Return why a line of Python fails, or None; in a process of its own, which it may bring down."""
    run = [sys.executable, "-W", "ignore", "-c", code]
    try:
        done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "import took more than a minute"
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines()
    return said[-1] if said else f"exit code {done.returncode}"
