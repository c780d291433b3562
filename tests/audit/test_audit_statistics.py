"""AUROC, the participant bootstrap and association shift: exact, paired, and equal to the paper's digits."""

import csv
import re
import warnings
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from mgpa.audit.association import (
    assign_endpoints,
    assignment_probability,
    association_auroc,
    fit_association_heads,
    shortcut_scores,
)
from mgpa.audit.bootstrap import (
    contrast,
    curve_coefficients,
    curve_minimum,
    estimate,
    leave_one_out,
    simultaneous,
)
from mgpa.audit.ranks import participant_auroc
from random_cases import SEEDS, examples
from shared import SHARED, needs_shared

METHODS = ("identity", "leace", "mgpa_cf", "mgpa_iter", "coral", "featmap")
TASKS = ("p300", "n170", "mmn")


# The reuse study: every printed digit, from the published AUROC of each participant.


@cache
def published_rows():
    path = SHARED / "published" / "reuse.csv"
    if not path.is_file():
        pytest.skip("the published reuse results are not on this machine")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def published(task, method, head):
    """Return values [fit, 8, 3] of the shortcut head, [fit, 8] of the control head; people sorted as text."""
    fits = {}
    for row in published_rows():
        if (row["task"], row["method"], row["head"]) == (task, method, head):
            fit = fits.setdefault(row["fit"], {})
            fit.setdefault(row["participant"], {})[int(row["association"])] = float(row["auroc"])
    columns = (-1, 0, 1) if head == "shortcut" else (0,)
    values = np.array([[[fit[who][xi] for xi in columns] for who in sorted(fit)] for fit in fits.values()])
    return values if head == "shortcut" else values[..., 0]


REUSE_MAIN = """
identity   0.355 0.122 0.446 0.627 0.622 0.640
leace      0.601 0.384 0.614 0.622 0.621 0.639
mgpa_cf    0.599 0.420 0.642 0.627 0.621 0.642
mgpa_iter  0.599 0.441 0.632 0.627 0.621 0.641
coral      0.550 0.277 0.624 0.627 0.622 0.641
featmap    0.573 0.471 0.618 0.627 0.611 0.625
"""

REUSE_PAIRED = """
p300 mgpa_cf   identity +0.244 [+0.220, +0.268] +0.0005 [-0.0010, +0.0022]
p300 mgpa_cf   leace    -0.002 [-0.022, +0.027] +0.0050 [+0.0036, +0.0066]
p300 mgpa_iter identity +0.244 [+0.224, +0.262] +0.0003 [-0.0016, +0.0025]
p300 mgpa_iter leace    -0.002 [-0.016, +0.021] +0.0047 [+0.0034, +0.0062]
n170 mgpa_cf   identity +0.298 [+0.244, +0.340] -0.0014 [-0.0044, +0.0019]
n170 mgpa_cf   leace    +0.036 [+0.005, +0.067] +0.0002 [-0.0023, +0.0037]
n170 mgpa_iter identity +0.319 [+0.251, +0.380] -0.0010 [-0.0035, +0.0013]
n170 mgpa_iter leace    +0.057 [+0.034, +0.083] +0.0006 [-0.0009, +0.0025]
mmn  mgpa_cf   identity +0.195 [+0.168, +0.215] +0.0012 [+0.0006, +0.0018]
mmn  mgpa_cf   leace    +0.028 [+0.002, +0.034] +0.0024 [+0.0006, +0.0043]
mmn  mgpa_iter identity +0.186 [+0.157, +0.209] +0.0003 [-0.0014, +0.0017]
mmn  mgpa_iter leace    +0.019 [+0.004, +0.024] +0.0016 [-0.0005, +0.0036]
"""


def lines(table):
    return [re.split(r"\s+", line.strip(), maxsplit=1) for line in table.strip().splitlines()]


def once(values, statistic):
    """Return the statistic alone; its interval is another test's matter."""
    return estimate(values, statistic, n_draws=1).value


@needs_shared
@pytest.mark.parametrize(("method", "printed"), lines(REUSE_MAIN))
def test_the_main_reuse_table_is_reproduced_digit_by_digit(method, printed):
    worst = [once(published(task, method, "shortcut"), "worst") for task in TASKS]
    control = [once(published(task, method, "control"), "mean") for task in TASKS]
    assert " ".join(f"{value:.3f}" for value in worst + control) == printed


@needs_shared
@pytest.mark.parametrize("line", REUSE_PAIRED.strip().splitlines())
def test_the_paired_reuse_table_is_reproduced_digit_by_digit(line):
    task, method, reference, printed = re.split(r"\s+", line, maxsplit=3)
    worst = contrast(published(task, method, "shortcut"), published(task, reference, "shortcut"), "worst")
    control = contrast(published(task, method, "control"), published(task, reference, "control"))
    assert f"{worst:+0.3f} {control:+0.4f}" == printed


# AUROC.


def ties(rng, shape):
    """Return scores with many ties."""
    return rng.integers(0, 6, size=shape) / 4


def both_classes(rng, n):
    y = rng.integers(0, 2, n)
    y[:2] = 0, 1
    return y


@given(SEEDS, st.integers(2, 5), st.booleans())
@examples(12)
def test_participant_auroc_is_scikit_learn_for_each_participant_and_reader(seed, n_classes, weighted):
    rng = np.random.default_rng(seed)
    n = 30 * n_classes
    who = np.repeat(["p9", "p10", "q"], 10 * n_classes)
    labels = np.tile(np.arange(n_classes), 30)
    weight = rng.uniform(0.2, 1, n) if weighted else None
    raw = rng.integers(1, 5, size=(n, 2, n_classes)).astype(float)
    scores = raw / raw.sum(axis=-1, keepdims=True)
    given_scores = scores[:, :, 1] if n_classes == 2 else scores
    order = rng.permutation(n)
    people, values = participant_auroc(
        given_scores[order], labels[order], who[order], weight=None if weight is None else weight[order]
    )
    assert people == ("p10", "p9", "q")
    for i, reader in product(range(3), range(2)):
        mine = who == people[i]
        expected = roc_auc_score(
            labels[mine],
            scores[mine, reader, 1] if n_classes == 2 else scores[mine, reader],
            multi_class="ovr",
            sample_weight=None if weight is None else weight[mine],
        )
        assert values[i, reader] == pytest.approx(expected, abs=1e-12)
    single = participant_auroc(given_scores[:, 0], labels, who, weight=weight)
    np.testing.assert_allclose(single[1], values[:, 0], rtol=0, atol=1e-13)


# The bootstrap.


def plain_bootstrap(values, statistic, n_draws=400, seed=1101):
    """Return the statistic in each draw, by plain indexing: values [fit, participant, ...]."""
    index = np.random.default_rng(seed).integers(values.shape[1], size=(n_draws, values.shape[1]))
    return np.array([np.mean([statistic(fit[draw].mean(axis=0)) for fit in values]) for draw in index])


def lowest_on_a_grid(auroc_at):
    a, b, c = curve_coefficients(auroc_at)
    grid = np.linspace(-1, 1, 20_001)
    return (a * grid**2 + b * grid + c).min()


@pytest.mark.parametrize(
    ("statistic", "shape", "plain", "atol"),
    [
        ("mean", (3, 7), float, 1e-13),
        ("max", (3, 7, 5), np.max, 1e-13),
        ("worst", (3, 7, 3), lowest_on_a_grid, 1e-8),
        (lambda means: means[..., 2] - means[..., 0], (3, 7, 3), lambda m: m[2] - m[0], 1e-13),
    ],
)
def test_intervals_recompute_the_statistic_in_every_draw(statistic, shape, plain, atol):
    rng = np.random.default_rng(3)
    a, b = rng.uniform(0.3, 0.8, shape), rng.uniform(0.3, 0.8, shape)
    once = np.mean([plain(fit.mean(axis=0)) for fit in a])
    draws_a, draws_b = plain_bootstrap(a, plain), plain_bootstrap(b, plain)

    ours = estimate(a, statistic, n_draws=400)
    expected = [once, *np.quantile(draws_a, [0.025, 0.975])]
    np.testing.assert_allclose([ours.value, ours.low, ours.high], expected, rtol=0, atol=atol)

    ours = contrast(a, b, statistic, n_draws=400)
    np.testing.assert_allclose(
        [ours.low, ours.high], np.quantile(draws_a - draws_b, [0.025, 0.975]), rtol=0, atol=2 * atol
    )
    assert ours.value == pytest.approx(once - np.mean([plain(fit.mean(axis=0)) for fit in b]), abs=2 * atol)


def test_the_maximum_is_taken_for_each_orientation_before_averaging():
    values = np.random.default_rng(0).uniform(size=(5, 3, 6, 4))  # orientation, fit, participant, reader
    ours = estimate(values, "max", n_draws=300)
    assert ours.value == pytest.approx(values.mean(axis=2).max(axis=-1).mean())
    assert ours == estimate(values.reshape(15, 6, 4), "max", n_draws=300)
    # Fits of orientations correspond to the fits of a method without orientations.
    assert contrast(values, values.mean(axis=0), "max", n_draws=300).low >= 0


@pytest.mark.parametrize("statistic", ["mean", "max", "worst", lambda means: means.min(axis=-1)])
def test_leaving_one_participant_out_is_the_statistic_of_the_others(statistic):
    values = np.random.default_rng(5).uniform(size=(2, 6, 3))
    values = values[..., 0] if statistic == "mean" else values
    expected = [estimate(np.delete(values, i, axis=1), statistic, n_draws=1).value for i in range(6)]
    np.testing.assert_allclose(leave_one_out(values, statistic), expected, rtol=0, atol=1e-14)


# Association shift.


def paired_scores(seed, n=60, n_people=3, tied=True):
    """Return two views' scores with a device shift, labels and participants of different prevalence."""
    rng = np.random.default_rng(seed)
    who = rng.integers(0, n_people, n).astype(str)
    who[: 2 * n_people] = np.repeat(np.arange(n_people), 2).astype(str)
    y = (rng.uniform(size=n) < rng.uniform(0.1, 0.9, n_people)[who.astype(int)]).astype(int)
    y[: 2 * n_people] = np.tile([0, 1], n_people)
    scores = rng.normal(size=(2, n)) + 0.5 * y + np.array([[0.0], [0.8]])
    return (*(np.round(scores, 0) if tied else scores), y, who)


def weighted_auroc(scores0, scores1, y, mine, who, xi):
    second = assignment_probability(y, who, xi)[mine]
    return roc_auc_score(
        np.tile(y[mine], 2),
        np.concatenate([scores0[mine], scores1[mine]]),
        sample_weight=np.concatenate([1 - second, second]),
    )


@given(SEEDS, st.booleans())
@examples(5)
def test_auroc_is_exactly_quadratic_in_the_association(seed, tied):
    scores0, scores1, y, who = paired_scores(seed, tied=tied)
    people, values = association_auroc(scores0, scores1, y, who)
    coefficients = curve_coefficients(values)
    grid = np.linspace(-1, 1, 21)
    for i, name in enumerate(people):
        mine = who == name
        brute = [weighted_auroc(scores0, scores1, y, mine, who, xi) for xi in grid]
        np.testing.assert_allclose(np.polyval(coefficients[i], grid), brute, rtol=0, atol=1e-12)
        # Why: P(u | y) is linear in ξ, and AUROC is Σ P(u | 1) P(v | 0) A(u, v) over devices u and v.
        views = np.stack([scores0, scores1])[:, mine]
        ordered = np.sort(y[mine])[::-1]
        positive, negative = (assignment_probability(y, who, 0.3)[mine & (y == label)][0] for label in (1, 0))
        parts = [
            pu * pv * roc_auc_score(ordered, [*views[u][y[mine] == 1], *views[v][y[mine] == 0]])
            for u, pu in enumerate((1 - positive, positive))
            for v, pv in enumerate((1 - negative, negative))
        ]
        assert np.polyval(coefficients[i], 0.3) == pytest.approx(sum(parts), abs=1e-12)


@pytest.mark.parametrize(
    ("coefficients", "expected"),
    [
        ((1.0, -0.5, 0.5), (0.4375, 0.25)),  # interior vertex
        ((1.0, -2.0, 0.5), (-0.5, 1.0)),  # vertex on the edge: |b| = 2a
        ((1.0, -3.0, 0.5), (-1.5, 1.0)),  # vertex outside
        ((-1.0, 0.1, 0.5), (-0.6, -1.0)),  # concave: an end
        ((0.0, -0.2, 0.5), (0.3, 1.0)),  # a line
        ((0.0, 0.0, 0.5), (0.5, -1.0)),  # a constant: the first candidate
        ((1.0, 0.0, 0.5), (0.5, 0.0)),
    ],
)
def test_the_lowest_point_of_known_curves(coefficients, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array(curve_minimum(coefficients)) == pytest.approx(expected)


@given(SEEDS, st.floats(-1, 1))
@examples(30)
def test_assignment_probabilities_keep_every_device_at_one_half(seed, xi):
    _, _, y, who = paired_scores(seed)
    probability = assignment_probability(y, who, xi)
    assert (np.abs(probability - 0.5) <= 0.4 * abs(xi) + 1e-15).all()
    for name in np.unique(who):
        mine = who == name
        assert probability[mine].mean() == pytest.approx(0.5, abs=1e-12)
        prevalence = y[mine].mean()
        expected = 0.5 + 0.4 * xi * (y[mine] - prevalence) / max(prevalence, 1 - prevalence)
        np.testing.assert_allclose(probability[mine], expected, rtol=0, atol=1e-15)


def test_endpoints_are_drawn_in_string_order_positives_first():
    y, who = np.array([1, 0, 1, 0, 1, 1, 0, 0, 1]), np.array([9, 9, 10, 10, 9, 10, 9, 10, 9])
    rng = np.random.default_rng(1017)
    expected = np.zeros(9, int)
    for person in (10, 9):
        positives = rng.permutation(np.flatnonzero((who == person) & (y == 1)))
        negatives = rng.permutation(np.flatnonzero((who == person) & (y == 0)))
        n_second = (len(positives) + len(negatives)) // 2
        quota = {10: 2, 9: 2}[person]  # 10: 2 x .9 = 1.8; 9: prevalence .6, 3 x (.5 + .4 x 2/3) = 2.3
        expected[positives[:quota]] = 1
        expected[negatives[: n_second - quota]] = 1
    assert np.array_equal(assign_endpoints(y, who, 1), expected)
    assert np.array_equal(assign_endpoints(y, who, 1, np.random.default_rng(1017)), expected)
    assert np.array_equal(assign_endpoints(y, who.astype(str), 1), expected)


def paired_features(seed=0, n=240, d=6, dtype=np.float64):
    """Return two views of events whose first feature carries the label weakly and the second the device."""
    rng = np.random.default_rng(seed)
    who = np.repeat(["1019", "1020", "1024", "1025"], [n // 2, n // 6, n // 6, n - n // 2 - 2 * (n // 6)])
    y = both_classes(rng, n)
    for name in np.unique(who):
        y[np.flatnonzero(who == name)[:2]] = 0, 1
    base = rng.normal(size=(n, d)) * np.linspace(1, 3, d)
    base[:, 0] += 0.8 * y
    first, second = base + 0.1 * rng.normal(size=(2, n, d))
    second[:, 1] += 4.0
    return first.astype(dtype), second.astype(dtype), y, who


def test_heads_follow_the_protocol_step_by_step():
    X0, X1, y, who = paired_features()
    heads = fit_association_heads(X0, X1, y, who)

    def fit(X, rows, C):
        counts = {name: (who[rows] == name).sum() for name in np.unique(who[rows])}
        weight = np.array([1 / counts[name] for name in who[rows]])
        weight /= weight.mean()
        scaler = StandardScaler().fit(X[rows], sample_weight=weight)
        # class_weight="balanced" would count rows, not their weight, in scikit-learn before 1.7.
        for label in np.unique(y):
            weight[y[rows] == label] *= 1 / weight[y[rows] == label].sum()
        model = LogisticRegression(C=C, max_iter=2000)
        model.fit(scaler.transform(X[rows]), y[rows], sample_weight=len(weight) / 2 * weight)
        return lambda Z: model.predict_proba(scaler.transform(Z))[:, 1]

    seen = {xi: np.where(assign_endpoints(y, who, xi, 1017)[:, None] == 1, X1, X0) for xi in (0, 1)}
    means = []
    for C in 10.0 ** np.arange(-6, 2):
        values = []
        for name in np.unique(who):
            out = who == name
            score = fit(seen[0], ~out, C)
            values.append(roc_auc_score(np.tile(y[out], 2), np.r_[score(X0[out]), score(X1[out])]))
        means.append(np.mean(values))
    best = 10.0 ** (np.argmax(means) - 6)
    everyone = np.ones(len(y), bool)
    for head, xi in zip(heads, (1, 0), strict=True):
        assert pytest.approx(best) == head[-1].C
        np.testing.assert_allclose(shortcut_scores(head, X1), fit(seen[xi], everyone, best)(X1), atol=1e-9)


TWO = ["a", "a"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: participant_auroc(np.ones(4), [0, 1, 0], ["a"] * 4), r"labels has shape \(3,\)"),
        (lambda: participant_auroc(np.ones(2), [0, 0], TWO), "AUROC needs two classes"),
        (lambda: participant_auroc([1, np.nan], [0, 1], TWO), "scores must hold finite numbers"),
        (lambda: participant_auroc([1, 2, 3], [0, 1, 0], ["p", "p", "q"]), "'q' has no rows of class 1"),
        (lambda: participant_auroc([1, 2], [0, 1], ["p", "p"], weight=[1, 0]), "'p' has no rows of class 1"),
        (lambda: estimate([[0.5, np.nan]]), r"values is NaN or infinite at \(0, 1\)"),
        (lambda: estimate([0.5]), "Only one participant"),
        (lambda: estimate([0.5, 0.6], "max"), r"expected \[fit, participant, reader\]"),
        (lambda: estimate(np.ones((1, 4, 2)), "worst"), r"expected \[fit, participant, 3\]"),
        (lambda: assignment_probability([0, 2], TWO, 0), "y must be 0 or 1"),
        (lambda: assignment_probability([0, 1], TWO, 1.5), "xi must be between -1"),
        (lambda: association_auroc([1, 2], [1], [0, 1], TWO), "of the same events"),
        (lambda: fit_association_heads(np.ones((2, 3)), np.ones((1, 3)), [0, 1], ["a", "b"]), "both views"),
        (lambda: fit_association_heads(np.ones((2, 3)), np.ones((2, 3)), [0, 1], TWO), "of 1 participants"),
    ],
)
def test_bad_input_is_refused_with_a_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_simultaneous_intervals_are_those_of_the_largest_departure():
    rng = np.random.default_rng(0)
    base = rng.normal(0.7, 0.05, 24)
    sides = [(base + rng.normal(0.01 * k, 0.03, 24), base) for k in range(6)]
    every = simultaneous(sides)
    alone = [contrast(a, b) for a, b in sides]
    for together, one in zip(every, alone, strict=True):
        assert together.value == pytest.approx(one.value)
        assert together.high - together.low > one.high - one.low
    # Bonferroni's are wider still than the quantile of the maximum.
    widths = [
        (e.high - e.low) / (2 * np.std(a - b) / np.sqrt(24)) for e, (a, b) in zip(every, sides, strict=True)
    ]
    assert 1.96 < np.mean(widths) < 2.9
    [single] = simultaneous(sides[:1])
    assert single.high - single.low == pytest.approx(alone[0].high - alone[0].low, rel=0.05)


@pytest.mark.parametrize("strata", [None, "nested"])
def test_many_participants_are_drawn_in_groups_with_the_interval_of_participants(strata):
    """Participants in order of their values: groups are random, so order has no part."""
    rng = np.random.default_rng(0)
    values = np.sort(rng.normal(size=(1, 6000, 2)), axis=1)
    cells = None if strata is None else np.repeat(["a", "b"], [1000, 5000])
    found = estimate(values, "max", strata=cells)
    share = 1.0 / 6000 if cells is None else np.repeat([0.5 / 1000, 0.5 / 5000], [1000, 5000])
    assert found.value == pytest.approx((share * values[0].T).sum(axis=1).max(), abs=1e-12)
    parts = [values[0]] if cells is None else [values[0, :1000], values[0, 1000:]]
    error = np.sqrt(np.mean([part.var() / len(part) for part in parts]) / len(parts))
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.15)
