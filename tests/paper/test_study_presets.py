"""The packaged studies, short, from simulated recordings to reports: what theory predicts is found."""

import csv
import json
import re

import pytest

from shared import SHARED, needs_shared

pytest.importorskip("pydantic")
pytest.importorskip("torch")
pytest.importorskip("mne")
pytest.importorskip("matplotlib")

from mgpa.audit import METRICS
from mgpa.paper import load_study, presets, run_study, write_results
from mgpa.paper.datasets import neuroscan_flex


def ran(name, folder, **changes):
    """Run a study quickly and return its audits, after looking at everything it wrote."""
    study = load_study(name, quick=True, **changes)
    result = run_study(study, folder / "work", verbose=False)
    first = write_results(result, folder)[0]
    assert first.exists()
    for task in result.audits:
        text = (folder / (f"report-{task}.html" if task else "report.html")).read_text("utf-8")
        assert study.title in text
        assert "These recordings are simulated" in text
    with open(folder / "contrasts.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["method"], row["against"]) for row in rows} == {(c.a, c.b) for c in study.contrasts}
    assert json.loads((folder / "results.json").read_text("utf-8"))["heading"] == "Simulated"
    for task in result.audits:
        assert {path.suffix for path in (folder / "figures" / task).iterdir()} == {".pdf", ".svg", ".png"}
    return result.audits


def below(estimate, bound=0.0):
    """Whether a whole interval lies below a bound."""
    return estimate.low <= estimate.value <= estimate.high < bound


def above(estimate, bound=0.0):
    return bound < estimate.low <= estimate.value <= estimate.high


def unchanged(estimate, most=0.01):
    """Whether an interval includes no change, or excludes any but the slightest."""
    return estimate.low <= 0 <= estimate.high or max(abs(estimate.low), abs(estimate.high)) < most


@pytest.mark.slow
def test_controlled_ssvep_finds_what_theory_predicts(tmp_path):
    audit = ran("controlled-ssvep", tmp_path)[""]
    assert above(audit["identity"].estimate("S"), 0.6)
    # Under association the closed form attenuates the source at no cost to the task; LEACE pays with it.
    assert below(audit.contrast("MGPA-CF", "identity", "S"), -0.05)
    assert unchanged(audit.contrast("MGPA-CF", "identity", "T_f"))
    assert above(audit.contrast("MGPA-CF", "LEACE", "T_f"))
    # At matched movement, directions that were measured beat any others.
    for control in ("PCA gate", "Random gates", "Ungated"):
        moved = audit.contrast("Measurement gate", control, "M")
        assert abs(moved.value) < 0.005, control
        assert below(audit.contrast("Measurement gate", control, "S")), control
    # Scores aimed at what the preserved part predicts move less than scores aimed at their mean.
    assert below(audit.contrast("Conditional target", "Mean target", "M"))


@pytest.mark.slow
def test_temporal_n170_two_amplifiers_are_told_apart_less(tmp_path):
    audit = ran("temporal-n170", tmp_path)[""]
    assert above(audit["identity"].estimate("S"), 0.9)
    assert above(audit["identity"].estimate("T_f"), 0.6)
    for name in ("MGPA-CF", "MGPA-Iter"):
        assert below(audit.contrast(name, "identity", "S"), -0.1)
        assert audit.contrast(name, "identity", "T_f").value > -0.02
    assert len(audit["MGPA-Iter"].participants) == 10


def test_recorded_ssvep_virtual_pairs_attenuate_the_electrode(tmp_path):
    audit = ran("recorded-ssvep", tmp_path)[""]
    assert above(audit["identity"].estimate("S"), 0.7)
    assert above(audit["identity"].estimate("T_f"), 0.7)
    for name in ("MGPA-CF", "MGPA-Iter"):
        assert below(audit.contrast(name, "identity", "S"))
        assert unchanged(audit.contrast(name, "identity", "T_f"))


@pytest.mark.slow
def test_p300_reuse_mends_heads_of_tasks_it_never_saw(tmp_path):
    events = {"oddball_active": 50, "N170": 40, "oddball_passive": 50}
    audits = ran("p300-reuse", tmp_path, data={"simulate": {"n_events": events}}, reuse={"calibration": 15})
    assert list(audits) == ["P300", "N170", "MMN"]
    for task, audit in audits.items():
        assert above(audit["identity"].estimate("S"), 0.9), task
        assert below(audit.contrast("MGPA-Iter", "identity", "S")), task
        for name in ("MGPA-CF", "MGPA-Iter"):
            assert above(audit.contrast(name, "identity", "worst")), (task, name)


@pytest.mark.parametrize("name", list(presets()))
def test_every_value_of_the_paper_has_a_place(name):
    """In the complete study each stands beside a method and metric that are measured."""
    study = load_study(name)
    tasks = ("",)
    if study.reuse is not None:
        tasks = tuple(study.reuse.labels[task] for task in study.reuse.tasks)
    ways = ("Neuroscan → flex", "flex → Neuroscan")
    metrics = (*METRICS, *(f"{t} {way}" for t in ("T_f", "T_r") for way in ways))
    # The paper also prints single fits and ratios, which are computed from a metric's numbers.
    metrics += tuple(f"{metric} of {end} fit" for metric in METRICS for end in ("lowest", "highest"))
    metrics += tuple(f"{metric} times {other}" for metric in METRICS for other in study.methods)
    known = {f"{task} {metric}".strip() for task in tasks for metric in metrics}
    assert study.paper
    assert set(study.paper) <= {"identity", *study.methods}
    for values in study.paper.values():
        assert set(values) <= known
    assert study.contrasts
    for contrast in study.contrasts:
        assert set(contrast.paper) <= {f"{t} {m}".strip() for t in tasks for m in contrast.metrics}
        for value, low, high in contrast.paper.values():
            assert low <= value <= high


@pytest.mark.parametrize("name", list(presets()))
def test_every_preset_loads_in_every_way(name, tmp_path):
    for quick in (False, True):
        simulated, recorded = (load_study(name, quick=quick, recordings=r) for r in (None, tmp_path))
        assert simulated.simulated
        assert not recorded.simulated
        assert recorded.data.folder == tmp_path
        # What stands in for the paper's network is for simulated recordings only.
        assert name == "temporal-n170" or recorded.encoder.name == "eegpt" != simulated.encoder.name
        assert set(simulated.methods) == set(recorded.methods)
    assert set(load_study(name, quick=True).methods) <= set(load_study(name).methods)
    assert len(load_study(name, quick=True).seeds) < len(load_study(name).seeds)


@pytest.mark.parametrize(("name", "roles"), [("temporal-n170", "N170"), ("p300-reuse", "reuse")])
def test_presets_give_people_the_roles_of_the_data_set(name, roles):
    for quick in (False, True):
        assert load_study(name, quick=quick).roles.people == neuroscan_flex.ROLES[roles]


@needs_shared
@pytest.mark.parametrize("preset", ["controlled-ssvep", "temporal-n170", "recorded-ssvep"])
def test_differences_in_the_text_of_the_paper_are_copied_correctly(preset):
    """Each stands there as a value and an interval (of movement that is lower by so much, without signs)."""
    text = re.sub(r"[\s$+]", "", (SHARED / "paper.tex").read_text("utf-8"))
    points = re.findall(r"(-?\d\.\d\d)\[(-?\d\.\d\d),(-?\d\.\d\d)\]", text)
    shown = {tuple(round(float(n) / 100, 4) for n in triple) for triple in points}
    for contrast in load_study(preset).contrasts:
        for value, low, high in contrast.paper.values():
            ways = {
                "{}[{},{}]".format(*(f"{n:.{digits}f}".replace("0.", ".", 1) for n in triple))
                for triple in ((value, low, high), (-value, -high, -low))
                for digits in (3, 4)
            }
            assert (value, low, high) in shown or any(way in text for way in ways), (contrast, value)
