"""Where the API's names are documented: one home each, found from wherever a docstring names it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode


def skip_foreign(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out members that other libraries define: estimators and settings inherit dozens."""
    if what not in ("class", "exception", "method", "attribute", "property"):
        return None
    function = getattr(obj, "fget", None) or getattr(obj, "__func__", None) or obj
    home = getattr(function, "__module__", None)
    if name.startswith("set_") and name.endswith("_request"):
        return True
    return True if isinstance(home, str) and not home.startswith("mgpa") else None


def find(target: str, module: str | None) -> Any:
    """Return the object that a docstring calls ``target``; None if Python cannot find it either.

    A docstring names things as its own module sees them, while the page knows only the package that exports
    it: modules below that are searched last.
    """
    starts = [f"{module}.{target}", target] if module else [target]
    if module:
        starts += [f"{name}.{target}" for name in list(sys.modules) if name.startswith(f"{module}.")]
    for start in starts:
        parts = start.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:cut]))
                for part in parts[cut:]:
                    found = getattr(found, part)
            except (ImportError, AttributeError):
                continue
            return found
    return None


def documented(env: BuildEnvironment) -> dict[int, str]:
    """Return the name under which each object of the package is described, by the object's identity."""
    if not hasattr(env, "mgpa_names"):
        names = {name: find(name, None) for name in env.get_domain("py").objects}
        env.mgpa_names = {id(found): name for name, found in names.items() if found is not None}
    return env.mgpa_names


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element) -> Any:
    """Link a name that is described under another; an internal one that exists is named without a link.

    A name that Python cannot find either stays a warning.
    """
    if node.get("refdomain") != "py":
        return None
    found = find(node["reftarget"], node.get("py:module"))
    if found is None:
        return None
    name = documented(env).get(id(found))
    if name is None:
        return text
    entry = env.get_domain("py").objects[name]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, text, name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
