"""Commands about what is here: methods, packages, devices."""

from __future__ import annotations

import os

from .. import __version__
from .app import AsJson, app, show


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

    packages = ["numpy", "scipy", "scikit-learn", "safetensors", "torch", "onnx", "onnxruntime", "pandas"]
    packages += [
        "matplotlib",
        "pyarrow",
        "zarr",
        "dask",
        "mne",
        "braindecode",
        "pooch",
        "curryreader",
        "edfio",
        "concept-erasure",
        "pyriemann",
    ]
    found: dict[str, str | None] = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    devices = ["cpu"]
    if found["torch"] is not None:
        import torch

        devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    facts = {
        "mgpa": __version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "devices": devices,
        "packages": found,
    }
    text = "\n".join(f"{k:<18}{v}" for k, v in facts.items() if k != "packages")
    text += "\n" + "\n".join(f"  {name:<16}{version or 'not installed'}" for name, version in found.items())
    show(facts, text, json_)
