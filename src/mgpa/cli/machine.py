"""Commands about what is here: methods, packages, devices."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from .. import __version__
from .._common.progress import waiting
from .application import AsJson, app, show

# What each package is for. mgpa cannot do without those of the first line.
PURPOSES = {
    "fit, apply and load maps": ("numpy", "scipy", "scikit-learn", "safetensors"),
    "audits, iterative maps": ("torch",),
    "tables, figures": ("pandas", "matplotlib", "pyarrow", "zarr", "dask"),
    "recordings, encoders": ("mne", "braindecode", "torchaudio", "pooch", "curryreader", "edfio"),
    "other methods": ("concept-erasure", "pyriemann"),
    "compiled stages": ("numba",),
    "ONNX": ("onnx", "onnxruntime"),
    "tables by address": ("fsspec", "s3fs"),
}
PACKAGES = tuple(name for names in PURPOSES.values() for name in names)


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
    with waiting("doctor: loading packages"):
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
    lines = [
        f"{'mgpa':<18}{facts['mgpa']}, Python {facts['python']}",
        f"{'devices':<18}{', '.join(devices)}; {facts['cores']} cores",
        f"{'threads':<18}{_threads(facts['OMP_NUM_THREADS'])}",
        f"{'stages':<18}{facts['stages']}",
    ]
    for purpose, names in PURPOSES.items():
        lines += ["", purpose, *(_line(name, versions[name], broken, notes) for name in names)]
    lines += ["", _conclusion(versions, broken)]
    show(facts, "\n".join(lines), json_)


def _threads(setting: Any) -> str:
    return "as many as there are cores" if setting is None else f"{setting} (OMP_NUM_THREADS)"


def _line(name: str, version: str | None, broken: dict[str, str], notes: dict[str, str]) -> str:
    """Return what is said of one package."""
    line = f"  {name:<16}{version or '–'}"
    if name in broken:
        line += f" installed, does not load: {broken[name]}"
    return f"{line} {notes[name]}" if name in notes else line


def _conclusion(versions: dict[str, str | None], broken: dict[str, str]) -> str:
    """Return whether something is to be done, in a sentence."""
    if broken:
        return f"To be mended: {', '.join(broken)}. What does not need it works."
    absent = [name for name, version in versions.items() if version is None]
    if not absent:
        return "Everything is installed and loads."
    return (
        f"All that is installed loads. Not installed, which is fine until you want what is named above them: "
        f"{', '.join(absent)}."
    )


def _broken(versions: dict[str, str | None]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what is installed and cannot be imported, and what does without a part of itself."""
    broken = _failures([name for name, version in versions.items() if version is not None])
    notes = {}
    if "torchaudio" in broken and versions["braindecode"] is not None and "braindecode" not in broken:
        from ..eeg._braindecode import LEFT_OUT

        del broken["torchaudio"]  # nothing but braindecode wants it
        notes["torchaudio"] = LEFT_OUT
    return broken, notes


# Every package on its own line of output, so that one that brings the process down is known, too.
_IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        if name == "braindecode":
            from mgpa.eeg._braindecode import import_braindecode
            import_braindecode()
        else:
            importlib.import_module({"scikit-learn": "sklearn"}.get(name, name.replace("-", "_")))
        why = ""
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
    print(f"{name}\\t{why}", flush=True)
"""


def _failures(packages: list[str]) -> dict[str, str]:
    """Return why packages cannot be imported, in a process of its own, which they may bring down."""
    command = [sys.executable, "-W", "ignore", "-c", _IMPORT_ALL, *packages]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return {"all of them": "importing took more than two minutes"}
    said = [line.split("\t") for line in run.stdout.splitlines() if "\t" in line]
    why = {name: reason for name, reason in said if reason}
    if len(said) < len(packages):
        last = run.stderr.strip().splitlines()
        why[packages[len(said)]] = last[-1] if last else f"Python ended with exit code {run.returncode}"
    return why
