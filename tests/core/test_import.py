"""Importing is light, names resolve, and every example in the documentation runs."""

import doctest
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys

import pytest

import mgpa

HEAVY = ("numpy", "scipy", "sklearn", "torch", "safetensors", "pandas", "onnx", "matplotlib", "dask")
# Not needed to import the package, only by the modules that use them.
OPTIONAL = {
    "torch", "triton", "onnx", "onnxruntime", "mne", "braindecode", "pandas", "dask", "pyarrow", "matplotlib",
    "jinja2", "rich", "cyclopts", "typer", "pydantic", "skada", "pyriemann", "pooch", "concept_erasure",
    "numba", "ot",
}  # fmt: skip
MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(mgpa.__path__, "mgpa.", onerror=lambda name: None)
    if not name.endswith("__main__")
)


def loaded_after(code: str, *flags: str) -> set[str]:
    """Return the top-level modules a fresh interpreter has loaded after running ``code``."""
    script = (
        f"{code}\nimport json, sys\nprint(json.dumps(sorted({{n.partition('.')[0] for n in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, *flags, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_after("import mgpa; mgpa.__version__; dir(mgpa)") & set(HEAVY)


def test_a_stored_map_needs_numpy_and_safetensors_only(tmp_path):
    import numpy as np

    path = mgpa.maps.AffineMap.identity(3).save(tmp_path / "map.safetensors")
    code = f"import mgpa, numpy; mgpa.load_map({str(path)!r}).transform(numpy.zeros((2, 3)))"
    assert not loaded_after(code) & (set(HEAVY) - {"numpy", "safetensors"})
    assert np.array_equal(mgpa.load_map(path).transform(np.ones((1, 3))), np.ones((1, 3)))


@pytest.mark.parametrize("package", ["eeg", "paper"])
def test_importing_a_package_of_many_parts_loads_nothing_heavy(package):
    assert not loaded_after(f"import mgpa.{package}; dir(mgpa.{package})") & {*HEAVY, *OPTIONAL}


def names_of(package):
    names = [name for names in package._HOMES.values() for name in names]
    assert len(set(names)) == len(names)
    return set(names)


@pytest.mark.parametrize("package", [mgpa.eeg, mgpa.paper], ids=lambda package: package.__name__)
def test_names_of_a_package_resolve_to_one_thing_each(package):
    assert names_of(package) == set(package.__all__)
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__), "a name that is also a module's"
    for name in package.__all__:
        value = getattr(package, name)
        assert inspect.getdoc(value)
        assert getattr(value, "__name__", name) == name


def test_the_closed_form_does_not_load_torch():
    assert "torch" not in loaded_after("from mgpa import ClosedFormMGPA, MeasurementGate; ClosedFormMGPA()")


def test_linear_critics_do_not_load_torch():
    code = """
import numpy as np, mgpa
rng = np.random.default_rng(0)
source = np.repeat([0, 1], 40)
X = rng.normal(size=(80, 4)) + source[:, None]
model = mgpa.IterativeMGPA(critics=("linear",), n_stages=2)
model.fit(X, source=source, pairs=(X[:20], X[:20] + 1)).transform(X)
"""
    assert "torch" not in loaded_after(code)


@pytest.mark.parametrize("name", [*mgpa.__all__, *mgpa._MODULES])
def test_public_names_resolve_and_are_documented(name):
    value = getattr(mgpa, name)
    if name == "__version__":
        assert isinstance(value, str)
        return
    assert inspect.getdoc(value)
    assert value.__doc__, "inherited documentation only"


@pytest.mark.parametrize("name", [n for n in mgpa.__all__ if n != "__version__"])
def test_public_methods_are_documented(name):
    value = getattr(mgpa, name)
    for method, function in inspect.getmembers(value, inspect.isfunction):
        if not method.startswith("_") and function.__module__.startswith("mgpa"):
            assert inspect.getdoc(function), f"{name}.{method}"


@pytest.mark.parametrize("name", MODULES)
def test_documented_examples_run(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if error.name and error.name.partition(".")[0] in OPTIONAL:
            pytest.skip(f"needs {error.name}")
        raise
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, _ = doctest.testmod(module, optionflags=flags)
    assert failed == 0
