"""Readers of covariance, length, kernels and participants' own rows find what was planted for them."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import roc_auc_score

from mgpa.audit import run_readers, run_readers_on_each
from mgpa.audit.readers import FURTHER, further_scores, stopping
from mgpa.audit.readers.further import OWN
from mgpa.audit.readers.quick import KERNEL_RIDGE, class_moments, kernel, quadratics
from mgpa.audit.readers.stopping import worth_training


def read(head, source, held, truth, **options):
    found = further_scores(head, source, held, 98, kinds=["quick"], **options)
    if source.max() > 1:
        return {name: roc_auc_score(truth, scores, multi_class="ovr") for name, scores in found.items()}
    return {name: roc_auc_score(truth, scores) for name, scores in found.items()}


@pytest.mark.parametrize(("d", "gain", "n"), [(256, 1.06, 1200), (768, 1.03, 1600)])
def test_a_device_that_amplifies_everything_a_little_is_read_by_length(d, gain, n):
    """The logarithm of the squared length scatters by √(2 / d) and moves by 2 log(gain)."""
    rng = np.random.default_rng(0)
    source = np.arange(2 * n) % 2
    X = rng.normal(size=(2 * n, d)) * np.where(source, gain, 1.0)[:, None]
    expected = norm.cdf(2 * np.log(gain) / np.sqrt(2 / d) / np.sqrt(2))
    found = read(X[:n], source[:n], X[n:], source[n:])
    assert found["length"] == pytest.approx(expected, abs=0.03)
    assert 0.78 < expected < 0.83
    linear = run_readers(X[:n], source[:n], X[n:], restarts=0)
    assert max(roc_auc_score(source[n:], scores) for scores in linear.values()) < 0.56


def test_a_covariance_that_differs_everywhere_is_read_by_quadratic_discriminants():
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    source = np.arange(2400) % 2
    X = rng.normal(size=(2400, 40)) * np.where(source[:, None], np.linspace(0.75, 1.33, 40), 1.0) @ turn
    found = read(X[:1200], source[:1200], X[1200:], source[1200:])
    assert found["quadratic_5"] > 0.72
    assert found["quadratic_5"] > found["length"] + 0.1


def test_small_differences_in_directions_of_little_variance_are_read_by_whitened_readers():
    rng = np.random.default_rng(2)
    source = np.arange(1600) % 2
    X = rng.normal(size=(1600, 30)) * np.geomspace(1, 0.1, 30)
    X[:, 20:] *= np.where(source, 1.5, 1.0)[:, None]
    X = X @ np.linalg.qr(rng.normal(size=(30, 30)))[0]
    found = read(X[:800], source[:800], X[800:], source[800:])
    assert found["whitened_quadratic_10"] > 0.8
    assert found["whitened_quadratic_10"] > found["quadratic_30"] + 0.1


def test_a_ring_is_read_by_a_kernel():
    rng = np.random.default_rng(3)
    source, angle = np.arange(1200) % 2, 2 * np.pi * rng.random(1200)
    X = 0.4 * rng.normal(size=(1200, 4))
    corner = np.round(angle / (np.pi / 4)).astype(int) % 8  # eight spots on a circle, every other of a source
    corner += (corner % 2 != source).astype(int)
    X[:, :2] += 3 * np.stack([np.cos(corner * np.pi / 4), np.sin(corner * np.pi / 4)], axis=1)
    found = read(X[:600], source[:600], X[600:], source[600:])
    assert found["kernel"] > 0.95
    assert found["quadratic_5"] < 0.7


def test_what_participants_differences_hide_is_read_in_their_own_rows():
    rng = np.random.default_rng(4)
    person, source = np.repeat(np.arange(80), 20), np.tile([0, 1], 800)
    X = rng.normal(size=(1600, 10)) + 6.0 * rng.normal(size=(80, 10))[person]
    X[:, 0] += 1.5 * source
    rows = X[:800], source[:800], X[800:], source[800:]
    without, found = read(*rows), read(*rows, participants=(person[:800], person[800:]))
    assert set(OWN) == set(found) - set(without)
    assert max(found[name] for name in OWN) > 0.8
    assert max(without.values()) < 0.65
    # Participants of one source each have nothing to be compared with in their own rows.
    alone = read(*rows, participants=(2 * person[:800] + source[:800], person[800:]))
    assert {alone[name] for name in OWN} == {0.5}


@pytest.mark.parametrize("whiten", [False, True])
def test_quadratic_discriminants_are_log_densities(whiten):
    rng = np.random.default_rng(5)
    codes = np.arange(90) % 3
    rows = rng.normal(size=(90, 4)) @ rng.normal(size=(4, 4)) + codes[:, None]
    held = rng.normal(size=(7, 4))
    moments = class_moments([(rows[:50], codes[:50]), (rows[50:], codes[50:])], 3, 4)
    center, covariance = moments.pooled
    np.testing.assert_allclose(center, rows.mean(axis=0))
    np.testing.assert_allclose(covariance, np.cov(rows.T, ddof=0))
    W = moments.whitener if whiten else np.eye(4)
    logs = []
    for k in range(3):
        seen = rows[codes == k] @ W
        own = np.cov(seen.T, ddof=0)
        shrunk = 0.7 * own + 0.3 * np.trace(own) / 4 * np.eye(4)
        logs.append(multivariate_normal(seen.mean(axis=0), shrunk).logpdf(held @ W))
    soft = np.exp((np.stack(logs, axis=1) - np.max(logs, axis=0)[:, None]) / 2)
    (found,) = quadratics(moments, (0.3,), whiten)(held)
    np.testing.assert_allclose(found, soft / soft.sum(axis=1, keepdims=True), rtol=1e-6)
    two = class_moments([(rows[codes < 2], codes[codes < 2])], 2, 4)
    (odds,) = quadratics(two, (0.3,), False)(held)
    if not whiten:
        np.testing.assert_allclose(odds, logs[1] - logs[0], rtol=1e-6)


def test_a_kernel_with_all_rows_as_landmarks_is_kernel_ridge_regression():
    rng = np.random.default_rng(6)
    rows, codes = rng.normal(size=(60, 3)), np.arange(60) % 2
    held = rng.normal(size=(9, 3))
    found = kernel([(rows[:25], codes[:25]), (rows[25:], codes[25:])], rows, 2, 1.0)(held)
    apart = np.square(rows[:, None] - rows).sum(axis=2)
    gamma = 1.0 / np.median(apart[apart > 0])
    ridge = KERNEL_RIDGE
    plain = KernelRidge(kernel="rbf", gamma=gamma, alpha=ridge).fit(rows, np.where(codes, 1.0, -1.0))
    assert np.corrcoef(found, plain.predict(held))[0, 1] > 0.999
    same = kernel([(np.zeros((8, 2)), np.arange(8) % 2)], np.zeros((8, 2)), 2, 1.0)(np.zeros((3, 2)))
    np.testing.assert_allclose(same, 0.0, atol=1e-12)


def test_three_sources_are_read():
    rng = np.random.default_rng(7)
    source = np.arange(1800) % 3
    X = rng.normal(size=(1800, 12)) * np.array([1.0, 1.25, 1.6])[source][:, None]
    person = np.arange(1800) // 30
    found = read(X[:900], source[:900], X[900:], source[900:], participants=(person[:900], person[900:]))
    assert min(found[name] for name in ("length", "quadratic_5", "own_quadratic_5")) > 0.75


def test_wide_rows_are_read_in_their_leading_directions():
    rng = np.random.default_rng(8)
    source = np.arange(600) % 2
    X = rng.normal(size=(600, 1100))
    X[:, :30] += 3.0 * rng.normal(size=(600, 1)) * np.where(source, 4.0, 1.0)[:, None]
    found = further_scores(X[:300], source[:300], X[300:], 98)
    assert max(roc_auc_score(source[300:], found[name]) for name in ("quadratic_5", "spread")) > 0.65
    assert set(found) == set(FURTHER) - set(OWN)


def test_participants_of_other_rows_are_refused():
    X, source = np.random.default_rng(9).normal(size=(40, 3)), np.arange(40) % 2
    with pytest.raises(ValueError, match="participants has 40 and 3 names; expected those of 40 HEAD rows"):
        run_readers(X, source, X, bank="full", restarts=0, participants=(source, source[:3]))


# --- networks --------------------------------------------------------------------------------------------

torch = pytest.importorskip("torch")


def rows_of(seed=0, n=400, d=8, gap=0.5):
    rng = np.random.default_rng(seed)
    source = np.arange(n) % 2
    return rng.normal(size=(n, d)) + gap * source[:, None] * np.eye(d)[0], source


@pytest.mark.parametrize("bank", ["paper", "full"])
def test_corrections_read_together_are_those_read_alone(bank, one_torch_thread):
    X, source = rows_of()
    corrections = [X, X - 0.5 * source[:, None] * np.eye(8)[0], 0.5 * X]
    how = {"bank": bank, "restarts": 2, "checkpoints": (2, 8), "device": "cpu"}
    together = run_readers_on_each(
        [C[:300] for C in corrections], source[:300], [C[300:] for C in corrections], **how
    )
    for C, found in zip(corrections, together, strict=True):
        alone = run_readers(C[:300], source[:300], C[300:], **how)
        assert list(found) == list(alone)
        for name, scores in alone.items():
            np.testing.assert_allclose(found[name], scores, atol=2e-3 * np.abs(scores).max(), err_msg=name)
    with pytest.raises(ValueError, match="expected corrections of the same rows"):
        run_readers_on_each([X[:300], X[:200]], source[:300], [X, X], **how)


def test_networks_are_trained_as_long_as_they_may_read_more(one_torch_thread, monkeypatch):
    head, source = rows_of(gap=8.0)
    device, people = torch.device("cpu"), np.arange(400) // 10
    assert worth_training(head, source, people, (20, 30, 40), 98, device) == (20,)  # perfect at once
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1600, 2))
    parity = (X > 0).sum(axis=1) % 2  # read by networks alone, and slowly
    monkeypatch.setattr(stopping, "further_scores", lambda *rows, **how: {})
    assert worth_training(X, parity, None, (2, 30), 98, device) == (2, 30)
    # Where readers that take longer are far ahead, the network stops at once.
    ahead = {
        "slow": lambda held: {"trees": ((held > 0).sum(axis=1) % 2).astype(float)},
        "quick": lambda held: {},
    }
    monkeypatch.setattr(stopping, "further_scores", lambda *rows, kinds: ahead[kinds[0]](rows[2]))
    assert worth_training(X, parity, None, (1, 30), 98, device) == (1,)
    # Too few rows of a source to decide anything.
    assert worth_training(X[:60], parity[:60], None, (2, 30), 98, device) == (2, 30)


def test_checkpoints_that_were_not_reached_have_the_last_scores(one_torch_thread):
    X, source = rows_of(gap=8.0)
    how = {"restarts": 1, "checkpoints": (20, 30, 40), "device": "cpu"}
    full = run_readers(X[:300], source[:300], X[300:], bank="full", **how)
    paper = run_readers(X[:300], source[:300], X[300:], **how)
    assert [name for name in full if name not in FURTHER] == list(paper)
    np.testing.assert_array_equal(full["gelu r0 e20"], paper["gelu r0 e20"])
    np.testing.assert_array_equal(full["gelu r0 e40"], full["gelu r0 e20"])
    assert not np.array_equal(paper["gelu r0 e40"], paper["gelu r0 e20"])


def test_importing_audits_loads_neither_torch_nor_scipy_stats():
    code = (
        "import sys, mgpa.audit; print([m for m in ('torch', 'scipy.stats', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_networks_of_folds_of_other_sizes_train_as_one_program(one_torch_thread):
    from mgpa.audit.readers.networks import train_sets

    rng, sizes = np.random.default_rng(3), (700, 530, 700, 900)  # 2 to 4 batches, none of them whole
    sets = [rng.normal(size=(n, 6)).astype(np.float32) for n in sizes]
    codes = [rng.integers(0, 2, n) for n in sizes]
    codes[3] = rng.integers(0, 3, sizes[3])  # of three sources
    epochs, place = [(2, 5), (2,), (5,), (2, 5)], torch.device("cpu")
    together = train_sets("gelu", sets, codes, [1, 2], epochs, device=place)
    for X, code, ends, networks in zip(sets, codes, epochs, together, strict=True):
        assert tuple(networks) == ends
        alone = train_sets("gelu", [X], [code], [1, 2], [ends], device=place)[0]
        for epoch in ends:
            np.testing.assert_allclose(networks[epoch](X), alone[epoch](X), atol=1e-5)
