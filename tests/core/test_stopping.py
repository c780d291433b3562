"""When to stop: no correction without evidence, participants stay whole, and a strong effect is reduced."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from factories import both, linear, two_sources
from mgpa import IterativeMGPA, MeasurementGate, stopping
from mgpa.stages import Rows
from mgpa.stopping import StoppingRule, held_out_folds, rank_evidence


def test_chance_rarely_starts_a_correction():
    started = 0
    for seed in range(30):
        data = two_sources(seed, n=200, effect=0.0)  # the pairs differ, the sources do not
        model = data.fit(linear(n_stages=1, do_no_harm=True))
        started += model.n_stages_
        assert model.history_[0]["kept"] == bool(model.n_stages_)
        assert np.array_equal(model.transform(data.X), data.X) == (model.n_stages_ == 0)
    assert started <= 5  # 5 % error, binomial: more than 5 of 30 has probability .003


@pytest.mark.parametrize(("make", "held_out"), [(linear, True), (both, False)])
def test_a_strong_source_effect_is_reduced(make, held_out):
    everything = two_sources(n=2600, effect=5.0)
    data, validation, test = (everything.rows(slice(*ends)) for ends in ((0, 400), (400, 600), (600, 2600)))
    extra = {"X_val": validation.X, "source_val": validation.source} if held_out else {}
    model = make(n_stages=20, do_no_harm=True).fit(data.X, **data.evidence(), **extra)
    assert model.n_stages_ > 0
    assert len(model.history_) >= model.n_stages_
    assert model.history_[0]["kept"]
    assert max(model.history_[0]["auroc"]) > 0.7

    def auroc(X_fit, X):
        score = LogisticRegression(max_iter=1000).fit(X_fit, data.source).decision_function(X)
        return roc_auc_score(test.source, score)

    before = auroc(data.X, test.X)
    after = auroc(model.transform(data.X), model.transform(test.X))
    assert before > 0.8
    assert abs(after - 0.5) < 0.4 * (before - 0.5)


def test_runs_are_pooled_by_their_numbers_of_pairs_of_rows():
    # 4 x 4 rows that the score separates, 1 x 2 that it ranks the wrong way round: 16 of 18 pairs.
    large = (np.arange(8.0), np.arange(8) >= 4, np.arange(8))
    small = (np.array([0.0, 1.0, 2.0]), np.array([True, False, False]), np.arange(8, 11))
    assert rank_evidence([large])[0] == 1.0
    assert rank_evidence([small])[0] == 0.0
    area, z = rank_evidence([large, small])
    assert area == pytest.approx(16 / 18)
    # Mann and Whitney's variance n₁ n₀ (n + 1) / 12 of each run; won beyond half: 8 - 1; few units.
    assert z == pytest.approx((8 - 1) / np.sqrt(4 * 4 * 9 / 12 + 1 * 2 * 4 / 12), rel=0.15)


def test_evidence_is_that_of_mann_and_whitney_with_independent_rows():
    rng = np.random.default_rng(0)
    positive = np.arange(40) < 15
    scores = np.round(rng.normal(size=40) + positive, 1)  # with ties
    area, z = rank_evidence([(scores, positive, np.arange(40))])
    expected = mannwhitneyu(scores[positive], scores[~positive], method="asymptotic", use_continuity=False)
    assert area == pytest.approx(expected.statistic / (15 * 25))
    assert area == pytest.approx(roc_auc_score(positive, scores))
    assert z == pytest.approx((area - 0.5) * 15 * 25 / np.sqrt(15 * 25 * 41 / 12), rel=0.06)


def test_rows_of_one_participant_count_together():
    scores, positive = np.random.default_rng(0).normal(size=12), np.arange(12) < 6
    scores = scores + positive
    once = rank_evidence([(scores, positive, np.arange(12))])
    repeated = [np.repeat(values, 50) for values in (scores, positive, np.arange(12))]
    together = rank_evidence([tuple(repeated)])
    independent = rank_evidence([(*repeated[:2], np.arange(600))])
    assert together[0] == pytest.approx(once[0])
    # Fifty copies of the rows add no evidence; fifty times as many rows do.
    assert abs(together[1]) < 1.5 * abs(once[1])
    assert abs(independent[1]) > 5 * abs(once[1])


class Says:
    """A stage whose critics leave these residuals on the held-out rows."""

    def __init__(self, residuals):
        self._residuals = residuals

    def residuals(self, H, original):
        return self._residuals


def rule_for(codes, *sources):
    return StoppingRule(np.array(sources), [Rows(np.zeros((len(codes), 1)), codes)])


def test_stages_go_on_until_two_in_a_row_are_quiet():
    codes = np.tile([0, 1], 50)
    strong, quiet = codes + 0.0, np.tile([0.0, 0.0, 1.0, 1.0], 25)
    rule = rule_for(codes, "dry", "wet")
    history = [rule.weigh(Says(e[:, None]))["kept"] for e in (strong, quiet, strong, quiet, quiet)]
    assert history == [True, True, True, True, False]
    # Without evidence at the start nothing starts.
    assert not rule_for(codes, "dry", "wet").weigh(Says(quiet[:, None]))["kept"]
    # Ranked backwards, the source can still be read.
    rule = rule_for(codes, "dry", "wet")
    assert [rule.weigh(Says(e[:, None]))["kept"] for e in (strong, -strong, -strong, -strong)] == [True] * 4


def test_every_score_of_several_sources_is_weighed_for_its_own_source():
    codes = np.repeat([0, 1, 2], 30)
    scores = np.column_stack([codes == k for k in range(3)]).astype(float)
    weighed = rule_for(codes, "dry", "wet", "gel").weigh(Says(scores))
    assert weighed["auroc"] == [1.0, 1.0, 1.0]
    swapped = rule_for(codes, "dry", "wet", "gel").weigh(Says(scores[:, [1, 2, 0]]))
    assert swapped["auroc"] == [0.25, 0.25, 0.25]
    with pytest.raises(ValueError, match=r"No held-out rows of source \['gel'\]"):
        rule_for(codes[:60], "dry", "wet", "gel")


@pytest.mark.parametrize(("n", "n_folds"), [(200, 5), (stopping.FEW_ROWS, 1)])
@pytest.mark.parametrize("grouped", [False, True])
def test_folds_keep_events_and_participants_whole(n, n_folds, grouped):
    codes, pair_id = np.repeat([0, 1], n // 2), np.tile(np.arange(n // 2), 2)
    groups = pair_id // 5 if grouped else None
    folds, _ = held_out_folds(codes, groups, pair_id, seed=0)
    assert len(folds) == n_folds
    units = groups if grouped else pair_id
    for train, test in folds:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(n))
        assert len(test) == pytest.approx(n / 5, rel=0.1)
        assert not set(units[train]) & set(units[test])
    tested = np.concatenate([test for _, test in folds])
    assert len(np.unique(tested)) == len(tested)


def test_a_source_of_one_participant_cannot_be_held_out():
    codes = np.tile([0, 1], 30)
    with pytest.raises(ValueError, match=r"occurs in too few groups.* source_val, or fewer folds\.$"):
        held_out_folds(codes, np.where(codes == 1, 0, np.arange(60)), None, 0, ", or fewer folds")
    with pytest.raises(ValueError, match="at least two groups and two rows of each source"):
        held_out_folds(codes, np.zeros(60, int), None, seed=0)


def with_contrasts(data, factor):
    """Return the data with pairs that differ by a multiple of what they differed by."""
    A, B = data.pairs
    return replace(data, pairs=(A, A + factor * (B - A)))


@pytest.mark.parametrize("factor", [1.0, 0.02, 50.0, -1.0])
def test_pairs_are_judged_where_they_show_the_effect_at_the_scale_of_the_rows(factor):
    data = with_contrasts(two_sources(3, n=200, effect=3.0), factor)
    model = data.fit(linear(n_stages=3, do_no_harm=True))
    expected = "pairs" if factor == 1.0 else "rows"
    assert [record["evidence"] for record in model.history_] == [expected] * len(model.history_)
    assert model.to_map().info.evidence.endswith(f"stages judged on held-out {expected}")
    shown = float(model.to_map().info.evidence.split()[2])
    assert shown == pytest.approx(100 / factor, rel=0.1)


@pytest.mark.parametrize("as_arrays", [True, False])
@pytest.mark.parametrize("groups", [None, np.arange(60) // 6])
def test_paired_views_are_judged_by_critics_that_saw_neither_of_them(as_arrays, groups, monkeypatch):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 5))
    B = A + np.array([3.0, 0, 0, 0, 0]) + 0.3 * rng.normal(size=(60, 5))
    X, source = np.concatenate([A, B]), np.repeat([0, 1], 60)
    groups = None if groups is None else np.tile(groups, 2)
    evidence = {"pairs": (A, B)} if as_arrays else {"pair_id": np.tile(np.arange(60), 2)}
    rules = []
    monkeypatch.setattr(
        stopping, "StoppingRule", lambda *args: rules.append(StoppingRule(*args)) or rules[-1]
    )
    model = linear(n_stages=1, do_no_harm=True).fit(X, source=source, groups=groups, **evidence)
    assert model.history_[0]["evidence"] == "pairs"
    (rule,) = rules
    H, events = ((X - model.map_.center) / model.map_.scale).astype(np.float32), []

    def events_of(rows):
        return {np.flatnonzero((row == H).all(axis=1))[0] % 60 for row in rows.original}

    for witness, held in zip(rule.witnesses, rule.held, strict=True):
        judged, fitted = events_of(held), events_of(witness.rows)
        assert not judged & fitted
        if groups is not None:
            assert not set(groups[list(judged)]) & set(groups[list(fitted)])
        assert len(held.codes) == 2 * len(judged)
        events += judged
    assert sorted(events) == list(range(60))


def associated(seed, n=1200, m=150, shift=3.0):
    """Return rows whose task agrees with their source, nine in ten, and pairs in which it does not.

    The task bends a gate coordinate: beyond what a linear anchor can follow, the sources differ by it.
    """
    rng = np.random.default_rng(seed)

    def content(task):
        q = rng.normal(size=(len(task), 5))
        z = 1.5 * task * np.abs(q[:, 0]) + rng.normal(size=len(task))
        return np.column_stack([z, q])

    task = np.tile([0, 1], n // 2)
    source = np.where(rng.random(n) < 0.9, task, 1 - task)
    X = content(task) + np.outer(source, shift * np.eye(6)[0])
    A = content(np.tile([0, 1], m // 2))
    return X, source, (A, A + shift * np.eye(6)[0] + 0.2 * rng.normal(size=A.shape) * np.eye(6)[0])


def test_an_association_of_source_and_task_keeps_rows_going_but_not_pairs():
    (X, source, pairs), (X_val, source_val, _) = associated(0), associated(1)
    gate = MeasurementGate()  # also for the anchors: stages alone, without the closed form before them
    model = IterativeMGPA(gate, anchor_gate=gate, critics=("linear",), n_stages=48)
    by_pairs = clone(model).fit(X, source=source, pairs=pairs)
    by_rows = clone(model).fit(X, source=source, pairs=pairs, X_val=X_val, source_val=source_val)
    assert by_pairs.history_[0]["evidence"] == "pairs"
    assert 0 < by_pairs.n_stages_ < by_rows.n_stages_
