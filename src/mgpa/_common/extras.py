"""Lazy imports of a package's names, and errors for missing optional packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ..errors import ParameterError, UsageError

CPU_TORCH = "on Linux without a GPU add --index-url https://download.pytorch.org/whl/cpu, or it brings CUDA"


def missing(purpose: str, *packages: str) -> ImportError:
    """Return the error for optional packages that cannot be imported.

    The suggested command names the packages themselves, because ``pip install mgpa[extra]`` would look for
    mgpa on PyPI.
    """
    command = "pip install " + " ".join(f"'{name}'" for name in packages)
    note = f" ({CPU_TORCH})" if "torch" in packages else ""
    return ImportError(f"{purpose} needs {', '.join(packages)}: {command}{note}", name=packages[0])


def torch_device(device: str, method: str) -> Any:
    """Return the torch device for training networks; "auto" is CUDA if available, else the CPU."""
    try:
        import torch
    except ImportError:
        raise missing(f"{method}, which trains networks,", "torch") from None
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError):
        raise ParameterError("device", device, "'auto' or a torch device such as 'cpu'") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device is {device!r}, but torch sees no CUDA here; use 'auto' or 'cpu'.")
    return place


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    ``homes`` lists the names defined in each module (relative to the package). ``modules`` lists the modules
    that are attributes of the package.

    Examples
    --------
    >>> get, names = lazy_names("mgpa", {".gate": ["MeasurementGate"]}, {"tables": ".tables"})
    >>> get("MeasurementGate"), names()
    (<class 'mgpa.gate.MeasurementGate'>, ['MeasurementGate', 'tables'])
    """
    modules = modules or {}
    home_of = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name in modules:
            value: Any = import_module(modules[name], package)
        elif name in home_of:
            value = getattr(import_module(home_of[name], package), name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted([*home_of, *modules])

    return get, names
