"""Names that are imported when they are first asked for, so that a package costs only what is used of it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    The package lists its names once, where type checkers read them: as imports below ``if TYPE_CHECKING:``.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    modules : dict of name to module
        Modules that are attributes of the package.

    Examples
    --------
    >>> import mgpa.studies
    >>> get, names, public = lazy_names("mgpa.studies", {"theory": ".theory"})
    >>> get("StudyError"), public[0], "theory" in names()
    (<class 'mgpa.errors.StudyError'>, 'Study', True)
    """
    modules, home_of = modules or {}, _homes(package)

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

    return get, names, sorted(home_of)


def _homes(package: str) -> dict[str, str]:
    """Return the module, relative to the package, of every name that it imports for type checkers."""
    spec: Any = sys.modules[package].__spec__
    imports = [
        statement
        for block in ast.parse(spec.loader.get_source(package)).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
    ]
    return {alias.name: "." * i.level + (i.module or "") for i in imports for alias in i.names}
