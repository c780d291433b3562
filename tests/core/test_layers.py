"""Imports point one way: the layers listed in docs/maintainers/architecture.md hold for every import here."""

import ast
import importlib
import inspect
import re
import sys
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np

import mgpa

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mgpa"
PAGE = (ROOT / "docs" / "maintainers" / "architecture.md").read_text("utf-8")

MOST_TOP_LEVEL_MODULES = 20


@dataclass(frozen=True)
class Import:
    """One import of one module by another, and when it happens."""

    by: str
    of: str
    when: str  # "load", "call" (inside a function) or "types" (for type checkers alone)


def module_files():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("mgpa", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = module_files()


def imports_of(name, text, *, is_package=False):
    """Yield the imports of a module from this package, relative ones resolved."""
    parents = (name if is_package else name.rpartition(".")[0]).split(".")

    def walk(node, when):
        for child in ast.iter_child_nodes(node):
            inside = when
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and when == "load":
                inside = "call"
            if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
                inside = "types"
            if isinstance(child, ast.Import):
                targets = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                above = ".".join(parents[: len(parents) - child.level + 1]) if child.level else ""
                base = ".".join(part for part in (above, child.module) if part)
                # ``from .maps import base`` is a module, ``from .maps import AffineMap`` is in one.
                several = [f"{base}.{alias.name}" for alias in child.names]
                targets = [target if target in MODULES else base for target in several]
            else:
                targets = []
            yield from (Import(name, t, inside) for t in targets if t.partition(".")[0] == "mgpa")
            yield from walk(child, inside)

    yield from walk(ast.parse(text), "load")


IMPORTS = sorted(
    {
        found
        for name, path in MODULES.items()
        for found in imports_of(name, path.read_text("utf-8"), is_package=path.name == "__init__.py")
    },
    key=repr,
)


def unit(module):
    """Return the part of the package that a module belongs to: itself, or the folder below ``mgpa``."""
    return module.split(".")[1] if "." in module else "mgpa"


def layers():
    """Return every unit's layer, counted from the top, and its group in that layer, from the page."""
    block = re.search(r"```text\n(the paper:.*?)```", PAGE, re.DOTALL)
    assert block is not None, "the page has no list of layers"
    places = {}
    # A title and a colon begin a layer, which may go on in indented lines.
    for depth, text in enumerate(re.findall(r"^\S[^:]*:(.*(?:\n +.*)*)", block[1], re.MULTILINE)):
        for group, names in enumerate(text.split("|")):
            for name in names.split():
                assert name not in places, f"{name} is listed twice"
                places[name] = (depth, group)
    return places


LAYERS = layers()
DEFENDED = {
    (f"mgpa.{by}", f"mgpa.{of}")
    for by, of in re.findall(r"^\| `([\w.]+)` → `([\w.]+)` \|", PAGE, re.MULTILINE)
}


def allowed(by, of):
    (depth, group), (other_depth, other_group) = LAYERS[by], LAYERS[of]
    return other_depth > depth or (other_depth == depth and other_group == group)


def cycle(edges):
    """Return a cycle among (importer, imported) edges, or None."""
    graph = {}
    for by, of in edges:
        graph.setdefault(by, set()).add(of)
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return error.args[1]
    return None


def test_every_module_has_one_place_in_the_list():
    assert set(LAYERS) == {unit(name) for name in MODULES} - {"mgpa"}


def test_imports_point_down():
    wrong = [
        f"{i.by} imports {i.of}"
        for i in IMPORTS
        if "mgpa" not in (unit(i.by), unit(i.of)) and not allowed(unit(i.by), unit(i.of))
    ]
    assert not wrong


def test_cycles_through_functions_are_those_the_page_defends():
    edges = {(i.by, i.of) for i in IMPORTS if i.when == "call" or i.when == "load"}
    edges = {(by, of) for by, of in edges if "mgpa" not in (by, of)}
    assert cycle(edges - DEFENDED) is None
    assert not {(i.by, i.of) for i in IMPORTS if i.when == "load"} & DEFENDED
    needless = [edge for edge in sorted(DEFENDED) if cycle(edges - (DEFENDED - {edge})) is None]
    assert not needless


def test_nothing_outside_the_papers_room_imports_it_or_reads_its_files():
    says = re.compile(r"\bmgpa\.paper\b|[\"\s]\.+paper\b(?!\()")
    outside = {name: path.read_text("utf-8") for name, path in MODULES.items() if unit(name) != "paper"}
    assert {name for name, text in outside.items() if says.search(text)} == {"mgpa.cli"}
    assert "paper" in mgpa._MODULES  # loaded by its name alone
    assert not [i for i in IMPORTS if unit(i.of) == "paper" and unit(i.by) != "paper"]


def test_the_top_level_is_short():
    top = [path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")]
    assert len(top) <= MOST_TOP_LEVEL_MODULES


def test_every_equation_has_its_function_and_its_test():
    rows = re.findall(r"^\| \((\d+)\) \| [^|]+ \| `([\w.]+)` \| `([\w/.]+)` \|", PAGE, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, 15))
    sys.path.insert(0, str(ROOT / "docs" / "theory"))
    for number, function, test in rows:
        function = function.removeprefix("docs.theory.")
        place, _, name = function.rpartition(".")
        try:
            found = getattr(importlib.import_module(place), name)
        except ModuleNotFoundError:  # a method
            module, _, cls = place.rpartition(".")
            found = getattr(getattr(importlib.import_module(module), cls), name)
        text = (found.__doc__ or "") + (inspect.getmodule(found).__doc__ or "")
        assert f"({number})" in text, f"{function} does not name equation ({number})"
        assert (ROOT / test).is_file(), test


def test_modules_load_without_cycles():
    edges = set()
    for found in IMPORTS:
        if found.when != "load":
            continue
        # Python loads the packages around a module first; those around the importer are under way already.
        parts = found.of.split(".")
        around = {".".join(parts[:n]) for n in range(2, len(parts) + 1)}
        edges |= {(found.by, of) for of in around if not f"{found.by}.".startswith(f"{of}.")}
    assert len(edges) > 300
    assert cycle(edges) is None


def test_the_front_door_loads_a_table_of_names_and_gives_the_version():
    assert {i.of for i in IMPORTS if i.by == "mgpa" and i.when != "types"} == {"mgpa._common.extras"}
    for name in {i.by for i in IMPORTS if i.of == "mgpa"}:
        package = MODULES[name].name == "__init__.py"
        dots = re.escape("." * (name.count(".") + package))
        taken = re.findall(rf"^\s*from {dots} import (.*)$", MODULES[name].read_text("utf-8"), re.MULTILINE)
        assert set(taken) == {"__version__"}, name


def test_the_page_describes_every_module():
    described = PAGE.partition("## Every part")[2]
    for name in LAYERS:
        assert name == "__main__" or f"`{name}`" in described, name


def modules_of(call):
    """Return the files of this package in which a function is called, once everything is imported."""
    call()
    seen = set()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(path for path in seen if path.startswith(str(PACKAGE)))


def stated_modules(text):
    return int(re.search(rf"{text} (\d+) modules", " ".join(PAGE.split()))[1])


def test_the_closed_form_runs_through_few_modules():
    """A fit that a newcomer can follow: the number stands in the page."""
    rng = np.random.default_rng(0)
    source = np.repeat([0, 1], 50)
    X, first = rng.normal(size=(100, 4)) + source[:, None], rng.normal(size=(30, 4))
    evidence = {"source": source, "pairs": (first, first + 1.0 + 0.1 * rng.normal(size=(30, 4)))}
    model = mgpa.ClosedFormMGPA()
    modules = modules_of(lambda: model.fit(X, **evidence))
    assert len(modules) <= stated_modules(r"`ClosedFormMGPA\(\).fit` runs through"), modules


def test_an_audit_runs_through_few_modules():
    table = mgpa.tables.simulate_table(16)
    modules = modules_of(lambda: str(mgpa.audit.run(table, readers={"restarts": 0}, verbose=False)))
    assert len(modules) <= stated_modules("`audit.run` and printing its result run through"), modules
