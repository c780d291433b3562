"""A split shows what it should, and EVAL participants change nothing that is fitted."""

from dataclasses import replace

import numpy as np
import pytest

from mgpa.paper import load_study, plan_study
from mgpa.paper.studies.recordings import Recordings
from mgpa.paper.studies.splits import make_split, split_names
from mgpa.tables.files import open_table, write_table
from small_studies import paired_table, run, written


def test_a_split_shows_one_view_of_events_and_keeps_full_contrasts_for_the_gate(associated, tmp_path):
    split = make_split(associated, Recordings(associated, tmp_path))
    fit = split.table.rows("FIT")
    assert len(fit) == len(split.contrasts[0])
    goes_with = (fit.source == "wet") == (fit.label == np.unique(fit.label)[1])
    assert 0.8 < goes_with.mean() < 0.97
    # Coordinates are of the FIT rows that are seen.
    np.testing.assert_allclose(fit.X.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(fit.X.std(axis=0), 1, atol=1e-9)
    roles = {role: set(split.table.rows(role).participant) for role in ("FIT", "VAL", "HEAD", "EVAL")}
    assert sum(map(len, roles.values())) == len(set().union(*roles.values()))


@pytest.mark.parametrize("endpoints", [{}, {"association": 0.9}, {"gamma": 0.5}])
def test_full_contrasts_are_kept_where_rows_are_not_their_own_pairs(endpoints, tmp_path):
    study = load_study(written(tmp_path, table=paired_table()), endpoints=endpoints)
    split = make_split(study, Recordings(study, tmp_path))
    fit = split.table.rows("FIT")
    assert (np.asarray(fit.pair_id) == -1).all() == ("association" in endpoints)
    if not endpoints:
        assert split.contrasts is split.endpoints is None
        return
    full, weak = (second - first for first, second in (split.contrasts, split.endpoints))
    np.testing.assert_allclose(weak, endpoints.get("gamma", 1.0) * full, atol=1e-9)
    assert np.abs(full).max() > 1


def test_those_who_are_judged_change_nothing_that_is_fitted(associated, tmp_path):
    before = make_split(associated, Recordings(associated, tmp_path))
    raw = open_table(tmp_path / "rows.npz").read()
    judged = np.isin(raw.participant, np.unique(before.table.rows("EVAL").participant))
    write_table(replace(raw, X=raw.X + judged[:, None]), tmp_path / "rows.npz", overwrite=True)
    after = make_split(associated, Recordings(associated, tmp_path))
    np.testing.assert_array_equal(after.table.rows("FIT").X, before.table.rows("FIT").X)
    np.testing.assert_array_equal(after.contrasts[0], before.contrasts[0])
    assert not np.array_equal(after.table.rows("EVAL").X, before.table.rows("EVAL").X)


def test_rotations_are_splits_and_everybody_is_judged_once(tmp_path):
    study = load_study(written(tmp_path), roles={"rotations": [0, 1, 2, 3, 4]}, methods={"Iter": False})
    write_table(paired_table(), tmp_path / "rows.npz", overwrite=True)
    assert list(split_names(study)) == [f"rotation {i}" for i in range(5)]
    audit = run(study, tmp_path / "work").audits[""]
    assert sorted(audit["CF"].participants) == sorted(np.unique(paired_table().participant))
    assert plan_study(study, tmp_path / "work") == {"identity": 5, "LEACE_50 %": 5, "CF": 5}
