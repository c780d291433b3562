"""Every test asserts something."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))


def asserts(function: ast.FunctionDef, helpers: frozenset[str] = frozenset()) -> bool:
    """Return whether a test asserts, expects an error or a warning, runs a script that must succeed
    (``check=True``), or calls a helper that does.
    """
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("raises", "warns") or name.startswith(("assert", "check")) or name in helpers:
                return True
            if any(
                word.arg == "check" and getattr(word.value, "value", None) is True for word in node.keywords
            ):
                return True
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_every_test_asserts_something(path):
    functions = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.FunctionDef)]
    tests = [function for function in functions if function.name.startswith("test_")]
    helpers = frozenset(f.name for f in functions if f not in tests and asserts(f))
    assert tests
    assert [test.name for test in tests if not asserts(test, helpers)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_hides_another_of_the_same_name(path):
    names = [node.name for node in ast.parse(path.read_text("utf-8")).body if hasattr(node, "name")]
    assert sorted(names) == sorted(set(names))


def test_a_test_without_an_assertion_is_noticed():
    (idle,) = ast.parse("def test_nothing():\n    transform(X)\n").body
    (busy,) = ast.parse("def test_something():\n    with refused('X'):\n        transform(X)\n").body
    assert not asserts(idle)
    assert not asserts(busy)
    assert asserts(busy, frozenset({"refused"}))
