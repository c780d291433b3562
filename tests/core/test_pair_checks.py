"""Pairs are examined before they are used: right ones pass, wrong ones are named, copies count once."""

import numpy as np
import pytest
from scipy.linalg import expm

import mgpa
from mgpa.audit.diagnostics import check_pairs
from mgpa.audit.hidden_pairs import find_hidden_pairs
from mgpa.effect import Effect
from mgpa.errors import PairingError
from mgpa.pair_checks import Pairing, doubt, examine_pairs, far_off, sentence
from mgpa.pairs import Pairs, repeated_pairs
from mgpa.tables import Table

D = 16


def world(seed, m=60, per=1, noise=0.2, heavy=False):
    """Return two views of m events of participants with ``per`` events each, and whose they are."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(m // per), per)
    mix = rng.normal(size=(D, D)) / np.sqrt(D)
    events = (rng.normal(size=(m, D)) + rng.normal(size=(m, D))[who]) @ mix
    events /= events.std()
    draw = rng.standard_t(3, (2, m, D)) / np.sqrt(3) if heavy else rng.normal(size=(2, m, D))
    return events + noise * draw[0], events + 1.0 + noise * draw[1], who


@pytest.mark.parametrize("noise", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("m", [6, 20, 60])
def test_noisy_but_right_pairs_are_not_doubted(m, heavy, noise):
    found = [examine_pairs(*world(seed, m, noise=noise, heavy=heavy)[:2]) for seed in range(5)]
    assert not any(each.is_wrong for each in found)


def test_shuffled_pairs_are_named_with_where_they_belong():
    A, B, _ = world(0, noise=0.1)
    bad = np.array([3, 17, 18, 25, 30, 31, 40, 41, 42, 50, 55, 59])
    B[bad] = B[np.roll(bad, 1)]
    found = examine_pairs(A, B)
    assert found.pairing is Pairing.PARTLY_WRONG
    assert set(found.wrong) == set(bad)
    assert dict(zip(found.wrong, found.belongs_to, strict=True)) == dict(
        zip(bad.tolist(), np.roll(bad, 1).tolist(), strict=True)
    )
    assert found.wrong_share == pytest.approx(0.2, abs=0.05)
    assert "pairs join views of different events" in sentence(found)
    # A draw of noise with heavy tails hides none of it.
    A, B, _ = world(1, noise=0.1, heavy=True)
    B[bad] = B[np.roll(bad, 1)]
    assert examine_pairs(A, B).pairing is Pairing.PARTLY_WRONG


def test_wrong_pairs_that_fit_no_event_clearly_are_found_by_what_they_share():
    rng, found, shuffled = np.random.default_rng(0), [], []
    for seed in range(8):
        A, B, _ = world(seed, 100, noise=0.8)
        found.append(examine_pairs(A, B))
        bad = np.sort(rng.choice(100, 20, replace=False))
        B[bad] = B[np.roll(bad, 1)]
        shuffled.append((examine_pairs(A, B), bad))
    assert sum(bool(doubt(each)) for each in found) <= 1
    doubted = [(each, bad) for each, bad in shuffled if doubt(each)]
    assert len(doubted) >= 7
    by_signal = [(each, bad) for each, bad in doubted if not each.belongs_to]
    assert by_signal
    assert "their views share no signal" in sentence(by_signal[0][0])
    assert np.mean([np.isin(each.wrong, bad).mean() for each, bad in by_signal]) > 0.75
    assert np.mean([each.wrong_share for each, _ in by_signal]) == pytest.approx(0.2, abs=0.08)


def test_a_fifth_of_sixty_pairs_is_found_under_as_much_noise_as_signal():
    rng, found = np.random.default_rng(0), []
    for seed in range(60):
        A, B, _ = world(seed, noise=1.0)
        assert not doubt(examine_pairs(A, B))
        bad = rng.choice(60, 12, replace=False)
        B[bad] = B[np.roll(bad, 1)]
        found.append(bool(doubt(examine_pairs(A, B))))
    assert np.mean(found) >= 0.85


def test_what_pairs_share_is_compared_within_participants_that_have_several():
    A, B, who = world(4, m=60, per=10, noise=0.6)
    B = B + 0.7 * np.random.default_rng(0).normal(size=(6, D))[who]  # sessions differ: no wrong pairs
    assert not doubt(examine_pairs(A, B, who))


def test_participants_that_were_exchanged_are_named():
    A, B, who = world(2, m=60, per=6)
    names = np.array([f"p{i}" for i in who])
    first, second = np.flatnonzero(who == 2), np.flatnonzero(who == 7)
    B[np.r_[first, second]] = B[np.r_[second, first]]
    found = examine_pairs(A, B, names)
    assert found.swapped == (("p2", "p7"),)
    assert "Participants were exchanged: p2 and p7" in sentence(found)


def test_pairs_of_different_events_are_mismatched_and_late_clocks_are_told():
    A, B, who = world(3, m=60, per=10)
    within = np.concatenate([np.roll(np.flatnonzero(who == p), 4) for p in range(6)])
    assert examine_pairs(A, B[within], who).pairing is Pairing.MISMATCHED
    late = np.concatenate([np.roll(np.flatnonzero(who == p), -2) for p in range(6)])
    for participants in (who, None):
        found = examine_pairs(A, B[late], participants)
        assert found.pairing is Pairing.MISMATCHED
        assert found.lag == 2
        assert "fit the first views 2 pairs later" in sentence(found)


def test_replicates_beside_each_other_are_no_late_clock():
    """Replicates 1 to 4 of each content; the second device numbered them 4, 1, 2, 3."""
    rng = np.random.default_rng(6)
    content = np.repeat(rng.normal(size=(20, D)), 4, axis=0)
    replicate = content + 0.5 * rng.normal(size=content.shape)
    A = replicate + 0.1 * rng.normal(size=content.shape)
    B = np.concatenate([np.roll(replicate[i : i + 4], 1, axis=0) for i in range(0, 80, 4)]) + 1.0
    assert examine_pairs(A, B).lag == 0  # views fit those 3 pairs later, and 1 earlier, better than their own
    for lag in (-3, -1, 2):  # clocks, of the same content
        assert examine_pairs(A, np.roll(A, -lag, axis=0) + 0.1 * rng.normal(size=A.shape)).lag == lag


def test_a_rotated_device_is_no_mismatch():
    A, B, _ = world(4, m=60, noise=0.3)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]
    assert examine_pairs(A, B @ Q).pairing is Pairing.MATCHED


def test_few_pairs_and_copies_say_so():
    A, B, _ = world(5, m=6)
    assert examine_pairs(A[:4], B[:4]).pairing is Pairing.UNCLEAR
    assert examine_pairs(A, A).pairing is Pairing.IDENTICAL
    again = examine_pairs(np.r_[A, A[:2]], np.r_[B, B[:2]])
    assert again.repeats == (6, 7)
    assert repeated_pairs(np.array([[0.0], [-0.0]]), np.ones((2, 1))).tolist() == [1]
    assert not len(repeated_pairs(A, B))


def data(seed=0):
    rng = np.random.default_rng(seed)
    A, B, _ = world(seed, noise=0.1)
    source = np.repeat([0, 1], 200)
    return rng.normal(size=(400, D)) + source[:, None], source, A, B


@pytest.mark.parametrize("make", [mgpa.MGPA, mgpa.ClosedFormMGPA])
def test_a_fit_refuses_views_that_were_exchanged(make):
    X, source, A, B = data()
    with pytest.raises(PairingError, match="opposite differences"):
        make().fit(X, source=source, pairs=(B, A))


def test_views_count_as_exchanged_only_if_neither_chance_nor_populations_explain_it():
    assert Effect(-0.9, 0.1).is_reversed
    assert not Effect(0.9, 0.1).is_reversed
    assert not Effect(-0.82, 0.39, df=78).is_reversed
    assert not Effect(-0.9, 0.1, across=1.5).is_reversed


@pytest.mark.parametrize("make", [mgpa.MGPA, mgpa.ClosedFormMGPA])
def test_a_fit_refuses_pairs_of_different_events_and_counts_copies_once(make):
    X, source, A, B = data()
    bad = np.arange(0, 60, 5)
    with pytest.raises(PairingError, match="pairs join views of different events"):
        make().fit(X, source=source, pairs=(A, np.concatenate([B])[np.where(
            np.isin(np.arange(60), bad), np.roll(np.arange(60), 5), np.arange(60))]))  # fmt: skip
    once = make().fit(X, source=source, pairs=(A, B)).transform(X)
    twice = make().fit(X, source=source, pairs=(np.r_[A, A], np.r_[B, B])).transform(X)
    np.testing.assert_allclose(twice, once, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [mgpa.MGPA, mgpa.ClosedFormMGPA, mgpa.IterativeMGPA])
def test_what_is_doubtful_is_the_first_line_of_a_fit_and_stored_with_it(make, tmp_path):
    X, source, A, B = data(2)
    shuffled = B[np.random.default_rng(2).permutation(60)]
    m = make().fit(X, source=source, pairs=(A, shuffled)).to_map()
    assert m.summary().startswith("Doubtful: ")
    assert m.save(tmp_path / "m.safetensors")
    assert mgpa.load_map(tmp_path / "m.safetensors").info.doubt == m.info.doubt
    right = make().fit(X, source=source, pairs=(A, B)).to_map()
    assert not right.info.doubt
    assert not right.summary().startswith("Doubtful")


def test_pairs_with_weak_evidence_against_them_are_doubted_and_still_fitted():
    doubted = 0
    for seed in range(10):
        A, B, _ = world(seed, 20, noise=0.4)
        B[:4] = B[[1, 2, 3, 0]]
        found = examine_pairs(A, B)
        doubted += bool(doubt(found))
        if found.pairing is Pairing.DOUBTFUL:
            assert "may join views of different events" in sentence(found)
    assert doubted >= 6
    assert not any(doubt(examine_pairs(*world(seed, 20, noise=0.4)[:2])) for seed in range(10))


def test_an_error_lists_the_wrong_pairs_for_leaving_them_out():
    X, source, A, B = data()
    B[[3, 7, 9, 30, 31]] = B[[7, 9, 3, 31, 30]]
    with pytest.raises(PairingError) as error:
        mgpa.MGPA().fit(X, source=source, pairs=(A, B))
    assert sorted(error.value.pairs) == [3, 7, 9, 30, 31]
    rest = np.setdiff1d(np.arange(60), error.value.pairs)
    mgpa.MGPA().fit(X, source=source, pairs=(A[rest], B[rest]))


def rotated(seed):
    """Return rows and pairs of a device that shifts and rotates, and new rows of it."""
    rng = np.random.default_rng(seed)
    mix, skew = rng.normal(size=(D, D)) / np.sqrt(D) + 0.5 * np.eye(D), rng.normal(size=(D, D))
    turn, shift = expm(0.15 * (skew - skew.T)), rng.normal(size=D)

    def seen(events, device):
        seen = events @ turn + shift if device else events
        return seen + 0.2 * rng.normal(size=events.shape)

    events = [rng.normal(size=(n, D)) @ mix for n in (400, 400, 60)]
    X = np.concatenate([seen(events[0], 0), seen(events[1], 1)])
    return X, np.repeat([0, 1], 400), seen(events[2], 0), seen(events[2], 1)


@pytest.mark.parametrize("make", [mgpa.MGPA, mgpa.ClosedFormMGPA, mgpa.IterativeMGPA])
@pytest.mark.parametrize("way", ["pairs", "pair_id"])
def test_a_pair_that_is_far_off_the_others_does_not_decide_the_fit(make, way):
    X, source, A, B = rotated(0)

    def fit(B):
        if way == "pairs":
            return make().fit(X, source=source, pairs=(A, B))
        ids = np.r_[np.full(len(X), -1), np.tile(np.arange(60), 2)]
        rows = np.r_[X, A, B]
        return make().fit(rows, source=np.r_[source, np.repeat([0, 1], 60)], pair_id=ids)

    clean, broken = fit(B), B.copy()
    broken[3, 2], broken[40, 7] = 50.0, -50.0
    model = fit(broken)
    moved = model.transform(X) - X
    assert np.linalg.norm(moved - (clean.transform(X) - X)) < 0.35 * np.linalg.norm(moved)
    if make is not mgpa.IterativeMGPA:
        named = " (3, 40)" if way == "pair_id" else ""
        assert f"2 of 60 pairs are outliers and were left out{named}" in model.to_map().info.evidence
        assert "far off" not in clean.to_map().info.evidence


@pytest.mark.parametrize("heavy", [False, True])
def test_right_pairs_are_hardly_ever_left_out(heavy):
    left_out = [len(far_off(pairs_of(*world(seed, noise=0.5, heavy=heavy)[:2]))) for seed in range(10)]
    assert np.mean(left_out) <= (2.0 if heavy else 0.0)
    assert not len(far_off(pairs_of(*rotated(1)[2:])))


def pairs_of(A, B):
    return Pairs.from_arrays((A, B), A.shape[1])


def test_rows_far_out_are_doubted_where_they_decide_the_scale():
    X, source, A, B = rotated(0)
    X[5] = 1e6
    m = mgpa.MGPA().fit(X, source=source, pairs=(A, B)).to_map()
    assert m.summary().startswith("Doubtful: A few rows are extreme outliers that determine the scale of 16")


def people_of_two_sources(hidden, seed=0, d=16, n=12):
    """Return rows of n people in each of two sources; the first ``hidden`` ones are in both, renamed."""
    rng = np.random.default_rng(seed)
    known = rng.normal(size=(2 * n, d))
    known[n : n + hidden] = known[:hidden]
    rows = np.repeat(known, 30, axis=0)
    who = np.repeat([f"p{i}" for i in range(2 * n)], 30)
    return rows + 0.7 * rng.normal(size=rows.shape), np.repeat(["dry", "wet"], n * 30), who


def test_a_person_under_two_names_is_proposed_and_different_people_are_not():
    X, source, who = people_of_two_sources(2)
    found = find_hidden_pairs(X, source, who)
    assert {pair.participants for pair in found} == {("p0", "p12"), ("p1", "p13")}
    assert str(found[0]).endswith("(wet)")
    without = [find_hidden_pairs(*people_of_two_sources(0, seed, d)) for seed in range(20) for d in (3, 16)]
    assert sum(map(len, without)) <= 2  # 5 % of tables at most


def test_check_pairs_proposes_hidden_pairs_and_does_not_use_them():
    rng = np.random.default_rng(1)
    X, source, who = people_of_two_sources(1)
    events = rng.normal(size=(40, X.shape[1]))
    shift = np.where(np.append(source, ["dry", "wet"] * 40) == "wet", 3.0, 0.0)[:, None]
    X = np.concatenate([X, np.repeat(events, 2, axis=0)]) + shift
    who = np.concatenate([who, np.repeat([f"t{i % 5}" for i in range(40)], 2)])
    ids = np.concatenate([np.full(len(source), -1), np.repeat(np.arange(40), 2)])
    table = Table(X, source=np.append(source, ["dry", "wet"] * 40), participant=who, pair_id=ids)
    found = check_pairs(table)
    assert [pair.participants for pair in found.hidden] == [("p0", "p12")]
    assert "'p0' (dry) and 'p12' (wet) look like one person under two names: not used" in str(found)
    assert found.n_pairs == 40
    assert found.to_dict()["hidden"][0]["participants"] == ("p0", "p12")
