"""The tutorials on real data: their tables, and whether their committed numbers come out again."""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mgpa.audit import Estimate
from mgpa.paper import load_study, run_study
from mgpa.paper.studies.setup import effective_settings
from mgpa.tables.files import write_table
from shared import SHARED

ROOT = Path(__file__).resolve().parents[2]
STUDIES, DOCS = ROOT / "examples" / "studies", ROOT / "docs" / "studies"
REPORTS = DOCS / "reports"
REAL = SHARED / "real"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="the real recordings are not on this machine")
# Readers without networks: what they find is the same on every machine.
LINEAR = {"restarts": 0, "checkpoints": [12]}


@pytest.fixture(scope="module")
def make_tables():
    spec = importlib.util.spec_from_file_location("make_tables", STUDIES / "make_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(name, file="table.csv"):
    """Return the committed numbers of a study by task, method, other method and metric."""
    with (REPORTS / name / file).open(encoding="utf-8", newline="") as stream:
        return {
            (row["task"], row["method"], row["against"], row["metric"]): Estimate(
                *(float(row[part]) for part in ("value", "low", "high"))
            )
            for row in csv.DictReader(stream)
        }


def only(path, *kept):
    """Return the changes that leave all methods out but these."""
    return {"methods": {name: False for name in load_study(path).methods if name not in kept}}


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_tutorial_study_can_be_read_and_has_its_report(path):
    study = load_study(path)
    assert study.name == path.stem
    assert load_study(path, quick=True).seeds == (17,)
    ran = json.loads((REPORTS / study.name / "provenance.json").read_text("utf-8"))["study"]
    # The committed numbers are of the committed study, setting by setting.
    expected = json.loads(json.dumps(effective_settings(study)))
    assert ran["seeds"] == expected["seeds"]
    for section in ("roles", "endpoints", "coordinates", "gate", "reuse"):
        # A setting that came after a run had its default there.
        fields = {} if (plan := getattr(study, section)) is None else type(plan).model_fields
        stored = {name: field.default for name, field in fields.items()} | (ran[section] or {})
        assert stored.items() >= (expected[section] or {}).items(), section
    assert list(ran["methods"]) == list(expected["methods"])
    for name, method in study.methods.items():
        stored, wanted = ran["methods"][name], json.loads(json.dumps(method.parameters))
        if wanted.get("anchor") == "pooled":  # when these ran it changed nothing of pooled closed forms
            wanted.pop("do_no_harm", None)
        assert stored["parameters"].items() >= wanted.items()
        for key in ("method", "gate", "gate_seeds", "tokens", "budget", "pairs", "grid"):
            assert stored[key] == expected["methods"][name][key], (name, key)


FOUR, THREE = ("S", "T_f", "M", "worst"), ("S", "T_f", "M")


@pytest.mark.parametrize(
    ("study", "metrics"),
    [("kalunga", FOUR), ("kalunga-within", FOUR), ("kalunga-tokens", THREE), ("kalunga-tokens-joint", THREE)],
)
def test_the_kalunga_page_says_what_the_committed_tables_say(study, metrics):
    text, numbers = (DOCS / "kalunga.md").read_text("utf-8"), committed(study)
    for method in dict.fromkeys(name for _, name, *_ in numbers):
        cells = [f"{numbers['', method, '', metric]:.3f}" for metric in metrics]
        assert f"| {method} | {' | '.join(cells)} |" in text


def test_the_kalunga_page_quotes_the_larger_contrast():
    text = " ".join((DOCS / "kalunga.md").read_text("utf-8").split())
    published, defaults = committed("kalunga-gamma-02"), committed("kalunga-within-gamma-02")
    joint = committed("kalunga-tokens-joint-02")

    def s(table, method):
        return f"{table['', method, '', 'S'].value:.3f}".lstrip("0")

    assert (
        f"S is {s(published, 'identity')} uncorrected, {s(published, 'LEACE')} after LEACE, "
        f"{s(published, 'MGPA-CF')} after MGPA-CF"
    ) in text
    assert f"{s(defaults, 'MGPA')} after `MGPA`, {s(published, 'CORAL → car')} after CORAL" in text
    assert f"falls from {s(joint, 'identity')} to {s(joint, 'All channels')}" in text


@pytest.mark.parametrize("study", ["corn", "corn-within", "corn-reuse", "corn-reuse-within"])
def test_the_corn_page_says_what_its_table_says(study):
    text, numbers = (DOCS / "corn.md").read_text("utf-8"), committed(study)
    tasks = ("moisture", "oil", "protein", "starch")
    for method in dict.fromkeys(name for _, name, *_ in numbers):
        if study == "corn-reuse-within" and method != "MGPA":
            continue
        first = [] if "reuse" in study else [f"{numbers['moisture', method, '', m]:.3f}" for m in ("S", "M")]
        metric = "worst" if "reuse" in study else "T_f"
        heads = [f"{numbers[task, method, '', metric]:.3f}" for task in tasks]
        assert f"| {' | '.join([method, *first, *heads])} |" in text


@needs_real
def test_kalunga_numbers_come_out_again(make_tables, tmp_path):
    with np.load(REAL / "kalunga_gssc_tokens.npz") as data:
        write_table(make_tables.kalunga(data), tmp_path / "kalunga.npz")
    path, methods = STUDIES / "kalunga.toml", ("LEACE", "MGPA-CF", "CORAL → car")
    study = load_study(path, recordings=tmp_path / "kalunga.npz", readers=LINEAR, **only(path, *methods))
    audit = run_study(study, tmp_path / "work", verbose=False).audits[""]
    expected = committed("kalunga")
    for method in ("identity", *methods):
        for metric in ("T_f", "T_r", "M", "worst", "control"):
            close(audit.estimates[method][metric], expected["", method, "", metric])
    # The best of all readers is one of the two linear ones here.
    for method in ("identity", "LEACE"):
        close(audit.estimates[method]["S"], expected["", method, "", "S"])


@needs_real
def test_corn_numbers_come_out_again_for_every_target(make_tables, tmp_path):
    with np.load(REAL / "corn_nir.npz") as data:
        write_table(make_tables.corn(data), tmp_path / "corn.npz")
    path, methods = STUDIES / "corn.toml", ("LEACE", "MGPA-CF", "FEATMAP → m5")
    study = load_study(path, recordings=tmp_path / "corn.npz", readers=LINEAR, **only(path, *methods))
    audits, expected = run_study(study, tmp_path / "work", verbose=False).audits, committed("corn")
    assert list(audits) == ["moisture", "oil", "protein", "starch"]
    for task, audit in audits.items():
        for method in ("identity", *methods):
            for metric in ("T_f", "T_r", "M"):
                # A block has few pairs of classes; one that swaps by rounding is a visible step.
                close(audit.estimates[method][metric], expected[task, method, "", metric], 0.004)


@needs_real
@pytest.mark.parametrize(
    ("name", "file", "tolerance"),
    [("kalunga-within", "kalunga_gssc_tokens.npz", 1e-3), ("corn-within", "corn_nir.npz", 0.004)],
)
def test_the_numbers_of_the_default_come_out_again(make_tables, tmp_path, name, file, tolerance):
    with np.load(REAL / file) as data:
        table = make_tables.corn(data) if name.startswith("corn") else make_tables.kalunga(data)
    write_table(table, tmp_path / "table.npz")
    path = STUDIES / f"{name}.toml"
    study = load_study(path, recordings=tmp_path / "table.npz", readers=LINEAR, **only(path, "MGPA"))
    expected = committed(name)
    for task, audit in run_study(study, tmp_path / "work", verbose=False).audits.items():
        for metric in ("T_f", "T_r", "M"):
            close(audit.estimates["MGPA"][metric], expected[task, "MGPA", "", metric], tolerance)


@needs_real
@pytest.mark.slow
def test_the_errors_of_moisture_come_out_again():
    script = [
        sys.executable,
        STUDIES / "moisture.py",
        REAL / "corn_nir.npz",
        "--methods",
        "LEACE",
        "MGPA → m5",
    ]
    done = subprocess.run(script, capture_output=True, text=True, check=True, encoding="utf-8")
    section = (DOCS / "corn.md").read_text("utf-8").split("## ")[2]
    page = {line.split(" | ")[0]: line for line in section.splitlines()}
    rows = [line for line in done.stdout.splitlines() if re.match(r"\| \w", line)]
    assert len(rows) == 3
    for row in rows:
        printed, written = (
            np.array(re.findall(r"-?\d*\.\d+", r), float) for r in (row, page[row.split(" | ")[0]])
        )
        np.testing.assert_allclose(printed, written, atol=0.005)


@needs_real
def test_what_moisture_selects_comes_out_again(make_tables, tmp_path):
    with np.load(REAL / "corn_nir.npz") as data:
        write_table(make_tables.corn(data, ["m5", "mp6"]), tmp_path / "corn_two.npz")
    path = STUDIES / "corn-reuse.toml"
    study = load_study(
        path,
        recordings=tmp_path / "corn_two.npz",
        roles={"rotations": [0, 1]},
        methods=only(path, "MGPA-CF")["methods"],
        reuse={"tasks": ["moisture", "oil"]},
    )
    result = run_study(study, tmp_path / "work", verbose=False)
    results = json.loads((REPORTS / "corn-reuse" / "results.json").read_text("utf-8"))
    for split in ("rotation 0", "rotation 1"):
        found, expected = (
            s[f"MGPA-CF, {split}"]["fits"][0] for s in (result.selection, results["selection"])
        )
        assert found["strength"] == expected["strength"]
        assert found["worst"] == pytest.approx(expected["worst"], abs=1e-3)
    assert list(result.audits) == ["moisture", "oil"]
    assert len(result.audits["oil"]["MGPA-CF"].participants) == 7


def close(found, expected, tolerance=1e-3):
    """Assert that an estimate and its interval are what they were."""
    for part in ("value", "low", "high"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part), abs=tolerance)


@needs_real
def test_the_page_on_real_eeg_says_what_its_script_prints(tmp_path):
    text = (ROOT / "docs" / "start" / "real_eeg.md").read_text("utf-8")
    (printed,) = re.findall(r"```text\n\$ python examples/kalunga_reference\.py\n(.*?)```", text, re.DOTALL)
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "examples" / "kalunga_reference.py")),
            *("--npz", str(REAL / "kalunga_epochs.npz"), "--figure", str(tmp_path / "picture.svg")),
        ],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    said, came_out = (
        [re.split(r" {2,}", line) for line in lines.splitlines()] for lines in (printed, done.stdout)
    )
    assert len(said) == len(came_out)
    for ours, theirs in zip(said, came_out, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            numbers = [[float(x) for x in re.findall(r"[-+]?\d*\.\d+", cell)] for cell in (a, b)]
            assert np.allclose(*numbers, atol=0.005) if numbers[0] else a == b, (a, b)
            assert re.sub(r"[\d.+-]+", "", a) == re.sub(r"[\d.+-]+", "", b)  # the same words
    assert (tmp_path / "picture.svg").stat().st_size > 10_000
