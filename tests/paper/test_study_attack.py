"""Variations of a study, and what stays of its conclusions."""

import csv

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("matplotlib")

from mgpa.paper import load_study, presets
from mgpa.paper.studies.attack import LEFT_OUT, attack_study, attacks, conclusion, summary
from small_studies import CLOSED_FORM, written


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


def test_an_attack_lists_what_stays_and_computes_shared_cells_once(tmp_path, capsys):
    path = written(tmp_path, CLOSED_FORM + '[[contrasts]]\na = "CF"\n')
    names = ("reader seed 17", "anchor within sources")
    rows = attack_study(path, tmp_path / "out", names=names, device="cpu")
    assert {row["variation"] for row in rows} == {"as declared", "one participant left out", *names}
    declared = next(row for row in rows if row["variation"] == "as declared")
    assert declared["conclusion"] == "declared"
    assert "attack: variation 2 of 2, anchor within sources\n" in capsys.readouterr().err
    # The task's heads do not depend on the seed of the readers.
    same = [row for row in rows if row["variation"] == "reader seed 17" and row["metric"] == "T_f"]
    assert [row["conclusion"] for row in same] == ["same"] * len(same)
    assert same
    lines = summary(rows).splitlines()
    assert lines[0].split() == ["variation", "stays", "same", "moves", "turns"]
    assert [line[:26].strip() for line in lines[1:4]] == ["one participant left out", *names]
    counted = [sum(map(int, line[26:].split())) for line in lines[1:4]]
    assert counted == [sum(row["variation"] == name for row in rows) for name in [LEFT_OUT, *names]]
    moved = [row for row in rows if row["conclusion"] in ("moves", "turns")]
    assert len(lines) == 4 + len(moved)
    with open(tmp_path / "out" / "attack.csv", encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(rows)
    out = [row for row in rows if row["variation"] == "one participant left out"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in out)
    with pytest.raises(ValueError, match="No variation 'gamma'"):
        attack_study(path, tmp_path / "out", names=["gamma"], device="cpu")


@pytest.mark.parametrize(
    ("sign", "declared", "word"),
    [(1, 1, "stays"), (0, 0, "stays"), (0, 1, "moves"), (-1, 0, "moves"), (-1, 1, "turns")],
)
def test_only_a_clear_difference_of_the_other_sign_turns_a_conclusion(sign, declared, word):
    varied, first, unclear = ((s, s - 0.5, s + 0.5) for s in (sign, declared, 0))
    assert conclusion(varied, first, is_range=False) == word
    assert conclusion(varied, unclear, is_range=True) == "stays"
