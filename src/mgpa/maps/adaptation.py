"""Add a device that was not in the fit, from its unlabelled rows or from pairs with a fitted device.

The new device becomes an additional source of a :class:`~mgpa.maps.PosteriorMap`. From rows alone, its rows
are mapped to the level of corrected rows of the fitted devices. From pairs, they are mapped to a fitted
device and then corrected like its rows:

    from rows alone:        E(h) = c + r (h - m) - h
    from pairs with t:      E(h) = g(h) - h + E_t(g(h)),            g(h) = h + δ_t + a ridge regression

Here c is the mean (level) of corrected rows of the fitted devices, m the level of the new device, and r the
ratio of the features' standard deviations. m and r are shrunk toward the population of devices, because
participants and content explain part of the difference of a batch. If the map has an edit for unseen devices
(``unseen_edit``), rows of the new device are moved by the mean of two edits: the one above, and
``unseen_edit`` applied after alignment with uncorrected rows of the fitted devices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.checks import as_float_matrix, require_finite
from ..errors import MapError
from .densities import log_odds
from .population import FEWEST_FOR_FAULTS, FEWEST_ROWS, TINY, Population, alike, log_spread

if TYPE_CHECKING:
    from .affine import PosteriorMap
    from .base import CorrectionMap

Floats = NDArray[np.float64]

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # ridge penalties in whitened coordinates
FEWEST_PAIRS, FEWEST_TO_REGRESS = 2, 5
SHARPNESS = (0.25, 0.5, 1.0, 2.0, 4.0)  # factors of the score that separates the new device from a known one
MOST_GAINS = 1024  # gains are corrected up to this number of features, because they need a matrix per source
# Variance of a whitened mean from differences in the content of batches: 80 % of one of two classes moves the
# mean by .3 to .6 along an axis.
MIX = 0.1
MOST_GAIN = 1.5  # logarithm of the largest factor for a feature
MOST_KNOWN, SURE = 0.99, 2.0  # share of the new rows to recognise as known, and the margin in log-odds
FULL = 0.7  # from this rank on (as a share of the features), edits are stored for each feature


def adapt(m: CorrectionMap, X: Any, name: str, n_participants: int) -> PosteriorMap:
    """Return the map with one more device, fitted on its rows; see :meth:`mgpa.maps.CorrectionMap.adapt`."""
    base, population = m.as_posterior(), require_population(m)
    _require_new(name, m)
    rows = as_float_matrix(X, n_features=m.n_features).astype(np.float64)
    require_finite(rows, "X")
    if len(rows) < FEWEST_ROWS:
        raise ValueError(f"X has {len(rows)} rows; adapt needs at least {FEWEST_ROWS} of the new device.")
    W = population.read(rows)
    _, weight = population.weights(W)
    level = weight @ rows / weight.sum()
    unit = population.numbers[5]
    n_units = max(n_participants, len(rows) / unit if unit else 1.0)
    noise = (0.0 if unit else population.people / n_units) + np.eye(W.shape[1]) * alike(W) / len(W)
    read_at = population.toward_known(level, noise)
    level = population.toward_known(level, noise + MIX * np.eye(W.shape[1]))
    goal, ratio = _goal(base, population, rows, n_units)
    edit, offset = _aligned(base, level, goal, ratio)
    if base.unseen_edit is not None and base.unseen_edit.any():
        any_device = _regressed(base, population, level, rows, n_units)
        edit, offset = (edit + any_device[0]) / 2.0, (offset + any_device[1]) / 2.0
    words = f"{name} added from {len(rows)} rows without labels, assuming the same content as in the fit"
    return _with_device(base, population, name, rows, read_at, edit, offset, words)


def _aligned(base: PosteriorMap, level: Floats, goal: Floats, ratio: Floats) -> tuple[Floats, Floats]:
    """Return the edit that maps rows from one level to another and scales their deviations by ``ratio``."""
    apart = goal - base.center - ratio * (level - base.center)
    return np.diag(ratio - 1.0), apart / base.scale * base.varies


def _regressed(
    base: PosteriorMap, population: Population, level: Floats, rows: Floats, n_units: float
) -> tuple[Floats, Floats]:
    """Return the edit that aligns rows with those of the fitted devices, then applies ``unseen_edit``."""
    ratio = np.ones(base.n_features)
    if population.gains.size and base.n_features <= MOST_GAINS:
        ratio = _ratio(base, population, population.gains.mean(axis=0) - population.gain(rows, n_units))
    edit, offset = _aligned(base, level, population.levels.mean(axis=0), ratio)
    slope, add = base.unseen_edit, base.unseen_offset
    assert slope is not None
    assert add is not None  # arrays of a group are present together
    if base.direction is not None:
        slope, add = slope @ base.direction, add @ base.direction
    return edit + ratio[:, None] * slope, offset + offset @ slope + add


def _ratio(base: PosteriorMap, population: Population, apart: Floats) -> Floats:
    """Return the factors of features, from differences between log standard deviations."""
    some = base.varies & (population.varies > 0)
    return np.where(some, np.exp(np.clip(apart, -MOST_GAIN, MOST_GAIN)), 1.0)


def _goal(base: PosteriorMap, population: Population, rows: Floats, n_units: float) -> tuple[Floats, Floats]:
    """Return the mean of corrected rows of the fitted devices, and the factors that match their spread."""
    edits, offsets = _multiplied(base)
    levels = (population.levels - base.center) / base.scale
    moved = levels + offsets + np.einsum("ki,kij->kj", levels, edits)
    goal, ratio = moved.mean(axis=0) * base.scale + base.center, np.ones(base.n_features)
    if not population.gains.size or base.n_features > MOST_GAINS:
        return goal, ratio
    root = population.back / base.scale  # the rows' covariance is rootᵀ root plus a diagonal rest
    variance = np.exp(2.0 * population.spread) / base.scale**2
    rest = np.maximum(variance - np.sum(root**2, axis=0), 0.0)
    after = np.zeros_like(population.gains)
    for s, gain in enumerate(population.gains):
        size = np.exp(gain - population.spread)
        turn = size[:, None] * (np.eye(len(rest)) + edits[s])
        becomes = np.sum((root @ turn) ** 2, axis=0) + rest @ turn**2
        after[s] = population.spread + 0.5 * np.log(np.maximum(becomes / variance, TINY))
    return goal, _ratio(base, population, after.mean(axis=0) - population.gain(rows, n_units))


def add_source(m: CorrectionMap, name: str, pairs: Any, known: str) -> PosteriorMap:
    """Return the map with one more device, from pairs: see :meth:`mgpa.maps.CorrectionMap.add_source`."""
    base, population = m.as_posterior(), require_population(m)
    _require_new(name, m)
    if known not in m.info.source_names:
        raise ValueError(f"known is {known!r}; the map was fitted on {', '.join(m.info.source_names)}.")
    A, B = (as_float_matrix(side, n_features=m.n_features).astype(np.float64) for side in pairs)
    if A.shape != B.shape or len(A) < FEWEST_PAIRS:
        raise ValueError(
            f"pairs are {len(A)} rows of {known!r} and {len(B)} of {name!r}; expected the same events on "
            f"both devices, at least {FEWEST_PAIRS}."
        )
    require_finite(A, f"the rows of {known}")
    require_finite(B, f"the rows of {name}")
    t, k, n = m.info.source_names.index(known), population.whiten.shape[1], len(A)
    contrasts = (B - A) @ population.whiten
    noise = np.trace(np.atleast_2d(np.cov(contrasts.T))) / k / n * np.eye(k)
    level = population.toward_known(population.levels[t] + (B - A).mean(axis=0), noise)
    step = (population.levels[t] - level) / m.scale * m.varies
    inside = (B - level) @ population.whiten
    slope, shift = _ridge(inside, ((A - B) / m.scale - step) * m.varies)
    # g(h) = h + step + shift + w slope, w = (h scale + center - level) whiten
    turn = m.scale[:, None] * (population.whiten @ slope)
    add = step + shift + (m.center - level) @ population.whiten @ slope
    edits, offsets = _multiplied(base)
    edit = turn + edits[t] + turn @ edits[t]
    offset = add + offsets[t] + add @ edits[t]
    words = f"{name} added from {n} pairs with {known}"
    return _with_device(base, population, name, B, level, edit, offset, words)


def require_population(m: CorrectionMap) -> Population:
    """Return the map's population of devices; raise if the map has none."""
    if m.population is None:
        raise MapError(
            "This map has no population of devices: it was fitted on fewer than four participants (or too "
            "few rows, if participants were not given), or by an older version. Fit it again."
        )
    return m.population


def _require_new(name: str, m: CorrectionMap) -> None:
    if name in m.info.source_names:
        raise ValueError(f"{name!r} is a device of the fit; give the new one another name.")


def _scores_with(
    base: PosteriorMap, population: Population, level: Floats, rows: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the scores of a map with an additional source at this level: square weights, linear part, bias.

    The density of the new source is that of a known device, shifted. The known device and the sharpness are
    chosen to best separate the means of known devices from rows of the new device. If no choice separates
    them, all sources are recognised by their means only.
    """
    new = population.read(level[None])[0]
    known = (population.levels - base.center) / base.scale
    rows = (rows - base.center) / base.scale
    points = np.concatenate([known, rows])
    truth = np.append(np.arange(len(known)), np.full(len(rows), len(known)))
    squares = np.square(points @ base.square.T)

    def margin(weight: Floats, linear: Floats, bias: Floats) -> float:
        scores = squares @ weight + points @ linear.T + bias
        right = scores[np.arange(len(points)), truth].copy()
        scores[np.arange(len(points)), truth] = -np.inf
        apart = right - scores.max(axis=1)
        return float(min(apart[: len(known)].min(), np.quantile(apart[len(known) :], 0.1)))

    best: tuple[float, tuple[Floats, Floats, Floats]] | None = None
    for like, mean in enumerate(population.means):
        linear, bias = population.scores(np.stack([mean, new]), base.center, base.scale)
        for sharp in SHARPNESS:
            scores = (
                np.concatenate([base.square_weight, base.square_weight[:, [like]]], axis=1),
                np.concatenate([base.linear, (base.linear[like] + sharp * linear[1])[None]]),
                np.append(base.bias, base.bias[like] + sharp * bias[1]),
            )
            if best is None or margin(*scores) > best[0]:
                best = margin(*scores), scores
    assert best is not None  # maps have at least one known device
    every = np.concatenate([population.means, new[None]])
    linear, bias = population.scores(every, base.center, base.scale)
    by_means = np.zeros((len(base.square), len(bias))), linear, bias
    return best[1] if best[0] > 0 or margin(*by_means) < best[0] else by_means


def _multiplied(m: PosteriorMap) -> tuple[Floats, Floats]:
    """Return the edits of all devices as matrices (K, d, d) and offsets (K, d)."""
    if m.direction is None:
        return m.edit.astype(np.float64), m.edit_offset.astype(np.float64)
    return m.edit @ m.direction, m.edit_offset @ m.direction


def _ridge(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return slope and intercept of the ridge regression of y on x that best predicts left-out pairs."""
    n = len(x)
    center, mean = x.mean(axis=0), y.mean(axis=0)
    x, y = x - center, y - mean
    best, slope = float(np.sum((y * n / (n - 1.0)) ** 2)), np.zeros((x.shape[1], y.shape[1]))
    if n >= FEWEST_TO_REGRESS:
        for penalty in PENALTIES:
            weights = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T)
            leverage = np.einsum("ij,ji->i", x, weights) + 1.0 / n
            left_out = float(
                np.sum(((y - x @ (weights @ y)) / (1.0 - np.minimum(leverage, 0.999))[:, None]) ** 2)
            )
            if left_out < best:
                best, slope = left_out, weights @ y
    return slope, mean - center @ slope


def _with_level(population: Population, level: Floats, rows: Floats) -> Population:
    """Return the population with one more device."""
    gains = population.gains
    if gains.size:
        spread = (
            log_spread(rows, population.read(rows)) if len(rows) >= FEWEST_FOR_FAULTS else gains.mean(axis=0)
        )
        gains = np.concatenate([gains, spread[None]])
    return replace(population, levels=np.concatenate([population.levels, level[None]]), gains=gains)


def _with_device(
    base: PosteriorMap,
    population: Population,
    name: str,
    rows: Floats,
    level: Floats,
    edit: Floats,
    offset: Floats,
    words: str,
) -> PosteriorMap:
    """Return the map with one more source at the given level, with edit (d, d) and offset (d,)."""
    square_weight, linear, bias = _scores_with(base, population, level, rows)
    d, direction = base.n_features, base.direction
    edits, offsets = base.edit, base.edit_offset
    if direction is not None:
        _, sizes, extra = np.linalg.svd(np.concatenate([edit, offset[None]]), full_matrices=False)
        extra = extra[sizes > sizes[0] * d * np.finfo(np.float64).eps]
        spanned = np.concatenate([direction, extra])
        if len(spanned) < FULL * d:
            empty, r = np.zeros((*edits.shape[:2], len(extra))), len(direction)
            edits = np.concatenate([edits, empty], axis=2)
            offsets = np.concatenate([offsets, empty[:, 0]], axis=1)
            edit, offset = (
                np.hstack([np.zeros((len(part), r)), part @ extra.T]) for part in (edit, offset[None])
            )
            direction, offset = spanned, offset[0]
        else:
            (edits, offsets), direction = _multiplied(base), None
    info = replace(
        base.info,
        source_names=(*base.info.source_names, name),
        evidence="; ".join(filter(None, [base.info.evidence, words])),
    )
    return replace(
        base,
        info=info,
        population=_with_level(population, level, rows),
        square_weight=square_weight,
        linear=linear,
        bias=bias,
        **_unseen_with(base, rows, direction),
        edit=np.concatenate([edits, edit[None]]),
        edit_offset=np.concatenate([offsets, offset[None]]),
        direction=direction,
    )


def _unseen_with(base: PosteriorMap, rows: Floats, direction: Floats | None) -> dict[str, Any]:
    """Return the updated arrays for recognising and editing rows of other unknown devices.

    The mean of the new device's rows is added to the known means, so that these rows do not look unknown.
    """
    if base.unseen_odds is None or base.unseen_whiten is None or base.unseen_means is None:
        return {}
    white = (rows - base.center) / base.scale @ base.unseen_whiten
    means = np.concatenate([base.unseen_means, white.mean(axis=0)[None]])
    most = float(np.quantile(log_odds(white, means), MOST_KNOWN)) + SURE
    unseen = {"unseen_means": means, "unseen_odds": np.maximum(base.unseen_odds, most)}
    edit, offset = base.unseen_edit, base.unseen_offset
    assert edit is not None
    assert offset is not None  # arrays of a group are present together
    if direction is None and base.direction is not None:
        edit, offset = edit @ base.direction, offset @ base.direction
    elif direction is not None:
        more = len(direction) - edit.shape[1]
        edit, offset = np.pad(edit, ((0, 0), (0, more))), np.pad(offset, (0, more))
    return {**unseen, "unseen_edit": edit, "unseen_offset": offset}
