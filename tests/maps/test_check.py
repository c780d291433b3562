"""A map says whether rows are like those it was fitted on, and takes tokens if it was fitted on tokens."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import mgpa
from factories import random_affine_map, two_sources
from mgpa.baselines import make_method
from mgpa.maps import MapError
from mgpa.maps.check import FittedRange
from mgpa.statistics import sample_rows

RNG = np.random.default_rng(0)
SOURCE = np.tile(["A", "B"], 300)
X = RNG.normal(size=(600, 8)) + (SOURCE == "B")[:, None] + 50.0
NEW = np.random.default_rng(1).normal(size=(400, 8)) + np.tile([0.0, 1.0], 200)[:, None] + 50.0


@pytest.fixture(scope="module")
def m():
    return make_method("leace").fit(X, source=SOURCE).to_map()


def test_rows_of_the_same_kind_are_fine(m):
    check = m.check(NEW, source=SOURCE[:400])
    assert check.ok
    assert str(check).splitlines()[0] == "1 of 400 rows lie outside the fitted range (normal)."
    assert str(m.check(X)).splitlines()[0] == "All rows lie within the fitted range."
    assert check.far_share == pytest.approx(0.05, abs=0.05)
    assert m.check(NEW[:0]).ok
    assert all(m.check(NEW[i : i + 1]).ok for i in range(20))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (NEW + 40.0, r"400 of 400 rows \(100.0%\) lie outside the fitted range \(first: row 0\)"),
        (np.where(np.arange(400)[:, None] % 10 == 3, NEW * 3, NEW), r"41 of 400 rows .*first: row 3"),
        (50 + 2.2 * (NEW - 50.0), r"Drift: \d\d% of the rows are farther out than 95 % of the fitting rows"),
        (NEW + 9.0 * np.eye(8)[2], r"Outside their fitted range: feature 2 \(100% of the rows\)"),
        (NEW / 1000.0, "outside"),
        (np.tile(NEW[0], (400, 1)), "Drift: the 400 rows hardly differ from one another"),
    ],
    ids=["shifted", "some rows", "wider", "one feature", "other units", "copies of one row"],
)
def test_rows_of_another_kind_are_described(m, rows, problem):
    check = m.check(rows)
    assert not check.ok
    assert any(re.search(problem, sentence) for sentence in check.problems), check.problems
    as_json = json.loads(json.dumps(check.to_dict()))
    assert (as_json["ok"], as_json["n_rows"], as_json["problems"]) == (False, 400, list(check.problems))


def test_sources_never_seen_are_named_under_the_user_s_own_name(m):
    known = replace(m, info=replace(m.info, source_column="hospital"))
    check = known.check(NEW[:4], source=["A", "C", "B", "C"])
    assert check.problems == ("hospital 'C' was not in the fit (A, B).",)
    assert check.unseen == ("C",)
    assert "source 'C'" in str(m.check(NEW[:1], source=["C"]))


def test_constant_features_that_vary_later_are_named():
    rows = X.copy()
    rows[:, 3] = 7.0
    m = make_method("leace").fit(rows, source=SOURCE).to_map()
    assert m.check(rows).ok
    assert m.check(X).features == {"feature 3": 1.0}


def test_a_file_keeps_the_ranges_and_an_old_one_says_it_has_none(m, tmp_path):
    loaded = mgpa.load_map(m.save(tmp_path / "m.safetensors"))
    assert loaded.check(NEW + 40).to_dict() == m.check(NEW + 40).to_dict()
    assert loaded.with_strength(0.5).check(NEW).ok
    old = mgpa.load_map(Path(__file__).parent / "io" / "data" / "staged_0.1.0.safetensors")
    check = old.check(np.zeros((2, old.n_features)))
    assert not check.ok
    assert "cannot be checked" in str(check)
    with pytest.raises(MapError, match="unexpected shapes"):
        FittedRange(np.ones((2, 3)), np.ones(3))


@pytest.mark.parametrize("name", ["leace", "closed_form_mgpa", "inlp", "coral"])
def test_every_way_to_fit_gives_the_same_ranges(name):
    data = two_sources(n=300)
    whole = data.fit(make_method(name))
    expected = whole.to_map().fitted
    if hasattr(whole, "partial_fit"):
        parts = [slice(0, 100), slice(100, 130), slice(130, 300)]
        streamed, merged = make_method(name), make_method(name)
        for part in parts:
            evidence = {"source": data.source[part], "pairs": data.pairs if part.start == 0 else None}
            streamed.partial_fit(data.X[part], **evidence)
            merged.merge(make_method(name).partial_fit(data.X[part], **evidence))
        for model in (streamed, merged):
            np.testing.assert_array_equal(model.to_map().fitted.features, expected.features)
    assert (
        whole.fit(data.X[:200], source=data.source[:200], pairs=data.pairs).to_map().fitted.distance[2] == 200
    )


def test_samples_do_not_depend_on_how_rows_were_split():
    rows = np.random.default_rng(2).normal(size=(5000, 40))
    whole = sample_rows(rows)
    assert whole.shape == (1000, 40)
    parts = [sample_rows(part) for part in np.array_split(rows, 7)]
    merged = parts[-1]
    for part in parts[:-1]:
        merged = sample_rows(part, merged)
    np.testing.assert_array_equal(np.sort(whole, axis=0), np.sort(merged, axis=0))
    assert np.abs(np.quantile(whole, 0.9, axis=0) - np.quantile(rows, 0.9, axis=0)).max() < 0.25
    assert sample_rows(np.ones((300, 2**18))).size <= 2**22


def test_sparse_rows_get_one_clear_error():
    m = random_affine_map()
    with pytest.raises(ValueError, match=r"X is sparse; a correction makes rows dense. Pass X.toarray\(\)"):
        m.transform(scipy.sparse.csr_array(np.ones((3, 10))))


def test_rows_of_many_new_people_are_not_called_scaled():
    """The spread is measured on batches of one participant: many together were called "1.1 times"."""
    said = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        mix, shift = rng.normal(size=(16, 16)) / 4 + 0.5 * np.eye(16), rng.normal(size=16)

        def seen(people, n, rng=rng, mix=mix, shift=shift):
            traits = np.repeat(0.7 * rng.normal(size=(people, 16)) @ mix, n, axis=0)
            source = np.tile(np.repeat([0, 1], n // 2), people)
            rows = rng.normal(size=traits.shape) @ mix + 0.3 * rng.normal(size=traits.shape)
            return rows + traits + source[:, None] * shift, source, np.repeat(np.arange(people), n)

        X, source, who = seen(16, 80)
        events = rng.normal(size=(60, 16)) @ mix
        views = [events + k * shift + 0.3 * rng.normal(size=events.shape) for k in (0, 1)]
        fitted = mgpa.MGPA().fit(X, source=source, groups=who, pairs=views).to_map()
        rows = seen(20, 20)[0]
        said.append(str(fitted.check(rows)))
        assert not fitted.check(0.5 * rows).ok
    assert not any("Scaled" in words for words in said)
