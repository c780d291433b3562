"""The methods paragraph says what the audit's settings and results say, and nothing else."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mgpa
from audited import SMALL, run
from mgpa import audit
from mgpa.audit import draws, ranks
from mgpa.audit.methods_text import PAPER
from mgpa.audit.verdict import text
from mgpa.baselines import CORAL, LEACE, make_method
from mgpa.tables import simulate_table
from simulated import simulated_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found():
    methods = {
        "leace": "leace",
        "closed_form_mgpa": mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=1)),
        "theirs": CORAL(),
        "igbp": make_method("igbp", n_stages=2, max_epochs=2),
    }
    return run(simulated_table(), methods, readers=SMALL)


def test_sizes_methods_readers_and_intervals_are_those_of_the_audit(found):
    text, s, info = found.methods_text(), found.settings, found["closed_form_mgpa"].provenance[0]
    assert text.startswith(found.warnings[0])
    roles = [f"{role} {people} ({s.rows[role]} rows)" for role, people in s.participants.items()]
    for words in (
        f"{sum(s.rows.values())} embeddings ({s.features[0]} features; checksum {s.data})",
        *roles,
        *s.sources,
        "LEACE (Belrose et al. 2023)",
        # By what made the map, whatever the method is called here.
        "theirs (CORAL; Sun et al. 2016; needs the source of every row)",
        "IGBP (Iskander et al. 2023; 2 fits, seeds 17 and 29)",
        "Closed-form MGPA (Aimoldin et al. 2026; gate of rank 1, "
        f"{info.gate_energy:.1%} of contrast energy, {info.n_contrasts} contrasts of pairs)",
        f"AUROC of {len(found['identity'].readers)} readers",
        "(logistic, whitened logistic, 1 network after 3 epochs)",
        f"{ranks.DRAWS} permutations of source labels (seed {ranks.SEED})",
        f"{draws.DRAWS:,} draws, seed {draws.SEED} (n = {found.n_people})",
        f"S was {found.estimates['identity']['S']} without correction, {found.estimates['leace']['S']} with",
        f"T_f was {found.estimates['identity']['T_f']} without correction, ",
        f"Software: mgpa {mgpa.__version__}, Python ",
        f"numpy {np.__version__}, ",
    ):
        assert words in text


def test_what_was_chosen_otherwise_is_said_otherwise(found):
    def said(**settings):
        return replace(found, settings=replace(found.settings, **settings)).methods_text()

    assert "features of EEGPT; checksum" in said(encoder={"name": "EEGPT"})
    signals = {"channels": ["Oz", "Cz"], "sfreq": 200.0, "reference": ["M1", "M2"]}
    epochs = (
        "Epochs of 2 channels at 200 Hz (reference: M1 and M2) were paired by event: 9 pairs of 9 events."
    )
    assert epochs in said(signals=signals, pairing="9 pairs of 9 events")
    assert "standardised by mean and spread of the FIT rows" in said()
    assert "without standardisation" in said(standardize=False)
    assert "relative movement of VAL rows: all maps 0.05." in said(budget=0.05)
    each = said(budget={"leace": 0.05, "igbp": 0.1})
    assert "cut back to a relative movement of VAL rows: LEACE 0.05 and IGBP 0.1." in each
    assert "relative movement" not in said()
    whole = signals | {"tmin": 0.0, "samples": 201, "band": [1.0, 40.0], "baseline": [-0.2, 0.0]}
    facts = "reference: M1 and M2; window: 0 to 1 s; band: 1 to 40 Hz; baseline: -0.2 to 0 s"
    assert facts in said(signals=whole, pairing="9 pairs of 9 events")
    assert "Task heads (Mine) were" in said(head="Mine(a=1)")
    deployed = said(head="Mine(a=1)", deployed=True, head_source="dry")
    assert (
        "The user's head (Mine) was already fitted on rows of dry and was scored without refitting"
        in deployed
    )
    assert "percentile bootstrap" not in said()
    assert "IGBP was left out: it is too far." in said(omitted={"igbp": "it is too far"})
    assert "Preliminary" not in said(preliminary=False)


def test_folds_are_counted_and_everybody_judges():
    table = replace(simulate_table(16), label=None)
    pooled = run(table, {"leace": LEACE()}, folds=4)
    text = pooled.methods_text()
    people = len(np.unique(table.participant))
    assert f"roles rotated over 4 folds, so that each of {people} participants was EVAL once" in text
    assert text.startswith(f"{pooled.warnings[0]} {len(table)} embeddings")


def test_a_table_without_labels_has_no_task():
    table = replace(simulated_table(), label=None, pair_id=None)
    alone = audit.run(table, [], readers={"restarts": 0}, verbose=False, folds=1)
    assert "Task heads" not in alone.methods_text()
    assert "No correction was applied." in alone.methods_text()
    assert "No label column: the cost to the task is not measured." in alone.design.notes


def test_an_audit_without_a_label_column_names_the_columns_that_may_be_it(capsys):
    table = simulated_table(pair_id=None)
    table = replace(table, label=None, other={"task": table.label})
    alone = audit.run(table, [], readers={"restarts": 0}, verbose=True, folds=1)
    line = (
        "No label column (the table has: task): the cost to the task is not measured; name its column label "
        "(--rename.NAME label)."
    )
    assert f"  {line}" in text(alone, verbose=True).splitlines()
    assert f"audit: {line}" in capsys.readouterr().err


def test_the_reference_is_the_one_in_the_citation_file():
    citation = (ROOT / "CITATION.cff").read_text("utf-8").partition("preferred-citation:")[2]
    title = re.search(r'title: "(.*)"', citation)[1]
    names = re.findall(r"given-names: (\w)\w*\n +family-names: (\w+)", citation)
    *first, last = [f"{family}, {given}." for given, family in names]
    year = re.search(r"year: (\d+)", citation)[1]
    assert f"{', '.join(first)} & {last} ({year}). {title}." == PAPER
