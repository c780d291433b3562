"""The mutation tool finds what no test notices, leaves the tree alone, and goes on where it was."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "mutate.py"

MODULE = '''"""A toy."""


def is_adult(age: int, limit: int = 18) -> bool:
    """Return whether somebody is of age."""
    if age < 0:
        raise ValueError("negative")
    return age >= limit
'''
TESTS = """
import pytest
from mgpa.toy import is_adult

def test_limits():
    assert is_adult(18) and not is_adult(17)

def test_negative():
    with pytest.raises(ValueError):
        is_adult(-1)

def test_broken_already():
    assert False
"""


@pytest.fixture(scope="module")
def mutate():
    spec = importlib.util.spec_from_file_location("mutate", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    package = tmp_path / "src" / "mgpa"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "toy.py").write_text(MODULE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_toy.py").write_text(TESTS)
    return tmp_path


def run(tree, *options):
    """Run the tool on the toy; return what it did and what became of each changed line."""
    out = tree / "out.jsonl"
    command = [sys.executable, TOOL, "toy", "--root", tree, "--tests", "tests/test_toy.py", "--out", out]
    quick = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*map(str, command), *options], capture_output=True, text=True, cwd=tree, env=quick, check=False
    )
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(bool(result["by"]) == (result["outcome"] == "killed") for result in results)
    return done, {result["diff"][1]: result["outcome"] for result in results}


def test_survivors_are_told_from_the_killed_and_the_tree_stays_as_it_is(tree):
    done, outcomes = run(tree)
    assert done.returncode == 1, done.stderr
    assert "fails already, and is left out: tests/test_toy.py::test_broken_already" in done.stdout
    assert outcomes["+ return age > limit"] == "killed"
    assert outcomes["+ if False:"] == "killed"
    assert outcomes["+ def is_adult(age: int, limit: int = 19) -> bool:"] == "killed"
    assert outcomes["+ if age <= 0:"] == "survived"
    assert "src/mgpa/toy.py:6: comparison in is_adult\n  - if age < 0:\n  + if age <= 0:" in done.stdout
    assert (tree / "src" / "mgpa" / "toy.py").read_text() == MODULE
    # A second run has nothing left to do, and says the same.
    again, same = run(tree)
    assert same == outcomes
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]
    # What is known to make no difference is not tried, nor held against the tests.
    known = tree / "known.txt"
    known.write_text("# a comment\ntoy is_adult\n- if age < 0:\n+ if age <= 0:\nNobody is zero.\n")
    assert "1 known" in run(tree, "--known", str(known))[0].stdout
    known.write_text("toy is_adult\n- if age < 0:\n+ if age <= 0:\n")
    assert "toy is_adult lacks its changed lines or its reason" in run(tree, "--known", str(known))[0].stderr


def test_a_sample_depends_on_the_seed_alone(mutate):
    source = (ROOT / "src" / "mgpa" / "gate" / "support.py").read_bytes()
    possible = mutate.mutations("gate/support", source)
    assert possible == mutate.mutations("gate/support", source)
    for mutation in possible:
        compile(mutation.applied(source), "support", "exec")
        assert mutation.applied(source) != source
    assert {mutation.kind for mutation in possible} == {
        *("comparison", "arithmetic", "logic", "negation", "function"),
        *("axis", "constant", "branch", "return"),
    }


def test_every_module_of_the_tool_has_tests_that_exist(mutate):
    for module in mutate.find_modules(ROOT, list(mutate.SEVERAL)):
        for test in mutate.tests_of(module):
            assert (ROOT / test).exists(), (module, test)
    with pytest.raises(SystemExit, match="There is no module nowhere"):
        mutate.find_modules(ROOT, ["nowhere"])


def test_the_equivalent_mutations_on_record_are_still_possible(mutate):
    known = mutate.read_known(ROOT / mutate.KNOWN)
    places = {key[0].split(" ")[0] for key in known}
    possible = set()
    for module in places:
        source = (ROOT / "src" / "mgpa" / f"{module}.py").read_bytes()
        possible |= {(m.place, *m.diff(source)) for m in mutate.mutations(module, source)}
    assert known.keys() <= possible
