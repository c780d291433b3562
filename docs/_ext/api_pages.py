"""One page for each exported name, made from ``__all__``: with summary, return and example.

A name without one is a warning, and warnings end the build.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
DOCS = Path(__file__).resolve().parents[1]
# Whose __all__ is the API; a name exported by two is described in the first.
PACKAGES = (
    "mgpa", "mgpa.gate", "mgpa.maps", "mgpa.coordinates", "mgpa.moments", "mgpa.tables", "mgpa.audit",
    "mgpa.audit.plots", "mgpa.baselines", "mgpa.eeg", "mgpa.paper",
)  # fmt: skip
# Modules without __all__, of which these are typed.
TYPED = {
    "mgpa.gate": ["FixedGate", "FullGate", "PCAGate", "RandomGate", "held_out_coverage"],
    "mgpa.coordinates": ["Coordinates", "fit_coordinates"],
    "mgpa.moments": ["Moments"],
}
SECTIONS = ("Classes", "Functions", "Errors", "Values")


def section_of(value: Any) -> str:
    """Return the section of a package's page that lists a value."""
    if inspect.isclass(value):
        return "Errors" if issubclass(value, Exception) else "Classes"
    return "Functions" if inspect.isroutine(value) else "Values"


def in_package(package: str) -> Iterator[tuple[str, Any]]:
    """Yield the names a module exports; of one without ``__all__``, the functions and classes it defines."""
    module = importlib.import_module(package)
    names = getattr(module, "__all__", TYPED.get(package))
    if names is None:
        names = [n for n, value in vars(module).items() if getattr(value, "__module__", "") == package]
        names = [name for name in names if name[0] != "_"]
    for name in names:
        value = getattr(module, name)
        if name[0] != "_" and not isinstance(value, types.GenericAlias):  # short names of types have no page
            yield name, value


@cache
def homes() -> dict[int, str]:
    """Return the full name under which each exported object has its page, by the object's identity."""
    home: dict[int, str] = {}
    for package in PACKAGES:
        for name, value in in_package(package):
            home.setdefault(id(value), f"{package}.{name}")
    return home


def exported(package: str) -> dict[str, list[str]]:
    """Return what the page of a package lists, by section; names with a page elsewhere are left out."""
    sections: dict[str, list[str]] = {title: [] for title in SECTIONS}
    for name, value in in_package(package):
        if homes().get(id(value), f"{package}.{name}") == f"{package}.{name}":
            sections[section_of(value)].append(name)
    return {title: sorted(names, key=str.lower) for title, names in sections.items() if names}


@cache
def scripts() -> str:
    """Return the text of every script in the gallery and the theory."""
    return "\n".join(path.read_text("utf-8") for path in sorted(DOCS.glob("*/plot_*.py")))


@cache
def examples() -> dict[str, str]:
    """Return the sections of ``reference/examples.py`` by the full names they are for."""
    found = {}
    text = (DOCS / "reference" / "examples.py").read_text("utf-8")
    for names, code in re.findall(r"^# \[([^]]+)\]\n(.*?)(?=^# \[|\Z)", text, re.DOTALL | re.MULTILINE):
        found |= dict.fromkeys(names.replace("#", "").split(), code.strip())
    return found


def example_of_method(name: str) -> str:
    """Return how a method is fitted and applied, from what it needs; empty for other names.

    >>> print(example_of_method("ClosedFormMGPA"))
    from mgpa.baselines import make_method
    <BLANKLINE>
    model = make_method("closed_form_mgpa").fit(X, source=source, pairs=(first, second))
    corrected = model.transform(X)
    """
    from mgpa.baselines import list_methods

    method = next((m for m in list_methods() if m.name.replace("_", "") == name.lower()), None)
    if method is None or method.acts_on == "predictions":
        return ""
    X = "signals" if method.acts_on == "signals" else "X"
    needs = [X, *["y"] * method.needs_task, *["source=source"] * method.needs_source]
    needs += ["pairs=(first, second)"] * method.needs_pairs
    fit = f'model = make_method("{method.name}").fit({", ".join(needs)})'
    later = X if method.source_blind else f"{X}, source=source"
    return f"from mgpa.baselines import make_method\n\n{fit}\ncorrected = model.transform({later})"


def example_of(full_name: str) -> str:
    """Return code that shows a name whose docstring has no example; empty without."""
    return examples().get(full_name) or example_of_method(full_name.rpartition(".")[2])


def lacks(full_name: str, value: Any) -> list[str]:
    """Return what an exported function or class is without, of a summary, a return and an example."""
    text = inspect.getdoc(value) or ""
    name = full_name.rpartition(".")[2]
    missing = [] if text else ["summary"]
    if inspect.isfunction(value) and "return" not in value.__annotations__:
        missing.append("return")
    if inspect.isclass(value) and issubclass(value, Exception):
        return missing  # an error's message says what to do
    has_example = ">>>" in text or example_of(full_name) or re.search(rf"\b{name}\(", scripts())
    return missing if has_example else [*missing, "example"]


def incomplete(app: Sphinx) -> None:
    """Warn of every exported name that lacks something."""
    for package in PACKAGES:
        for name, value in in_package(package):
            full = f"{package}.{name}"
            if callable(value) and homes()[id(value)] == full:
                for missing in lacks(full, value):
                    logger.warning("%s has no %s", full, missing, type="api")


def add_returns(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Say the type that a function returns, from its annotation, where its docstring has no such section."""
    if what not in ("function", "method") or any(line.strip() == "Returns" for line in lines):
        return
    returned = getattr(value, "__annotations__", {}).get("return")
    if not isinstance(returned, str) or returned in ("None", "Any", "Self") or "Iterator" in returned:
        return
    at = next((i for i, line in enumerate(lines) if lines[i + 1 : i + 2] and set(lines[i + 1]) == {"-"}
               and line in ("See Also", "Notes", "References", "Examples")), len(lines))  # fmt: skip
    lines[at:at] = ["", "Returns", "-------", f"``{returned}``", ""]


def add_example(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Show an example where the docstring has none."""
    if what not in ("class", "function", "exception", "data") or any(">>>" in line for line in lines):
        return
    if code := example_of(name):
        lines += ["", ".. rubric:: Example", ""]
        if name in examples():
            lines += ["``table``, ``fit``, ``model`` and ``m`` are as in the first lines of",
                      ":download:`all examples </reference/examples.py>`.", ""]  # fmt: skip
        lines += [".. code-block:: python", "", *(f"   {line}" for line in code.splitlines()), ""]


class EveryName(SphinxDirective):
    """A link to each exported name, in alphabetical order."""

    def run(self) -> list[nodes.Node]:
        """Return the links, separated by dots."""
        line = nodes.paragraph()
        names = sorted(homes().values(), key=lambda name: name.rpartition(".")[2].lower())
        for n, full in enumerate(names):
            parsed, _ = self.parse_inline(f"{' · ' * (n > 0)}:py:obj:`~{full}`")
            line += parsed
        return [line]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx; numpydoc reads the docstring after the section was added."""
    app.add_directive("every-name", EveryName)
    app.connect("builder-inited", incomplete)
    app.connect("autodoc-process-docstring", add_returns, priority=100)
    app.connect("autodoc-process-docstring", add_example, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
