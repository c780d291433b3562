"""Chains of pairs (A-B and B-C without A-C), sources within sources, planning, and sources left out."""

import numpy as np
import pytest

import mgpa
from mgpa.errors import MissingEvidence
from mgpa.estimators.left_out import leave_one_source_out
from mgpa.estimators.pairs_needed import pairs_needed

D = 8


def chain(links, n_events=60, n_sources=4, seed=0):
    """Return rows, sources and pair ids where events link only some sources."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(D) + 0.2 * rng.normal(size=(D, D))
    shifts = 1.5 * rng.normal(size=(n_sources, D))
    X, source, ids = [], [], []
    for k in range(n_sources):
        X.append(rng.normal(size=(150, D)) @ mixing + shifts[k])
        source += [k] * 150
        ids.append(np.full(150, -1))
    for i, (a, b) in enumerate(links):
        events = rng.normal(size=(n_events, D)) @ mixing
        for k in (a, b):
            X.append(events + shifts[k] + 0.1 * rng.normal(size=events.shape))
            source += [k] * n_events
            ids.append(np.arange(n_events) + i * n_events)
    test = rng.normal(size=(300, D)) @ mixing
    views = [test + shift + 0.1 * rng.normal(size=test.shape) for shift in shifts]
    return np.concatenate(X), np.array(source), np.concatenate(ids), views


@pytest.mark.parametrize("estimator", [mgpa.MGPA, mgpa.ClosedFormMGPA])
def test_a_chain_of_pairs_corrects_devices_that_no_event_joins(estimator):
    X, source, ids, views = chain([(0, 1), (1, 2), (2, 3)])
    m = estimator().fit(X, source=source, pair_id=ids).to_map()
    before = np.linalg.norm(views[0].mean(axis=0) - views[3].mean(axis=0))
    corrected = [m.transform(view) for view in views]
    assert np.linalg.norm(corrected[0].mean(axis=0) - corrected[3].mean(axis=0)) < 0.1 * before
    whole = chain([(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (1, 3)])
    complete = estimator().fit(*whole[:1], source=whole[1], pair_id=whole[2]).to_map()
    apart = [np.mean((f.transform(views[0]) - f.transform(views[3])) ** 2) for f in (m, complete)]
    assert apart[0] < 2.0 * apart[1]


def test_a_broken_chain_is_refused_with_what_is_missing():
    X, source, ids, _ = chain([(0, 1), (2, 3)])
    with pytest.raises(ValueError, match="do not connect all 4 sources"):
        mgpa.ClosedFormMGPA().fit(X, source=source, pair_id=ids)


def test_sources_within_sources_are_corrected_as_one_label_or_one_after_the_other():
    rng = np.random.default_rng(1)
    site, scanner = np.tile([0, 0, 1, 1], 200), np.tile([0, 1, 0, 1], 200)
    content = np.repeat(rng.normal(size=(200, D)), 4, axis=0)
    effect = np.outer(site, 2 * rng.normal(size=D)) + np.outer(scanner, rng.normal(size=D))
    X = content + effect + 0.1 * rng.normal(size=content.shape)
    event = np.arange(800) // 4
    together = np.char.add(site.astype(str), scanner.astype(str))
    one = mgpa.ClosedFormMGPA().fit(X, source=together, pair_id=event).transform(X)
    first = mgpa.ClosedFormMGPA().fit(X, source=site, pair_id=event * 2 + scanner).transform(X)
    both = mgpa.ClosedFormMGPA().fit(first, source=scanner, pair_id=event * 2 + site).transform(first)

    def left(rows):
        means = np.stack([rows[together == label].mean(axis=0) for label in np.unique(together)])
        return float(np.linalg.norm(means - means.mean(axis=0)))

    assert left(one) < 0.05 * left(X)
    assert left(both) < 0.1 * left(X)


def test_more_pairs_bring_held_out_events_closer_until_it_is_enough():
    X, source, ids, _ = chain([(0, 1)], n_events=120, n_sources=2)
    plan = pairs_needed(mgpa.ClosedFormMGPA(), X, source=source, pair_id=ids, sizes=(4, 20, 80), repeats=3)
    means = plan.distance.mean(axis=1)
    assert means[-1] < means[0] < plan.uncorrected
    assert plan.interval[0] <= plan.needed <= plan.interval[1]
    assert str(plan).splitlines()[-1].startswith("Enough: about ")
    assert plan.to_dict()["sizes"] == [4, 20, 80]
    rng = np.random.default_rng(0)
    alike = rng.normal(size=(200, D))  # no device effect: no pairs are of use
    idle = pairs_needed(mgpa.ClosedFormMGPA(), alike, source=np.arange(200) % 2, pair_id=np.arange(200) // 2)
    assert np.isinf(idle.needed)
    assert idle.to_dict()["needed"] is None
    assert "run mgpa check-pairs" in str(idle)
    with pytest.raises(MissingEvidence, match="at least 6"):
        pairs_needed(mgpa.ClosedFormMGPA(), X[:8], source=source[:8], pair_id=np.arange(8) // 2)
    with pytest.raises(ValueError, match="after holding out, there are"):
        pairs_needed(mgpa.ClosedFormMGPA(), X, source=source, pair_id=ids, sizes=(4, 500))


def test_every_source_left_out_says_what_a_new_one_gets():
    X, source, ids, _ = chain([(0, 1), (1, 2), (2, 3), (3, 0)])
    found = leave_one_source_out(mgpa.ClosedFormMGPA(), X, source=source, pair_id=ids)
    assert list(found.distance) == ["0", "1", "2", "3"]
    assert found.mean["10 pairs with one device"] < found.mean["uncorrected"]
    assert found.mean["adapted to its rows"] < found.mean["uncorrected"]
    assert found.fallback == "adapted to its rows"
    assert found.mean[found.fallback] <= found.mean["uncorrected"]
    assert str(found).splitlines()[-1].startswith("Best without pairs: adapted to its rows (0.")
    assert found.option == "--unknown adapt"
    assert np.mean(list(found.noticed.values())) > 0.7
    with pytest.raises(ValueError, match="two devices show nothing about a third"):
        leave_one_source_out(mgpa.MGPA(), X[source < 2], source=source[source < 2], pair_id=ids[source < 2])
