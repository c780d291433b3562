"""The bounded step solves its problem: against an independent solver and by its optimality conditions."""

import numpy as np
import pytest

from mgpa.trust_region import smooth_weights, step_coefficients

ROUNDINGS = 20
SIZES = [(J, r) for J in range(1, 6) for r in range(1, 9)]


def reference(A, e, damping, radius):
    """Return Δz and ν from the singular values of Aᵀ and bisection over log(τ + ν)."""
    U, sigma, Vt = np.linalg.svd(np.swapaxes(A, 1, 2), full_matrices=False)
    pull = sigma * np.einsum("nkj,nj->nk", Vt, e)  # Aᵀe in the basis U

    def length(log_shift, row):
        return np.linalg.norm(pull[row] / (sigma[row] ** 2 + np.exp(log_shift)[..., None]), axis=-1)

    log_shift = np.full(len(A), np.log(damping))
    active = np.flatnonzero(length(log_shift, np.arange(len(A))) > radius)
    if len(active):
        # ‖Δz(ν)‖ ≤ ‖Aᵀe‖ / (τ + ν) brackets the root from the right.
        right = np.log(damping + np.linalg.norm(pull[active], axis=1) / radius) + 1e-6
        left = log_shift[active]
        for _ in range(120):
            middle = (left + right) / 2
            too_long = length(middle, active) > radius
            left, right = np.where(too_long, middle, left), np.where(too_long, right, middle)
        assert np.abs(np.log(length(right, active) / radius)).max() < 1e-12
        log_shift[active] = right
    shift = np.exp(log_shift)
    nu = np.zeros(len(A))
    nu[active] = shift[active] - damping
    return -np.einsum("nrk,nk->nr", U, pull / (sigma**2 + shift[:, None])), nu


def bounded_step(A, e, **settings):
    """Return Δz = -Aᵀ y."""
    return -np.einsum("nj,njr->nr", step_coefficients(A @ np.swapaxes(A, 1, 2), e, **settings), A)


def generic(rng, n, J, r):
    return rng.normal(size=(n, J, r)), rng.normal(size=(n, J))


def weighted(rng, n, J, r):
    """As the fit makes them: critics of very different scale, weighted by eq. (13)."""
    A = rng.normal(size=(n, J, r)) * 10 ** rng.uniform(-3, 3, size=(n, J, 1))
    e = rng.normal(size=(n, J)) * 10 ** rng.uniform(-1, 1, size=(n, J))
    W = smooth_weights((A**2).sum(-1), 0.1)
    return A * W[:, :, None], e * W


def some_zero_gradients(rng, n, J, r):
    A, e = generic(rng, n, J, r)
    return A * (rng.random((n, J, 1)) < 0.5), e


def parallel_gradients(rng, n, J, r):
    return rng.normal(size=(n, J, 1)) * rng.normal(size=(n, 1, r)), rng.normal(size=(n, J))


def identical_critics(rng, n, J, r):
    A, e = rng.normal(size=(n, 1, r)), rng.normal(size=(n, 1))
    return np.repeat(A, J, axis=1), np.repeat(e, J, axis=1)


def nearly_parallel_gradients(rng, n, J, r):
    A, e = parallel_gradients(rng, n, J, r)
    return A + 1e-7 * rng.normal(size=A.shape), e


def axis_gradients(rng, n, J, r):
    """Equal or repeated eigenvalues: gradients along coordinate axes with few distinct lengths."""
    A = np.eye(r)[rng.integers(r, size=(n, J))] * rng.integers(0, 3, size=(n, J, 1))
    return A.astype(float), rng.integers(-2, 3, size=(n, J)).astype(float)


KINDS = [
    generic, weighted, some_zero_gradients, parallel_gradients,
    identical_critics, nearly_parallel_gradients, axis_gradients,
]  # fmt: skip


def assert_same_step(step, expected, A, e, shift):
    """Compare to 1e-9, and to what rounding AAᵀ and e may change: a few ε ‖A‖‖e‖ (1 + ‖A‖²/shift) / shift."""
    size = np.linalg.norm(A, axis=(1, 2))
    rounding = 1e-15 * size * np.linalg.norm(e, axis=1) / shift * (1 + size**2 / shift)
    error = np.linalg.norm(step - expected, axis=1)
    assert (error <= 1e-9 * np.linalg.norm(expected, axis=1) + ROUNDINGS * rounding).all(), A.shape


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("radius", [0.01, 0.6, 1e3])
def test_steps_equal_an_independent_solver(kind, radius):
    rng, interior, boundary = np.random.default_rng(0), 0, 0
    for J, r in SIZES:
        A, e = kind(rng, 40, J, r)
        expected, nu = reference(A, e, 1e-3, radius)
        step = bounded_step(A, e, damping=1e-3, radius=radius)
        assert_same_step(step, expected, A, e, 1e-3 + nu)
        interior, boundary = interior + (nu == 0).sum(), boundary + (nu > 0).sum()
    if radius == 0.6:
        assert min(interior, boundary) > 100  # both kinds of solution were tried


@pytest.mark.parametrize("J", [1, 2, 3])
def test_nothing_to_do_is_no_step(J):
    ones = np.ones((3, J, 2)), np.ones((3, J))
    for A, e in [(ones[0], 0 * ones[1]), (0 * ones[0], ones[1])]:
        assert not bounded_step(A, e, damping=1e-3, radius=0.6).any()


@pytest.mark.parametrize("kind", KINDS)
def test_torch_tensors_give_the_same_steps(kind):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    for J, r in SIZES:
        A, e = kind(rng, 20, J, r)
        for radius in (0.05, 0.6, 1e3):
            expected, _ = reference(A, e, 1e-3, radius)
            gram = A @ np.swapaxes(A, 1, 2)
            y = step_coefficients(torch.tensor(gram), torch.tensor(e), damping=1e-3, radius=radius).numpy()
            step = -np.einsum("nj,njr->nr", y, A)
            np.testing.assert_allclose(step, expected, rtol=0, atol=1e-9 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("J", [1, 2, 4])
def test_steps_equal_the_authors(authors, J):
    A, e, z = (authors.arrays[f"tr_J{J}_{name}"] for name in "Aez")
    settings = {name: float(authors.arrays[f"tr_{name}"]) for name in ("damping", "radius")}
    np.testing.assert_allclose(bounded_step(A, e, **settings), z, rtol=0, atol=1e-10)
    np.testing.assert_allclose(reference(A, e, **settings)[0], z, rtol=0, atol=1e-10)


def test_critics_of_any_scale_get_about_unit_rows():
    squared = np.array([[1e-12, 1.0, 1e8]])  # of gradients that are next to nothing, ordinary and steep
    lengths = smooth_weights(squared, 0.1) * np.sqrt(squared)
    np.testing.assert_allclose(lengths, np.sqrt(squared / (squared + 0.01)), rtol=1e-12)
    np.testing.assert_allclose(lengths[0], [1e-5, 0.995, 1.0], rtol=1e-3)
