"""What the paper leaves open: measurement or sampling, how many pairs, and CORAL of each token."""

import csv
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pydantic")

from mgpa._common.files import claim
from mgpa.baselines import CORAL
from mgpa.paper import load_study
from mgpa.paper.studies import beyond
from mgpa.paper.studies.arms import make_arms
from mgpa.paper.studies.beyond import coral_of_each_token, pairs_needed, source_split, split_sources
from mgpa.paper.studies.each_token import EachToken
from mgpa.paper.studies.recordings import Recordings
from mgpa.paper.studies.splits import make_split, planned_gate
from mgpa.tables.fitting import fit_table
from simulated import simulated_table
from small_studies import in_process, paired_table, run, written

TOKENS = """
name = "tokens"
title = "Tokens"
seeds = [17]
data = { kind = "table", table = "rows.npz" }
gate = { rank = 2, tokens = true }
readers = { restarts = 0 }
[methods.CF]
method = "closed_form_mgpa"
[methods.CORAL]
method = "coral"
parameters = { reference = "dry", ridge = 0.01 }
"""


def split_of(path, work, **changes):
    study = load_study(path, **changes)
    return study, make_split(study, Recordings(study, work))


def test_rows_seen_by_both_sources_differ_by_measurement_alone(tmp_path):
    study, split = split_of(written(tmp_path, table=paired_table()), tmp_path)
    found = source_split(split, planned_gate(study))
    assert found["sampling"] < 1e-9 < found["measurement"]
    assert np.isnan(found["gate_sampling"])
    assert found["measured"] == pytest.approx(1)


def test_an_associated_label_is_sampling(associated, tmp_path):
    [row] = split_sources(associated, tmp_path / "work")
    split = make_split(associated, Recordings(associated, tmp_path / "work"))
    fit = split.table.rows("FIT")
    label = fit.label == np.unique(fit.label)[1]
    by_source = [fit.source == source for source in fit.sources]
    task = np.mean([fit.X[label & s].mean(0) - fit.X[~label & s].mean(0) for s in by_source], axis=0)
    difference = fit.X[by_source[1]].mean(0) - fit.X[by_source[0]].mean(0)
    sampling = difference - np.subtract(*split.endpoints[::-1]).mean(0)
    assert np.linalg.norm(sampling) == pytest.approx(row["sampling"])
    # Nine of ten events of one label under one source: .8 of the difference between labels.
    assert sampling @ task / (task @ task) == pytest.approx(0.8, abs=0.3)
    assert row["sampled"] > row["measured"]
    assert row["measured"] + row["sampled"] == pytest.approx(1)


def test_a_run_takes_the_folder_in_which_recordings_were_simulated(associated, tmp_path, monkeypatch):
    def simulated(study, recordings, rotation):
        (recordings.workspace / "recordings").mkdir(parents=True)
        return make_split(study, recordings, rotation)

    monkeypatch.setattr(beyond, "make_split", simulated)
    split_sources(associated, tmp_path / "work")
    claim(tmp_path / "work", "settings.json")


def test_fewer_pairs_are_among_more_and_maps_are_fitted_on_them(tmp_path):
    path = written(tmp_path, table=paired_table())
    few, more = (split_of(path, tmp_path, gate={"pairs": n})[1].contrasts for n in (5, 20))
    assert len(few[0]) == 5
    assert {row.tobytes() for row in few[0]} < {row.tobytes() for row in more[0]}
    other = split_of(path, tmp_path, gate={"pairs": 5, "pairs_seed": 1})[1].contrasts
    assert not np.array_equal(few[0], other[0])
    study, split = split_of(path, tmp_path, gate={"pairs": 5})
    fitted = fit_table(make_arms(study, split)["CF"], split.table, pairs=split.contrasts)
    assert fitted.to_map().info.n_contrasts == 5


def test_the_number_of_pairs_is_varied_and_all_are_last(tmp_path):
    path = written(tmp_path, table=paired_table())
    rows = pairs_needed(path, tmp_path / "work", counts=(5, 10, 10_000), seeds=(0, 1))
    plans = list(dict.fromkeys((row["pairs"], row["seed"]) for row in rows))
    everything = len(split_of(path, tmp_path)[1].table.rows("FIT")) // 2
    assert plans == [(5, 0), (5, 1), (10, 0), (10, 1), (everything, 0)]
    assert {row["method"] for row in rows} == {"identity", "CF"}  # Iter has a movement budget
    assert {"S", "T_f"} <= {row["metric"] for row in rows}
    audit = run(load_study(path), tmp_path / "plain").audits[""]
    last = {(row["method"], row["metric"]): row["value"] for row in rows if row["pairs"] == everything}
    assert last["CF", "S"] == pytest.approx(audit["CF"].estimate("S").value)


def test_each_token_is_corrected_as_if_it_were_alone(tmp_path):
    table = simulated_table(n_people=24, tokens=3)
    fit = table.rows("FIT")
    model = fit_table(EachToken(CORAL(reference="wet")), table)
    corrected = model.transform(table.X, source=table.source)
    for token in range(3):
        alone = CORAL(reference="wet").fit(fit.X[:, token], source=fit.source)
        np.testing.assert_allclose(
            corrected[:, token], alone.transform(table.X[:, token], source=table.source), atol=1e-6
        )
    halves = [np.flatnonzero(np.arange(len(fit)) % 2 == k) for k in (0, 1)]
    parts = [EachToken(CORAL(reference="wet")).partial_fit(fit.X[h], source=fit.source[h]) for h in halves]
    merged = parts[0].merge(parts[1]).transform(fit.X, source=fit.source)
    np.testing.assert_allclose(merged, model.transform(fit.X, source=fit.source), atol=1e-6)
    path = model.to_map().save(tmp_path / "each.safetensors")
    import mgpa

    again = mgpa.transform_tokens(mgpa.load_map(path), table.X, source=table.source)
    np.testing.assert_array_equal(again, corrected)


def test_coral_of_each_token_stands_beside_coral_of_the_mean(tmp_path):
    table = simulated_table(n_people=24, tokens=3)
    # What a device adds to one token it takes from another: the mean does not show it.
    apart = 2.0 * (table.source == "wet")[:, None] * np.array([1.0, -1.0, 0.0])
    X = table.X + (apart[:, :, None] * (np.arange(table.X.shape[2]) == 0)).astype(table.X.dtype)
    path = written(tmp_path, TOKENS, replace(table, X=X))
    rows = coral_of_each_token(path, tmp_path / "work")
    S = {row["method"]: row["value"] for row in rows if row["metric"] == "S"}
    assert set(S) == {"identity", "CORAL", "CORAL, each token"}
    assert S["CORAL, each token"] < 0.9 < 0.95 < S["CORAL"]
    assert coral_of_each_token(written(tmp_path / "vectors"), tmp_path / "w") == []


def test_the_command_writes_what_it_found(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cyclopts")
    path = written(tmp_path, table=paired_table())
    assert in_process(monkeypatch, "study", "beyond", path, "--out", tmp_path / "out") == 0
    assert {p.name for p in (tmp_path / "out").glob("*.csv")} == {"sources.csv", "pairs.csv"}
    printed = capsys.readouterr().out
    assert str(tmp_path / "out" / "sources.csv") in printed
    [line] = [line for line in printed.splitlines() if line.split()[:2] == [load_study(path).name, "all"]]
    assert "1.000" in line
    with open(tmp_path / "out" / "sources.csv", encoding="utf-8", newline="") as stream:
        [row] = csv.DictReader(stream)
    assert float(row["measured"]) == pytest.approx(1)
