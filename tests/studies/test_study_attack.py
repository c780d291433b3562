"""Variations of a study, and the paper's reuse tables from published participant values."""

import csv

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("matplotlib")

from mgpa.studies import load_study, presets
from mgpa.studies.attack import attack_study, attacks
from mgpa.studies.paper import Runs, filled
from mgpa.studies.paper_tables import TABLES
from small_studies import TINY, written


@pytest.mark.parametrize("name", list(presets()))
def test_every_variation_of_a_packaged_study_changes_it(name):
    study = load_study(name)
    changes = attacks(study)
    kinds = {"reader seed", "full bank", "gate"} | (
        {"gamma", "split seed", "assignment"} if "controlled" in name else set()
    )
    assert all(any(kind in variation for variation in changes) for kind in kinds)
    for change in changes.values():
        assert load_study(name, **change) != study


def test_an_attack_lists_what_stays_and_computes_shared_cells_once(tmp_path):
    path = written(tmp_path, TINY)
    names = ("reader seed 17", "anchor within sources")
    rows = attack_study(path, tmp_path / "out", names=names, device="cpu")
    assert {row["variation"] for row in rows} == {"as declared", "one participant left out", *names}
    declared = next(row for row in rows if row["variation"] == "as declared")
    assert declared["conclusion"] == "stays"
    with open(tmp_path / "out" / "attack.csv", encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(rows)
    out = [row for row in rows if row["variation"] == "one participant left out"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in out)
    with pytest.raises(ValueError, match="No variation 'gamma'"):
        attack_study(path, tmp_path / "out", names=["gamma"], device="cpu")


def test_published_participant_values_give_the_papers_reuse_tables_to_the_digit():
    runs = Runs.read([], published=True)
    tables = {table.name: table for table in TABLES}
    for name in ("3", "10", "11"):
        for _, cells in filled(tables[name], runs):
            assert all(run == paper for run, paper in cells), name
    assert runs.results["p300-reuse"]["heading"] != "Ours"
