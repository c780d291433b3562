"""Change one token of the package at a time and see whether the tests notice.

    python tools/mutate.py gate/support pairs tables/columns -n 60 --seed 0

takes a random sample of small changes to the named modules (paths below src/mgpa; ``core``, ``tables``,
``maps``, ``estimators`` and ``audit`` stand for several): a comparison moved or turned round, + for -,
``and`` for ``or``, a dropped ``not``, another constant or default, True for False, min for max, the other
axis, a branch never taken, None returned. Each is run against the tests that concern its module (``TESTS``
below), until the first failure. A change that no test notices is printed with its place: either a test is
missing, or the change is no change in behaviour. The latter go, with a reason, into the file that ``--known``
names, and are not tried again.

The working tree is never touched: the package is copied to a temporary directory. Results go to ``--out``,
a JSON line each, and a second call goes on where the first one was interrupted. Tests that fail without any
change are named and left out: they can notice nothing.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import fnmatch
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KNOWN = Path("tests/data/equivalent_mutants.txt")

#: Names for several modules.
SEVERAL = {
    "core": [
        *("pairs", "gate/*", "anchor", "closed_form", "iterative", "critics", "stages", "trust_region"),
        *("stopping", "moments", "endpoint/*", "tokens", "coordinates", "within", "_common/scatter"),
    ],
    "tables": [f"tables/{name}" for name in ("rows", "fitting", "scale", "columns", "roles", "table")],
    "estimators": ["estimators/*"],
    "maps": ["maps/*"],
    "audit": ["audit/*"],
}

#: The tests of a module, those that are quickest to fail first; the first pattern that fits counts.
TESTS = {
    "pairs": ["core/test_pairs.py", "core/test_bad_input.py"],
    "gate/*": ["core/test_gate.py", "core/test_bad_input.py"],
    "anchor": ["core/test_anchor.py", "core/test_theory.py", "core/test_within.py"],
    "within": ["core/test_within.py", "core/test_streamed.py", "core/test_properties.py"],
    "closed_form": ["core/test_closed_form.py", "core/test_streamed.py", "core/test_within.py"],
    "iterative": ["core/test_iterative.py", "core/test_sklearn.py", "core/test_fixtures.py"],
    "critics": ["core/test_iterative.py", "core/test_fixtures.py"],
    "stages": ["core/test_iterative.py", "core/test_fixtures.py", "tables/test_scale.py"],
    "trust_region": ["core/test_trust_region.py"],
    "stopping": ["core/test_stopping.py"],
    "moments": ["core/test_moments.py", "core/test_streamed.py"],
    "_common/scatter": ["core/test_moments.py", "core/test_anchor.py", "core/test_streamed.py"],
    "endpoint/*": ["core/test_endpoint.py"],
    "tokens": ["core/test_tokens.py", "core/test_bad_input.py", "core/test_sklearn.py"],
    "coordinates": ["core/test_coordinates.py"],
    "estimators/streamed": ["core/test_streamed.py", "core/test_closed_form.py"],
    "estimators/blocks": ["core/test_tokens.py"],
    "estimators/*": ["core/test_bad_input.py", "core/test_sklearn.py", "core/test_closed_form.py"],
    "tables/files/*": ["tables"],
    "tables/rows": ["core/test_coordinates.py", "tables"],
    "tables/fitting": ["tables/test_scale.py"],
    "tables/scale": ["tables/test_scale.py"],
    "tables/*": ["tables/test_tables.py"],
    "maps/*": ["maps", "core/test_endpoint.py"],
    "audit/pair_check": ["audit/test_pair_check.py"],
    "audit/methods_text": ["audit/test_methods_text.py"],
    "audit/folds": ["audit/test_audit_folds.py"],
    "audit/sentences": ["audit/test_audit_verdicts.py", "audit/test_audit_result.py"],
    "audit/further_readers": ["audit/test_audit_planted.py"],
    "audit/heads": ["audit/test_audit_readers.py", "audit/test_audit_measure.py"],
    "audit/readers": ["audit/test_audit_readers.py", "audit/test_audit_planted.py"],
    "audit/token_readers": ["audit/test_audit_readers.py"],
    "audit/store": ["audit/test_audit_store.py", "audit/test_audit_protocol.py"],
    "audit/fits": ["audit/test_audit_fits.py", "audit/test_audit_protocol.py", "audit/test_audit_limits.py"],
    "audit/metrics": ["audit/test_audit_metrics.py", "audit/test_audit_result.py"],
    "audit/chance": ["audit/test_audit_verdicts.py"],
    "audit/report/map_page": ["audit/test_map_page.py"],
    "audit/report/verdict": ["audit/test_audit_verdicts.py", "audit/test_audit_report.py"],
    "audit/report/*": ["audit/test_audit_report.py", "audit/test_audit_limits.py", "audit/test_map_page.py"],
    "audit/plots/labels": ["audit/test_audit_labels.py"],
    "audit/plots/*": ["audit/test_audit_report.py", "audit/test_audit_result.py"],
    "audit/*": [
        *("audit/test_audit_statistics.py", "audit/test_audit_diagnostics.py", "audit/test_audit_measure.py"),
        *("audit/test_audit_limits.py", "audit/test_audit_protocol.py", "audit/test_audit_result.py"),
        *("audit/test_audit_verdicts.py", "audit/test_pair_check.py"),
    ],
}


@dataclass(frozen=True)
class Mutation:
    """One change to one module: the bytes from ``start`` to ``end`` become ``text``."""

    module: str
    function: str
    start: int
    end: int
    text: str
    kind: str

    def applied(self, source: bytes) -> bytes:
        """Return the module with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    @property
    def place(self) -> str:
        """The module and the function in it."""
        return f"{self.module} {self.function}".strip()

    def line(self, source: bytes) -> int:
        """Return the number of the line where the change begins."""
        return source.count(b"\n", 0, self.start) + 1

    def diff(self, source: bytes) -> list[str]:
        """Return the changed lines, before ("- …") and after ("+ …"): what a mutation is known by."""
        before, after = (text.decode().splitlines() for text in (source, self.applied(source)))
        lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[3:]
        return [f"{line[0]} {line[1:].strip()}" for line in lines]


COMPARISONS: dict[type[ast.AST], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
ARITHMETIC: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "/"),
    ast.Div: ("/", "*"),
}
OPPOSITE = {"min": "max", "minimum": "maximum", "any": "all", "argmin": "argmax"}
OPPOSITE |= {after: before for before, after in OPPOSITE.items()}


class _Finder(ast.NodeVisitor):
    """Collects every mutation of one module; messages, annotations and docstrings have none."""

    def __init__(self, module: str, source: bytes) -> None:
        self.module, self.source, self.function = module, source, ""
        self.starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]
        self.mutations: list[Mutation] = []
        self.visit(ast.parse(source))

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes."""
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def add(self, span: tuple[int, int], text: str, kind: str) -> None:
        """Note a mutation."""
        self.mutations.append(Mutation(self.module, self.function, *span, text, kind))

    def add_between(self, left: Any, right: Any, pattern: str, text: str, kind: str) -> None:
        """Note that the operator between two nodes becomes another."""
        start, end = self.span(left)[1], self.span(right)[0]
        match = re.search(pattern.encode(), self.source[start:end])
        if match:
            self.add((start + match.start(), start + match.end()), text, kind)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Move or turn round each comparison of a chain."""
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, node.comparators, strict=False):
            pattern, others = COMPARISONS[type(operator)]
            for other in others:
                self.add_between(left, right, pattern, other, "comparison")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Swap + and -, * and /."""
        if type(node.op) in ARITHMETIC:
            self.add_between(node.left, node.right, *ARITHMETIC[type(node.op)], "arithmetic")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Swap += and -=, *= and /=."""
        if type(node.op) in ARITHMETIC:
            self.add_between(node.target, node.value, *ARITHMETIC[type(node.op)], "arithmetic")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Swap ``and`` and ``or``."""
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.add_between(left, right, rf"\b{word}\b", other, "logic")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop ``not``, ``~`` and a minus sign."""
        if isinstance(node.op, (ast.Not, ast.Invert, ast.USub)):
            start, operand = self.span(node)[0], self.span(node.operand)[0]
            text = self.source[start:operand].decode()
            self.add((start, operand), re.sub(r"not\s*|~|-", "", text, count=1), "negation")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Swap min and max, any and all, functions or methods."""
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in OPPOSITE:
            end = self.span(node.func)[1]
            self.add((end - len(name), end), OPPOSITE[name], "function")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Swap the axes; whom a warning points at is no behaviour."""
        axis = node.arg == "axis" and isinstance(node.value, ast.Constant) and node.value.value in (0, 1)
        if axis:
            self.add(self.span(node.value), str(1 - node.value.value), "axis")  # type: ignore[attr-defined]
        elif node.arg != "stacklevel":
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change a number or a flag."""
        value = node.value
        if isinstance(value, bool):
            self.add(self.span(node), str(not value), "constant")
        elif isinstance(value, int):
            self.add(self.span(node), str(value + 1), "constant")
        elif isinstance(value, float):
            self.add(self.span(node), repr(2 * value if value else 1.0), "constant")

    def visit_If(self, node: ast.If) -> None:
        """Never take a branch."""
        if getattr(node.test, "id", "") != "TYPE_CHECKING":
            self.add(self.span(node.test), "False", "branch")
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Turn a conditional expression round."""
        start, end = self.span(node.test)
        self.add((start, end), f"not ({self.source[start:end].decode()})", "branch")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """Return nothing."""
        if node.value is not None and getattr(node.value, "value", ...) is not None:
            self.add(self.span(node.value), "None", "return")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Visit defaults and body, not annotations nor decorators."""
        outer, self.function = self.function, f"{self.function}.{node.name}".lstrip(".")
        for child in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(child)
        self.function = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit the body."""
        outer, self.function = self.function, f"{self.function}.{node.name}".lstrip(".")
        for child in node.body:
            self.visit(child)
        self.function = outer

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value, not the annotation."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave messages alone."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts alone."""


def mutations(module: str, source: bytes) -> list[Mutation]:
    """Return every mutation of a module, in the order of its lines."""
    return sorted(_Finder(module, source).mutations, key=lambda mutation: (mutation.start, mutation.text))


def read_known(path: Path) -> dict[tuple[str, ...], str]:
    """Return the mutations in a file of equivalent ones, each with its reason.

    A block is the module and the function in it, the lines before ("- …") and after ("+ …"), and the reason;
    blank lines separate blocks. Line numbers are not in it, so edits elsewhere do not matter.
    """
    known = {}
    for block in path.read_text("utf-8").split("\n\n") if path.is_file() else []:
        lines = [line for line in block.strip().splitlines() if not line.startswith("#")]
        if lines:
            changed = [line for line in lines[1:] if line.startswith(("- ", "+ "))]
            reason = " ".join(lines[1 + len(changed) :]).strip()
            if not changed or not reason:
                raise SystemExit(f"{path}: {lines[0]} lacks its changed lines or its reason.")
            known[(lines[0].strip(), *changed)] = reason
    return known


@dataclass(frozen=True)
class Result:
    """What became of a mutation (killed, timeout, survived, known), and the test that noticed it."""

    place: str
    line: int
    kind: str
    diff: list[str]
    outcome: str
    by: str
    seconds: float


class Bench:
    """A copy of the package, and its tests."""

    def __init__(self, root: Path, copy: Path) -> None:
        self.root, self.copy = root, copy
        shutil.copytree(root / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        # Modules change within a second, which the time stamps of byte code do not see.
        self.environment = os.environ | {
            "PYTHONPATH": str(copy / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / "hypothesis"),
        }

    def pytest(self, tests: list[str], *options: str, timeout: float | None = None) -> tuple[int, str, float]:
        """Run tests; return their exit code (-1: out of time), what they said, and the seconds they took."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
        start = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=self.root, env=self.environment, timeout=timeout, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            return -1, "", time.monotonic() - start
        return done.returncode, done.stdout + done.stderr, time.monotonic() - start

    def baseline(self, tests: list[str]) -> tuple[list[str], float]:
        """Return the tests that fail without any change, and the seconds that all take."""
        code, said, seconds = self.pytest(tests, "-rfE", "--tb=no")
        if code not in (0, 1):
            raise SystemExit(f"{' '.join(tests)} do not run:\n{said[-2000:]}")
        return failures(said), seconds

    def run(self, mutation: Mutation, tests: list[str], skip: list[str], timeout: float) -> Result:
        """Run the tests on a mutated package."""
        path = self.copy / "src" / "mgpa" / f"{mutation.module}.py"
        source = path.read_bytes()
        path.write_bytes(mutation.applied(source))
        try:
            options = [option for test in skip for option in ("--deselect", test)]
            code, said, seconds = self.pytest(tests, "-x", "-rfE", "--tb=no", *options, timeout=timeout)
        finally:
            path.write_bytes(source)
        by = failures(said)
        if code not in (0, -1) and not by:  # out of memory, for example, which says nothing about the tests
            raise SystemExit(f"pytest stopped with exit code {code} without a failed test:\n{said[-2000:]}")
        outcome = {0: "survived", -1: "timeout"}.get(code, "killed")
        line, diff = mutation.line(source), mutation.diff(source)
        return Result(
            mutation.place, line, mutation.kind, diff, outcome, by[0] if by else "", round(seconds, 1)
        )


def failures(said: str) -> list[str]:
    """Return the tests and files that pytest's summary (-rfE) names as failed."""
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, flags=re.MULTILINE)


def find_modules(root: Path, names: list[str]) -> list[str]:
    """Return the modules that names, patterns and names for several stand for."""
    package = root / "src" / "mgpa"
    every = sorted(str(path.relative_to(package).with_suffix("")) for path in package.rglob("*.py"))
    patterns = [pattern for name in names for pattern in SEVERAL.get(name, [name])]
    chosen = {pattern: [m for m in every if fnmatch.fnmatch(m, pattern)] for pattern in patterns}
    missing = [pattern for pattern, found in chosen.items() if not found]
    if missing:
        raise SystemExit(f"There is no module {', '.join(missing)} below {package}.")
    return sorted({module for found in chosen.values() for module in found})


def tests_of(module: str) -> list[str]:
    """Return the test files that concern a module."""
    for pattern, tests in TESTS.items():
        if fnmatch.fnmatch(module, pattern):
            own = module.rpartition("/")[2]  # the tests of that name come first
            return [f"tests/{test}" for test in sorted(tests, key=lambda test: own not in test)]
    raise SystemExit(f"TESTS in {__file__} says nothing about {module}; add it, or pass --tests.")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 1 if a mutation survived."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="+", help="paths below src/mgpa, or core, tables, maps, …")
    parser.add_argument("-n", type=int, default=60, help="how many mutations to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"), help="results, a JSON line each")
    parser.add_argument("--known", type=Path, help=f"equivalent mutations, not to try; default {KNOWN}")
    parser.add_argument("--tests", nargs="+", help="test files, instead of those of each module")
    parser.add_argument("--root", type=Path, default=ROOT, help="the working tree")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    known = read_known(options.known or root / KNOWN)
    modules = find_modules(root, options.modules)
    sources = {module: (root / "src" / "mgpa" / f"{module}.py").read_bytes() for module in modules}
    pool = [mutation for module, source in sources.items() for mutation in mutations(module, source)]
    sample = random.Random(options.seed).sample(pool, min(options.n, len(pool)))
    sample.sort(key=lambda mutation: (mutation.module, mutation.start))
    outcomes = dict.fromkeys(("killed", "timeout", "survived", "known"), 0)
    with tempfile.TemporaryDirectory() as copy:
        for result in tried(Bench(root, Path(copy)), sample, sources, known, options):
            outcomes[result.outcome] += 1
            if result.outcome == "survived":
                module, _, function = result.place.partition(" ")
                print(
                    f"src/mgpa/{module}.py:{result.line}: {result.kind} in {function}",
                    *result.diff,
                    sep="\n  ",
                )
    print(", ".join(f"{n} {name}" for name, n in outcomes.items()) + f"; {len(pool)} are possible")
    return int(outcomes["survived"] > 0)


def tried(
    bench: Bench,
    sample: list[Mutation],
    sources: dict[str, bytes],
    known: dict[tuple[str, ...], str],
    options: argparse.Namespace,
) -> Iterator[Result]:
    """Yield what becomes of each mutation, from an earlier run where it has it."""
    lines = options.out.read_text("utf-8").splitlines() if options.out.is_file() else []
    earlier = {(r.place, r.line, *r.diff): r for r in (Result(**json.loads(line)) for line in lines)}
    baselines: dict[tuple[str, ...], tuple[list[str], float]] = {}
    for mutation in sample:
        source = sources[mutation.module]
        line, diff = mutation.line(source), mutation.diff(source)
        if (mutation.place, *diff) in known:
            yield Result(mutation.place, line, mutation.kind, diff, "known", "", 0.0)
            continue
        if (mutation.place, line, *diff) in earlier:
            yield earlier[mutation.place, line, *diff]
            continue
        tests = options.tests or tests_of(mutation.module)
        if tuple(tests) not in baselines:
            baselines[tuple(tests)] = bench.baseline(tests)
            for test in baselines[tuple(tests)][0]:
                print(f"fails already, and is left out: {test}")
        failing, seconds = baselines[tuple(tests)]
        result = bench.run(mutation, tests, failing, timeout=30 + 4 * seconds)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")
        yield result


if __name__ == "__main__":
    sys.exit(main())
