"""Estimate the population of devices and participants in a fit from windows of rows."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from .._common.checks import is_tensor
from ..labels import coded, to_numpy
from ..linalg import PIECE, blocks
from ..maps.check import FittedRange
from ..maps.densities import anywhere, log_density_of
from ..maps.frames import WINDOW, spread_of_rows
from ..maps.population import RATE, Population, alike, far_out_weights, log_spread, shape_of
from ..statistics import LabelledRows, sample_rows

Floats = NDArray[np.float64]

SHORTEST = 10
TOGETHER = 500  # windows copied from a GPU at once
EACH, NUMBERS, MOST = 6, 2**21, 400  # limits: windows per participant and source; all numbers; all windows
AXES = 64
BALL = 0.02  # share of the covariance that is spread equally over all directions
VARIANCE = 0.9  # share of the variance along the larger axes
FOLDS, MOST_FOLDS = 5, 24  # number of folds of participants, and its maximum
SHARES = (
    0.0,
    0.1,
    0.3,
    0.5,
    0.7,
    0.9,
)  # candidate shares of the estimated covariance of participants' means; the rest is isotropic
DEGREES = (5.0, 10.0, 20.0, 40.0, 80.0, 1000.0)
FEWEST_UNITS = 4
ODDS = 0.01  # added to shares before computing odds
MOST_SHARE = 0.95  # maximum limit for the share of rows out of range
OTHER_FRAMES = 8  # number of other devices' frames in which a window is compared
DISTINCT = 2.0  # devices need this ratio of covariance differences to those of participants for frames
MOST_SHARED = 0.9  # maximum weight of the pooled covariance in a device's covariance
LEAST = 0.1  # minimum standard deviation of log variance


@dataclass(frozen=True)
class Window:
    """Consecutive rows of one source and participant; windows with small ``key`` are kept."""

    rows: NDArray[np.float32]
    source: Any
    participant: Any
    key: int


def sample_windows(rows: LabelledRows) -> tuple[Window, ...]:
    """Return a limited number of windows of rows for each source and participant."""
    cell = rows.codes
    if rows.participant is not None:
        whose = coded(rows.participant)[1]
        cell = cell * (int(whose.max(initial=0)) + 1) + whose
    small = cell.max(initial=0) < 2**16  # numpy sorts 16-bit integers in one pass
    order = np.argsort(cell.astype(np.uint16) if small else cell, kind="stable")
    has_participants = rows.participant is not None
    ends = np.append(np.flatnonzero(np.diff(cell[order], prepend=-1)), len(order)).tolist()
    chosen = [
        order[first + start : first + stop]
        for first, last in itertools.pairwise(ends)
        for start, stop in _windows_of(last - first, has_participants)
        if stop - start > 1
    ]
    keys = [zlib.crc32(part.data) for part in _rows_of(rows.X, chosen)]
    kept_windows = _keep(
        keys, [cell[window[0]] if has_participants else None for window in chosen], rows.X.shape[1]
    )
    windows = []
    for i, part in zip(kept_windows, _rows_of(rows.X, [chosen[i] for i in kept_windows]), strict=True):
        at = chosen[i][0]
        who = None if rows.participant is None else rows.participant[at].item()
        windows.append(Window(part.copy(), rows.source[at].item(), who, keys[i]))
    return tuple(windows)


def _windows_of(n: int, known: bool) -> list[tuple[int, int]]:
    """Return start and end of windows in n rows of one source and (if ``known``) one participant."""
    n_parts, most = -(-n // WINDOW), EACH if known else MOST
    if not known:  # windows replace participants, so several are needed
        n_parts = max(n_parts, min(FEWEST_UNITS, n // SHORTEST))
    if n_parts < 2:
        return [(0, min(n, WINDOW))]
    several = np.unique(np.linspace(0, n_parts - 1, min(most, n_parts)).astype(int)).tolist()
    starts = [i * n // n_parts for i in several]
    stops = [(i + 1) * n // n_parts for i in several]
    return [(start, min(stop, start + WINDOW)) for start, stop in zip(starts, stops, strict=True)]


def _rows_of(X: Any, windows: list[NDArray[np.intp]]) -> Iterator[NDArray[np.float32]]:
    """Yield the rows of each window; rows of tensors are copied in larger groups, as each copy waits."""
    together = TOGETHER if is_tensor(X) else max(1, PIECE // (WINDOW * X.shape[1]))
    for part in blocks(len(windows), together):
        several = np.asarray(to_numpy(X[np.concatenate(windows[part])]), dtype=np.float32)
        start = 0
        for window in windows[part]:
            yield several[start : start + len(window)]
            start += len(window)


def keep_windows(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """Return the windows to keep, independent of their order."""
    cells = [None if w.participant is None else (w.source, w.participant) for w in windows]
    width = windows[0].rows.shape[1] if windows else 1
    return tuple(windows[i] for i in _keep([w.key for w in windows], cells, width))


def _keep(keys: list[int], cells: list[Any], width: int) -> list[int]:
    """Return the positions of kept windows: the smallest keys, limited for each source and participant.

    ``cells`` has the source and participant of each window, or None for unknown participants.
    """
    counts: Counter[Any] = Counter()
    chosen, most = [], max(24, min(MOST, NUMBERS // (WINDOW * width)))
    for i in sorted(range(len(keys)), key=keys.__getitem__):
        counts[cells[i]] += 1
        if cells[i] is None or counts[cells[i]] <= EACH:
            chosen.append(i)
            if len(chosen) == most:
                break
    return chosen


def fit_population(windows: tuple[Window, ...], effects: Floats | None = None) -> Population | None:
    """Return the population of devices and participants estimated from windows; None if they are too few.

    ``effects`` are the levels of the devices relative to the first, (K - 1, d), from pairs or, without pairs,
    from rows.
    """
    if len(windows) < FEWEST_UNITS:
        return None
    sources = np.unique([w.source for w in windows]).tolist()
    effects = effects if effects is not None and len(effects) == len(sources) - 1 else None
    X = np.concatenate([w.rows for w in windows]).astype(np.float64)
    which = np.repeat(np.arange(len(windows)), [len(w.rows) for w in windows])
    code = np.array([sources.index(w.source) for w in windows])
    n_sources, n_rows = len(sources), len(X)
    means = np.stack([X[code[which] == s].mean(axis=0) for s in range(n_sources)])
    residual = X - means[code[which]]
    scale = np.sqrt(np.mean(residual**2, axis=0))
    varies = scale > 1e-9 * np.maximum(np.abs(means).max(axis=0), np.finfo(np.float64).tiny)
    if not varies.any() or n_rows - n_sources < 8:
        return None
    whiten, top = _whitening(residual, np.where(varies, scale, np.inf), n_sources)
    levels = means if effects is None else _levels(means, effects)
    center = means.mean(axis=0)
    W = residual @ whiten
    participants, has_participants = _units(windows)
    if participants.max() + 1 < FEWEST_UNITS:
        return None
    P, nu = _participant_means(W, code[which], participants[which], n_sources)
    gains = np.stack([log_spread(X[code[which] == s], W[code[which] == s]) for s in range(n_sources)])
    usual, limit = _usual(W, which, participants, top)
    spread, differ = _spreads(residual, windows)
    length = float(np.quantile(np.linalg.norm(W, axis=1), 0.95))
    return Population(
        center=center,
        whiten=whiten,
        levels=levels,
        people=P,
        spread=spread,
        varies=np.where(varies, differ, 0.0),
        usual=usual,
        limits=_limits(X, which, participants, odds=has_participants),
        numbers=np.array(
            [nu, length, top, participants.max() + 1.0, limit, 0.0 if has_participants else WINDOW]
        ),
        gains=gains,
        **_frames(W, which, code, participants, top),
    )


def _units(windows: tuple[Window, ...]) -> tuple[NDArray[np.int64], bool]:
    """Return participant codes of windows (or window numbers, if unknown), and whether they are known."""
    has_participants = all(w.participant is not None for w in windows)
    names = [str(w.participant) if has_participants else str(i) for i, w in enumerate(windows)]
    return np.unique(names, return_inverse=True)[1], has_participants


def _whitening(residual: Floats, scale: Floats, n_sources: int) -> tuple[Floats, int]:
    """Return the matrix that whitens rows within sources, (d, k), and the number of its larger axes.

    ``scale`` is infinite for constant features.
    """
    n_rows, n_varying = len(residual), int(np.isfinite(scale).sum())
    _, sizes, turn = np.linalg.svd(residual / scale, full_matrices=False)
    variance = sizes**2 / (n_rows - n_sources)
    share = np.cumsum(variance) / variance.sum()
    k = min(n_varying, AXES, max(4, n_rows // 8), len(variance))
    variance = (1.0 - BALL) * variance[:k] + BALL * variance.sum() / n_varying
    whiten = (turn[:k].T / scale[:, None]) / np.sqrt(variance)
    return whiten, int(np.clip(np.searchsorted(share, VARIANCE) + 1, 1, k))


def _levels(means: Floats, effects: Floats) -> Floats:
    """Return the levels of the sources: effects from pairs, relative to the first, around the rows' mean."""
    levels = means.mean(axis=0) + np.vstack([0 * effects[:1], effects])
    return np.asarray(levels - effects.sum(axis=0) / len(means))


def _spreads(residual: Floats, windows: tuple[Window, ...]) -> tuple[Floats, Floats]:
    """Return the log spread of each feature within sources, and its standard deviation over windows.

    The latter is 0 for features that are constant in some windows, which are then not checked in new rows.
    """
    tiny = np.finfo(np.float64).tiny
    spread = 0.5 * np.log(np.maximum(np.mean(residual**2, axis=0), tiny))
    apart = np.stack([_log_spread(w.rows) for w in windows]) - spread
    differ = np.sqrt(np.mean(np.square(np.clip(apart, -3.0, 3.0)), axis=0))
    often_constant = np.quantile(apart, 0.05, axis=0) < np.log(0.1)
    return spread, np.where(often_constant, 0.0, np.maximum(differ, 0.05))


def _log_spread(rows: Any) -> Floats:
    variance = rows.astype(np.float64).var(axis=0, ddof=1)
    return np.asarray(0.5 * np.log(np.maximum(variance, np.finfo(np.float64).tiny)))


def _participant_means(
    W: Floats, code: NDArray[np.int64], participants: NDArray[np.int64], n_sources: int
) -> tuple[Floats, float]:
    """Return the covariance of participants' means around source means, and its degrees of freedom.

    For each mean, the participant is left out of the whitening and of the source mean. The shrinkage of the
    covariance toward a multiple of I, and its degrees of freedom, maximise the likelihood of the means of
    left-out participants.
    """
    k, n_rows, n_participants = W.shape[1], len(W), int(participants.max()) + 1
    cell = code * n_participants + participants
    cells, inverse, counts = np.unique(cell, return_inverse=True, return_counts=True)
    means = np.zeros((len(cells), k))
    np.add.at(means, inverse, W)
    means /= counts[:, None]
    source, whose = cells // n_participants, cells % n_participants
    in_source = np.bincount(code, minlength=n_sources)
    apart = np.zeros_like(means)
    noise = np.zeros(len(cells))
    for participant in range(n_participants):
        mine = np.flatnonzero(whose == participant)
        parted = means[mine] * np.sqrt(counts[mine] / n_rows)[:, None]
        _, sizes, axes = np.linalg.svd(parted, full_matrices=False)
        grown = 1.0 / np.sqrt(1.0 - np.minimum(sizes, 0.95) ** 2) - 1.0
        for i in mine:
            x = means[i] / max(0.1, 1.0 - counts[i] / in_source[source[i]])
            apart[i] = x + ((x @ axes.T) * grown) @ axes
            noise[i] = alike(W[inverse == i]) / counts[i]
    weight = 1.0 / np.bincount(whose)[whose]
    parts = np.zeros((n_participants, k, k))
    np.add.at(parts, whose, weight[:, None, None] * apart[:, :, None] * apart[:, None, :])
    whole = parts.sum(axis=0)

    def shrunk(total: Floats, n: int, toward: float) -> Floats:
        cov = total / max(1, n)
        cov = cov - float(np.mean(noise)) * np.eye(k)  # subtract the sampling noise of means
        values, vectors = np.linalg.eigh(cov)
        least = 0.05 * np.trace(total) / max(1, n) / k
        cov = (vectors * np.maximum(values, least)) @ vectors.T
        return np.asarray(toward * cov + (1.0 - toward) * np.trace(cov) / k * np.eye(k))

    likely: dict[tuple[float, float], float] = dict.fromkeys(itertools.product(SHARES, DEGREES), 0.0)
    for share in SHARES:
        for fold in range(min(MOST_FOLDS, n_participants)):
            left_out = parts[fold::MOST_FOLDS]
            others = shrunk(whole - left_out.sum(axis=0), n_participants - len(left_out), share)
            values, vectors = np.linalg.eigh(others)
            out = whose % MOST_FOLDS == fold
            squares = np.square(apart[out] @ vectors)
            for nu in DEGREES:
                scatter = values * (nu - 2.0) / nu + noise[out, None]
                density = log_density_of((squares / scatter).sum(axis=1), k, nu)
                likely[share, nu] += float(weight[out] @ (density - 0.5 * np.log(scatter).sum(axis=1)))
    share, nu = max(likely, key=lambda choice: likely[choice])
    return shrunk(whole, n_participants, share), nu


def _limits(X: Floats, which: NDArray[np.int64], participants: NDArray[np.int64], *, odds: bool) -> Floats:
    """Return limits for shares of rows out of range, from windows of left-out participants.

    With ``odds``, variation between participants is modelled on the log-odds of shares.
    """
    n_participants = int(participants.max()) + 1
    folds = np.arange(n_participants) % min(FOLDS, n_participants)
    shares = np.zeros((len(participants), 3))
    for fold in range(folds.max() + 1):
        out = folds[participants] == fold
        fitted = FittedRange.from_rows(sample_rows(X[~out[which]]))
        for window in np.flatnonzero(out):
            odd, outside, far = fitted.shares(X[which == window])
            shares[window] = outside.mean(), far, odd.max()
    values = np.log((shares + ODDS) / (1.0 - shares + ODDS)) if odds else shares
    center, deviation = _over_participants(values, participants)
    limits = center + _beyond(n_participants, 3) * deviation
    if odds:
        limits = (np.exp(limits) * (1.0 + ODDS) - ODDS) / (1.0 + np.exp(limits))
    return np.asarray(np.clip(limits, 0.0, MOST_SHARE))


def _over_participants(values: Floats, participants: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of window values, with equal weights for participants."""
    weight = 1.0 / np.bincount(participants)[participants]
    n_participants = weight.sum()
    center = weight @ values / n_participants
    return center, np.sqrt(weight @ (values - center) ** 2 / max(1.0, n_participants - 1.0))


def _beyond(n: int, tests: int) -> float:
    """Return the number of standard deviations that one in a thousand new values exceeds in any test."""
    return float(scipy.stats.t.ppf(1.0 - RATE / tests, n - 1) * np.sqrt(1.0 + 1.0 / n))


def _usual(
    W: Floats, which: NDArray[np.int64], participants: NDArray[np.int64], top: int
) -> tuple[Floats, float]:
    """Return mean and standard deviation of :func:`shape_of` over windows of left-out participants.

    The third result is the number of standard deviations that one in a thousand windows of new participants
    exceeds in any of the three measures.
    """
    n_participants = int(participants.max()) + 1
    folds = np.arange(n_participants) % min(FOLDS, n_participants)
    shapes = np.zeros((len(participants), 3))
    k, total = W.shape[1], W.T @ W
    for fold in range(folds.max() + 1):
        out = folds[participants[which]] == fold
        rest = (total - W[out].T @ W[out]) / max(1, len(W) - out.sum())
        rest = (1.0 - BALL) * rest + BALL * np.eye(k)
        turned = W.copy()
        for part in (slice(0, top), slice(top, k)):
            if part.start < k:
                lower = np.linalg.cholesky(rest[part, part])
                turned[:, part] = np.linalg.solve(lower, W[:, part].T).T
        for window in np.flatnonzero(folds[participants] == fold):
            shapes[window] = shape_of(turned[which == window], top)
    center, deviation = _over_participants(shapes, participants)
    return np.stack([center, np.maximum(deviation, LEAST)]), _beyond(n_participants, 6)


def _frames(
    W: Floats, which: NDArray[np.int64], code: NDArray[np.int64], participants: NDArray[np.int64], top: int
) -> dict[str, Floats]:
    """Return the frames of devices, the spread of rows in these frames, and the covariances of the spread.

    See :mod:`mgpa.maps.frames`. Windows are compared in frames fitted without their participants. No frames
    are returned if devices hardly differ more than participants do.
    """
    n_sources = int(code.max()) + 1
    windows = np.split(W, np.flatnonzero(np.diff(which)) + 1)
    apart = np.concatenate([(w - np.median(w, axis=0)) * far_out_weights(w)[:, None] for w in windows])
    folds = (participants % min(FOLDS, int(participants.max()) + 1))[which]
    own, others = np.zeros((len(windows), 2 if top < W.shape[1] else 1)), []
    for fold in range(folds.max() + 1):
        frames = _fit_frames(apart[folds != fold], code[which[folds != fold]], n_sources)
        for i in np.unique(which[folds == fold]):
            own[i] = spread_of_rows(windows[i] @ frames[code[i]], top)
            some = np.setdiff1d((i + np.arange(OTHER_FRAMES)) % n_sources, code[i])
            others += [(s, spread_of_rows(windows[i] @ frames[s], top)) for s in some]
    usual = np.stack([own[code == s].mean(axis=0) for s in range(n_sources)])
    more = np.array([spread - usual[s] for s, spread in others]).reshape(-1, own.shape[1])
    weight = 1.0 / np.bincount(participants)[participants]
    differ = own - usual[code]
    by_participant = (weight[:, None] * differ).T @ differ / max(1, int(participants.max()))
    by_device = more.T @ more / max(1, len(more))
    if np.trace(by_device) < DISTINCT * np.trace(by_participant):
        return {}
    frames = _fit_frames(apart, code[which], n_sources)
    for s, frame in enumerate(frames):  # rows of several participants also vary by participant differences
        alone = np.mean([spread_of_rows(windows[i] @ frame, top) for i in np.flatnonzero(code == s)], axis=0)
        usual[s] += np.maximum(0.0, spread_of_rows(W[code[which] == s] @ frame, top) - alone)
    return {
        "frames": frames,
        "in_frame": usual,
        "frame_scatter": np.stack([by_participant, anywhere(by_device)]),
    }


def _fit_frames(apart: Floats, code: NDArray[np.int64], n_sources: int) -> Floats:
    """Return the inverse square root of each device's covariance, shrunk toward the pooled covariance."""
    k = apart.shape[1]
    whole = apart.T @ apart / len(apart)
    frames = []
    for s in range(n_sources):
        rows = apart[code == s]
        share = min(MOST_SHARED, 2.0 * k / max(1, len(rows)))
        cov = (1.0 - share) * rows.T @ rows / max(1, len(rows)) + share * whole
        values, axes = np.linalg.eigh((1.0 - BALL) * cov + BALL * np.trace(cov) / k * np.eye(k))
        frames.append((axes / np.sqrt(values)) @ axes.T)
    return np.stack(frames)
