"""What studies once did wrong: plans that computed, tables that outlived what made them, coordinates."""

import errno
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shared import SHARED
from simulated import simulated_table

pytest.importorskip("pydantic")
pytest.importorskip("torch")
pytest.importorskip("mne")
pytest.importorskip("matplotlib")

from mgpa.audit.displacement import movement
from mgpa.audit.store import Store
from mgpa.eeg.simulate import erp
from mgpa.studies import StudyError, load_study, plan_study, recordings, run_study, write_results
from mgpa.studies import run as studies_run
from mgpa.studies.config import Encoder
from mgpa.studies.recordings import Recordings, make_encoder
from mgpa.studies.results import estimates, provenance
from mgpa.studies.reuse import _candidates, prepare
from mgpa.tables.files import open_table, write_table
from mgpa.tables.rows import corrected_rows

TINY = """
name = "tiny"
title = "Tiny"
seeds = [17]
[data]
kind = "table"
table = "rows.npz"
[gate]
rank = 2
[methods.CF]
method = "closed_form_mgpa"
[readers]
restarts = 0
"""
REUSE = """
[coordinates]
source = "dry"
[reuse]
development = "easy"
tasks = ["easy", "hard"]
calibration = 4
[data.labels]
easy = "easy"
hard = "hard"
"""


def written(folder, text=TINY, table=None):
    (folder / "my.toml").write_text(text, "utf-8")
    write_table(simulated_table() if table is None else table, folder / "rows.npz")
    return folder / "my.toml"


@pytest.fixture
def reused(tmp_path):
    """A study of two tasks on the same events, of sources whose spread differs."""
    rng = np.random.default_rng(0)
    person, event = np.repeat(np.arange(16), 24), np.repeat(np.arange(192), 2)
    source, easy = np.tile(["dry", "wet"], 192), np.repeat(np.arange(192) % 2, 2)
    X = rng.normal(size=(192, 5))[event] + rng.normal(scale=0.1, size=(384, 5))
    X[:, 1] += 2 * easy
    X[source == "wet"] = X[source == "wet"] * [3, 1, 0.5, 1, 2] + 1
    table = replace(
        simulated_table(), X=X, source=source, participant=[f"p{p:02d}" for p in person], pair_id=event,
        label=None, role=None, other={"easy": easy, "hard": np.repeat(rng.permutation(192) % 2, 2)},
    )  # fmt: skip
    return written(tmp_path, TINY + REUSE, table)


def test_reuse_is_measured_in_the_coordinates_that_its_tasks_share(reused, tmp_path):
    study = load_study(reused)
    result = run_study(study, tmp_path / "work", progress=False)
    material = prepare(study, Recordings(study, tmp_path / "work"))
    [chosen] = _candidates(study, material, "CF", Store(tmp_path / "work" / "cells"), "cpu")
    for task in ("easy", "hard"):
        rows = material.tables[task].rows("EVAL")
        expected = movement(rows.X, corrected_rows(chosen.map, rows), rows.participant)[1]
        np.testing.assert_allclose(result.audits[task]["CF"].movement[0], expected, rtol=1e-9)


def test_reuse_reports_what_lies_behind_the_worst_association(reused, tmp_path):
    result = run_study(load_study(reused), tmp_path / "work", progress=False)
    found = {(row.task, row.method, row.metric): row.value for row in estimates(result)}
    for task, audit in result.audits.items():
        for i, metric in enumerate(("reversed", "independent", "aligned")):
            assert found[task, "CF", metric] == pytest.approx(audit["CF"].shortcut[..., i].mean())
    write_results(result, tmp_path / "out")
    assert (tmp_path / "out" / "figures" / "association-hard.pdf").exists()


def test_those_who_are_judged_are_no_part_of_a_selection(reused, tmp_path):
    study = load_study(reused)
    before = prepare(study, Recordings(study, tmp_path / "work"))
    for role, same in (("EVAL", True), ("VAL", False), ("HEAD", False)):
        tables = dict(before.tables)
        X = tables["easy"].X + (tables["easy"].role == role)[:, None]
        tables["easy"] = replace(tables["easy"], X=X)
        assert (replace(before, tables=tables).digest == before.digest) is same


def test_a_plan_of_reuse_makes_no_folder(reused, tmp_path):
    plan_study(load_study(reused), tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_a_plan_counts_what_gates_preserve(tmp_path):
    path, work = written(tmp_path), tmp_path / "work"
    run_study(load_study(path), work, progress=False)
    study = load_study(path, floor=True)
    assert [cell["measured"] for cell in plan_study(study, work).cells] == [True, False]
    run_study(study, work, progress=False)
    assert [cell["measured"] for cell in plan_study(study, work).cells] == [True, True]


def test_a_plan_counts_a_fit_that_two_arms_share_once(tmp_path):
    shared = {"CF": {"budget": 0.01}, "Whole": {"method": "closed_form_mgpa"}}
    path, work = written(tmp_path), tmp_path / "work"
    run_study(load_study(path), work, progress=False)
    (work / "cells" / "timings.jsonl").write_text('["fit CF", 8.0]\n["measure", 1.0]\n')
    planned = plan_study(load_study(path, methods=shared, gate={"rank": 1}), work).cells
    assert [cell["seconds"] for cell in planned] == [0, 9, 1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"floor": True}, r"\[reuse\] has neither floor nor gate.tokens"),
        ({"gate": {"tokens": True}}, r"\[reuse\] has neither floor nor gate.tokens"),
        ({"methods": {"CF": {"pairs": "endpoints"}}}, r"methods.CF.pairs: \[reuse\] has calibration pairs"),
        ({"data": {"artifact": 1e-4}}, "artifact is for neuroscan_flex"),
    ],
)
def test_what_reuse_would_not_heed_is_refused(changes, said, reused):
    with pytest.raises(StudyError, match=said):
        load_study(reused, **changes)


def test_features_have_no_weights():
    with pytest.raises(StudyError, match="temporal_bins has no weights"):
        load_study("temporal-n170", encoder={"checkpoint": "weights.safetensors"})


def test_reuse_leaves_no_row_out_in_silence(reused, tmp_path):
    table = open_table(tmp_path / "rows.npz").read()
    write_table(table.take(np.arange(len(table)) != 7), tmp_path / "rows.npz", overwrite=True)
    with pytest.raises(StudyError, match=r"1 of \d+ rows have no partner"):
        run_study(load_study(reused), tmp_path / "work", progress=False)


def test_a_plan_does_not_make_virtual_pairs(tmp_path, monkeypatch):
    changes = {"data": {"simulate": {"n_people": 20, "blocks": 1}}, "roles": {"stratify": []}}
    study = load_study("recorded-ssvep", quick=True, **changes)
    assert plan_study(study, tmp_path).tables == {"frequency": False, "of virtual pairs, rotation 1": False}
    Recordings(study, tmp_path).table("frequency")
    monkeypatch.setattr(Recordings, "_embed_virtual", lambda *_: pytest.fail("a plan embedded trials"))
    planned = plan_study(study, tmp_path)
    assert planned.tables == {"frequency": True, "of virtual pairs, rotation 1": False}
    assert {cell["measured"] for cell in planned.cells} == {None}


def test_tables_depend_on_the_libraries_and_networks_on_the_device(tmp_path, monkeypatch):
    def key(preset, device="cpu"):
        found = Recordings(load_study(preset, recordings=tmp_path), tmp_path, device=device)
        return found._key(found.tasks[0])

    before = key("temporal-n170")
    assert key("temporal-n170", "cuda") == before
    assert key("controlled-ssvep", "cuda") != key("controlled-ssvep")
    monkeypatch.setattr(recordings, "reader_versions", lambda: {"mne": "0.1"})
    assert key("temporal-n170") != before


def test_networks_embed_where_the_study_is_told_to(monkeypatch):
    from mgpa.eeg import encoders

    monkeypatch.setattr(encoders, "eegpt", lambda channels, n_times, **options: options)
    trials = SimpleNamespace(channels=("Oz",), data=np.zeros((1, 1, 500)))
    assert make_encoder(Encoder(name="eegpt"), trials, "cuda")["device"] == "cuda"
    own = Encoder(name="eegpt", parameters={"device": "cpu"})
    assert make_encoder(own, trials, "cuda")["device"] == "cpu"


def test_workers_elsewhere_keep_cells_where_the_study_is(tmp_path, monkeypatch):
    path = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = []

    def audit(*_, cache, **__):
        found.append(cache)
        raise KeyboardInterrupt

    monkeypatch.setattr(studies_run, "AuditPlan", audit)
    with pytest.raises(KeyboardInterrupt):
        run_study(load_study(path), Path("work"), progress=False)
    assert found == [tmp_path / "work" / "cells"]


def test_provenance_has_what_tables_say_about_themselves(tmp_path):
    said = {"encoder": {"name": "bins"}, "pairing": "12 pairs, 1 dropped"}
    path = written(tmp_path, table=replace(simulated_table(), info=said))
    result = run_study(load_study(path), tmp_path / "work", progress=False)
    assert provenance(result, "")["tables"] == {"": said}


def test_two_runs_may_simulate_the_same_recordings_at_once(tmp_path, monkeypatch):
    def write(folder, person, *_):
        (folder / "mine").touch()
        # The other run is done with this person while we still write.
        (tmp_path / person.id).mkdir(exist_ok=True)
        (tmp_path / person.id / "theirs").touch()

    monkeypatch.setattr(erp, "_write_recording", write)
    erp.simulate_flex(tmp_path, tasks=("N170",), n_events=5, participants=["1013", "1014"])
    assert [path.name for path in tmp_path.glob("10*/*")] == ["theirs", "theirs"]
    assert list(tmp_path.glob(".*")) == []

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(erp, "_write_recording", full)
    with pytest.raises(OSError, match="No space left"):
        erp.simulate_flex(tmp_path / "new", tasks=("N170",), n_events=5, participants=["1013"])


# --- the paper's numbers -----------------------------------------------------------------------------------

PAPER = SHARED / "paper.tex"
needs_paper = pytest.mark.skipif(not PAPER.is_file(), reason="the paper is not on this machine")
FOUR = ("S", "T_f", "T_r", "M")
TASKS = ("P300", "N170", "MMN")
NAMES = {
    "Identity": "identity",
    "Linear-only ablation": "Linear-only",
    "Conditional mean": "Conditional target",
    "Unconditional mean (FIT)": "Mean target",
    "Zero score": "Zero target",
}


def rows_of(label):
    """Yield the cells of every row of a table of the paper: its name as the presets have it, and numbers."""
    text = PAPER.read_text("utf-8")
    text = text[text.index(rf"\label{{{label}}}") :]
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    body = re.sub(r"\\(mid|cmid)rule(\(lr\))?(\{[^}]*\})?|\\addlinespace\[2pt\]|\\quad", "", body)
    body = re.sub(r"\\multirow\{\d\}\{\*\}\{\\shortstack\[l\]\{.*?\}\}\}", "", body)
    for line in body.split(r"\\"):
        cells = [re.sub(r"\\textbf\{(.*?)\}", r"\1", cell).strip() for cell in line.split("&")]
        cells = [cell.replace(r"$\to$", "→") for cell in cells]
        cells = cells[1:] if cells[0] == "" and len(cells) > 1 else cells
        if len(cells) > 1:
            yield [NAMES.get(cells[0], cells[0]), *cells[1:]]


def assert_paper(preset, label, metrics, columns=slice(1, None), name="{0}"):
    """Compare every number in a table with the preset's; return how many there were."""
    study, n = load_study(preset), 0
    for cells in rows_of(label):
        if "N/A" in cells[columns]:
            continue
        found = study.paper[name.format(*cells)]
        expected = dict(zip(metrics, map(float, cells[columns]), strict=True))
        assert {metric: found[metric] for metric in metrics} == expected, cells
        n += len(expected)
    return n


@needs_paper
def test_values_of_the_paper_are_copied_correctly():
    associations = [f"{task} {m}" for task in TASKS for m in ("aligned", "independent", "reversed")]
    heads = [f"{task} {m}" for m in ("worst", "control") for task in TASKS]
    found = (
        assert_paper("controlled-ssvep", "tab:controlled-cf", FOUR),
        assert_paper("controlled-ssvep", "tab:target-controls", FOUR),
        assert_paper("temporal-n170", "tab:real-main", FOUR, slice(1, 5)),
        assert_paper("recorded-ssvep", "tab:real-main", FOUR, slice(5, 9)),
        assert_paper("temporal-n170", "tab:igbp-budget", FOUR, slice(2, 6), "{1} at {0}"),
        assert_paper("p300-reuse", "tab:reuse-main", heads),
        assert_paper("p300-reuse", "tab:reuse-absolute", associations),
    )
    assert found == (28, 12, 40, 32, 16, 36, 54)


@needs_paper
def test_differences_of_the_paper_are_copied_correctly():
    study = load_study("p300-reuse")
    found = {(c.a, c.b): c.paper for c in study.contrasts}
    rows = list(rows_of("tab:reuse-paired"))
    assert len(rows) == 12
    for task, a, b, *differences in rows:
        for metric, text in zip(("worst", "control"), differences, strict=True):
            numbers = [float(number) for number in re.findall(r"[+-]\d\.\d+", text)]
            assert found[a, NAMES.get(b, b)][f"{task} {metric}"] == numbers


@needs_paper
@pytest.mark.parametrize("preset", ["controlled-ssvep", "temporal-n170", "recorded-ssvep"])
def test_differences_in_the_text_of_the_paper_are_copied_correctly(preset):
    """Each stands there as a value and an interval (of movement that is lower by so much, without signs)."""
    text = re.sub(r"[\s$+]", "", PAPER.read_text("utf-8"))
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
