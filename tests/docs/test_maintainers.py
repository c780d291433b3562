"""The pages for maintainers are true: examples run as printed, files named exist, the wheel is complete."""

import re
import shlex
import sys
import types
import zipfile
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import mgpa
from mgpa.baselines import list_methods, make_method, registry
from mgpa.maps import AffineMap
from mgpa.paper.datasets import catalogue

ROOT = Path(__file__).resolve().parents[2]
PAGES = {page.stem: page.read_text("utf-8") for page in sorted((ROOT / "docs" / "maintainers").glob("*.md"))}
PARTS = dict(re.findall(r"^## An? (.*?)\n(.*?)(?=^## |\Z)", PAGES["add"], re.DOTALL | re.MULTILINE))


def blocks(part, language):
    matches = re.findall(rf"^( *)```{language}\n(.*?)^\1```", PARTS[part], re.DOTALL | re.MULTILINE)
    assert matches, f"{part} has no {language} block"
    return [dedent(text) for _, text in matches]


def run_part(part, n=None):
    """Run the Python of a part, or its first n blocks, from top to bottom; return what it defined."""
    # Dataclasses look their module up by its name.
    module = types.ModuleType(f"page_{part.replace(' ', '_')}")
    sys.modules[module.__name__] = module
    try:
        for block in blocks(part, "python")[:n]:
            exec(compile(block, "add.md", "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module.__dict__


def mgpa_commands(part):
    """Return the arguments of every ``mgpa`` command in a part's console blocks."""
    lines = [
        shlex.split(line, comments=True) for block in blocks(part, "console") for line in block.splitlines()
    ]
    return [line[1:] for line in lines if line and line[0].rpartition("/")[2] == "mgpa"]


def test_the_new_baseline_is_audited_like_any_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_part("baseline")
    result = names["result"]
    assert list(result.methods) == ["identity", "mean projection", "LEACE", "MGPA"]
    table = names["table"].rows("FIT")
    model = names["MeanProjection"]().fit(table.X, source=table.source)
    assert isinstance(model.to_map(), AffineMap)
    Y = model.transform(table.X)
    means = [Y[table.source == s].mean(axis=0) for s in table.sources]
    np.testing.assert_allclose(means[0], means[1], atol=1e-10)


def test_the_new_baselines_line_in_the_registry_is_all_it_takes(monkeypatch):
    names = run_part("baseline", n=1)
    line = eval(blocks("baseline", "python")[-1], names)
    monkeypatch.setattr(registry, "_METHODS", (*registry._METHODS, line))
    assert isinstance(make_method("mean-projection", standardize=False), names["MeanProjection"])
    entry = list_methods()[-1]
    assert (entry.name, entry.streams, entry.source_blind, entry.needs_pairs) == (line[0], True, True, False)
    for promise in ("Reference", "Needs", "cannot do"):
        assert promise in line[1].__doc__


def test_the_new_encoders_embed(capsys):
    pytest.importorskip("torch")
    names = run_part("encoder")
    assert names["table"].X.shape == (4, 3)
    assert names["table"].info["encoder"] == {"name": "line length", "lag": 2, "unit": "uV"}
    expected = np.abs(names["trials"].data[0, 0, 2:] - names["trials"].data[0, 0, :-2]).mean() * 1e6
    assert names["table"].X[0, 0] == pytest.approx(expected, rel=1e-6)
    assert names["encode"](names["trials"], names["encoder"]).X.shape == (4, 4, 8)
    with pytest.raises(ValueError, match="too short for a lag of 200"):
        names["LineLength"](200).embed(names["trials"])
    assert "4 rows of 4 x 8" in capsys.readouterr().out


def test_the_new_data_set_is_read_and_verified(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_part("data set")
    trials = names["trials"]
    assert trials.data.shape == (24, 2, 50)
    first = (tmp_path / "taps" / "P1_dry.csv").read_text().splitlines()[0].split(",")
    assert trials.columns["label"][0] == first[0]
    np.testing.assert_allclose(trials.data[0].reshape(-1), 1e-6 * np.array(first[1:], float))
    table = mgpa.tables.Table.from_columns({"X": trials.data.mean(axis=2), **trials.columns}, trials.info)
    assert len(table.paired_views()[0]) == 12
    assert "4 of 4 files" in capsys.readouterr().out
    # Known to the commands by its name alone.
    reader = types.ModuleType("mgpa.paper.datasets.finger_taps")
    reader.finger_taps_inventory = names["finger_taps_inventory"]
    monkeypatch.setitem(sys.modules, reader.__name__, reader)
    monkeypatch.setitem(catalogue.DATASETS, "finger_taps", {"title": "Finger taps"})
    assert catalogue.verify_dataset("finger_taps", "taps").complete
    (tmp_path / "taps" / "P1_dry.csv").write_text("both,1.0\n")
    (tmp_path / "taps" / "P2_wet.csv").unlink()
    inventory = catalogue.verify_dataset("finger_taps", "taps")
    assert inventory.missing == ("P2_wet.csv",)
    assert "P1_dry.csv, line 1: 'both' and 1 values" in inventory.problems[0]
    with pytest.raises(FileNotFoundError, match=r"P2_wet.csv"):
        names["read_finger_taps"]("taps", ("P2",))


def test_the_new_study_runs_from_its_file(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cyclopts")
    from mgpa.cli import main

    monkeypatch.chdir(tmp_path)
    # Thirty files that tests/audit/test_audit_report.py looks at.
    monkeypatch.setattr(mgpa.audit.Audit, "figures", lambda audit, folder: [])
    run_part("study")
    (tmp_path / "headsets.toml").write_text(blocks("study", "toml")[0])
    commands = mgpa_commands("study")
    assert [command[1] for command in commands] == ["plan", "run"]
    for command in commands:
        assert main(command) == 0
    assert (tmp_path / "results" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "results" / "provenance.json").is_file()
    assert "MGPA, closed form" in capsys.readouterr().out


def test_every_benchmark_has_its_command():
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    said = set(re.findall(r"`python (benchmarks/\w+\.py)", page))
    assert said == {f"benchmarks/{path.name}" for path in (ROOT / "benchmarks").glob("*.py")}
    for script, options in re.findall(r"`python (benchmarks/\w+\.py)([^`]*)`", page):
        for option in re.findall(r"--[\w-]+", options):
            assert f'"{option}"' in (ROOT / script).read_text("utf-8"), (script, option)


def test_every_file_and_name_on_the_pages_exists():
    new = {"mean_projection.py", "finger_taps.py"}
    text = "\n".join(PAGES.values())
    folders = ("src", "tests", "benchmarks", "docs")
    every = [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.py")]
    every += [f"/{path.name}" for path in ROOT.glob("*.md")]
    for name in re.findall(r"`((?:[\w.]+/)*[\w]+\.(?:py|md))`", text):
        assert name.rpartition("/")[2] in new or any(known.endswith(f"/{name}") for known in every), name
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    for folder in ("tests", "docs"):
        code += "\n".join(path.read_text("utf-8") for path in (ROOT / folder).rglob("*.py"))
    for name in re.findall(r"`(?:\w+\.)*(_?[A-Za-z]+_\w+)`", text):
        assert name in code, name


def test_the_wheel_has_every_file_of_the_package(tmp_path):
    hatchling = pytest.importorskip("hatchling.builders.wheel")
    wheel = next(
        iter(hatchling.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    )
    package = ROOT / "src"
    expected = {
        str(path.relative_to(package))
        for path in (package / "mgpa").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {
        "mgpa/py.typed",
        "mgpa/paper/studies/template.toml",
        "mgpa/audit/report/template.html",
    } <= expected
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
