"""Names that are imported when they are first asked for, so that a package costs only what is used of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : dict of module to names
        Which of its names each module, relative to the package, defines.
    modules : dict of name to module
        Modules that are attributes of the package.

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
