"""Recognise and edit rows that no fitted device explains.

In coordinates w whitened within sources, rows of a known device are N(μ_s, I). Rows of an unseen device from
the same population are N(μ̄, I + B), where B is the covariance of the known μ_s, partly spread over all
directions. These densities give the probability p of an unseen device, and the row moves by

    (1 - p) Σ_s p_s(h) E_s(h) + p E(h).

E maps rows of any device to the target. It is a ridge regression of corrected views on uncorrected views of
the same events by other devices. Each device is left out in turn to choose the penalty, and to decide whether
rows of an unseen device are moved by E, not at all, or like rows of known devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse.csgraph
import scipy.special
from numpy.typing import NDArray

from ..evidence import row_norms
from ..maps import PosteriorMap
from ..maps.densities import log_odds
from .views import BALL, Codes, Floats, Views, centre, first_of_each

FEWEST_SOURCES = 3  # two devices show nothing about a third
MOST_LEFT_OUT = 8  # maximum number of left-out sources (or groups of sources)
AXES, READ_AXES = 64, 128  # number of axes for comparing rows with devices, and as input of the regression
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # in units of the variance of a feature
# Share of held-out rows of known devices that may look unseen, and minimum odds for an unseen device.
FALSE_SHARE, FEWEST_ODDS = 0.01, 100.0
FOLDS = 5
AS_KNOWN, UNMOVED, REGRESSED = "moved as those of known devices", "left as they are", "moved by a regression"


@dataclass(frozen=True)
class Samples:
    """Views, each with the corrected view of the same event by another device."""

    read: Floats  # (2 m, j): uncorrected views along the input axes of the regression
    before: Floats  # (2 m, r): uncorrected views in the coordinates of the map's edits
    goal: Floats  # (2 m, r): corrected other view in the same coordinates
    source: Codes  # (2 m,): source of the view
    other: Codes  # (2 m,): the source of the other view
    unit: float  # variance that corresponds to a penalty of 1
    # The map's edits (K, k, r) and offsets (K, r), from the coordinates of views to those of edits.
    edits: Floats
    offsets: Floats


def with_unseen(m: PosteriorMap, views: Views, n_rows: float) -> tuple[PosteriorMap, str]:
    """Return the map with an edit for unseen devices, and the evidence in words.

    ``views`` are uncorrected; their variance was estimated from ``n_rows`` rows. The map is returned
    unchanged with fewer than three sources, or if rows of left-out devices are best corrected like those of
    other devices.
    """
    if views.n_sources < FEWEST_SOURCES:
        return m, ""
    # Orthonormal rows; if edits are stored for each feature, use the axes of the views.
    direction = views.axes.T if m.direction is None else m.direction
    samples = take_samples(m, views, direction)
    distance, penalty = leave_devices_out(m, views, samples)
    if min(distance.values()) >= distance[AS_KNOWN]:
        return m, ""
    best = min(distance, key=lambda name: distance[name])
    read = reading_axes(views)
    edit, offset = np.zeros((views.axes.shape[1], len(direction))), np.zeros(len(direction))
    if best == REGRESSED:
        edit[read], offset = regress(samples, np.ones(len(samples.read), dtype=bool), [penalty])[0]
        edit -= views.axes.T @ direction.T
    edit = views.axes @ edit
    whiten, means, odds = compare_devices(views, n_rows)
    if m.direction is None:
        edit, offset = edit @ direction, offset @ direction
    fading = replace(
        m,
        unseen_whiten=whiten,
        unseen_means=means,
        unseen_edit=edit,
        unseen_offset=offset,
        unseen_odds=np.array([odds]),
    )
    shares = ", ".join(f"{name} {value:.2f}" for name, value in distance.items())
    return fading, (
        f"rows that no device explains are {best}: with each device left out, distance to the other devices' "
        f"corrected views as a share of that between events: {shares}"
    )


def reading_axes(views: Views) -> NDArray[np.intp]:
    """Return the axes of largest variance, the input of the regression."""
    return np.argsort(-views.variance, kind="stable")[:READ_AXES]


def take_samples(m: PosteriorMap, views: Views, direction: Floats) -> Samples:
    """Return each view with the corrected other view of its event."""
    n, (firsts, at) = len(views), first_of_each(views.row)
    raw, codes = views.raw[firsts], views.codes[firsts]
    edits, offsets = views.axes.T @ m.edit, m.edit_offset
    if m.direction is None:  # edits act in the coordinates of the views
        before, edits, offsets = raw, edits @ direction.T, offsets @ direction.T
    else:
        before = raw @ (direction @ views.axes).T
    corrected = before.copy()
    for code in range(views.n_sources):
        rows = codes == code
        corrected[rows] += raw[rows] @ edits[code] + offsets[code]
    before, corrected = before[at], corrected[at]
    return Samples(
        read=views.raw[:, reading_axes(views)],
        before=before,
        goal=np.roll(corrected, n, axis=0),
        source=views.codes,
        other=np.roll(views.codes, n),
        unit=(np.mean(row_norms(views.raw) ** 2) - np.sum(views.raw.mean(axis=0) ** 2)) / m.varies.sum(),
        edits=edits,
        offsets=offsets,
    )


def leave_devices_out(m: PosteriorMap, views: Views, samples: Samples) -> tuple[dict[str, float], float]:
    """Return the distances of left-out devices from the target after each treatment, and the best penalty.

    Edits of known devices omit that of the left-out device; regressions are fitted without this device.
    """
    group = np.arange(views.n_sources) % MOST_LEFT_OUT
    rows: list[tuple[float, ...]] = []
    for left_out in range(int(group.max()) + 1):
        test = (group[samples.source] == left_out) & (group[samples.other] != left_out)
        train = (group[samples.source] != left_out) & (group[samples.other] != left_out)
        if not test.any() or not train.any():
            continue
        read, before, goal = samples.read[test], samples.before[test], samples.goal[test]
        edit = edits_of_others(m, views, samples, test, np.flatnonzero(group == left_out))
        fits = regress(samples, train, PENALTIES)
        distances = [closeness(before + edit, goal), closeness(before, goal)]
        rows.append((*distances, *(closeness(read @ slope + offset, goal) for slope, offset in fits)))
    if not rows:
        return {AS_KNOWN: 1.0}, PENALTIES[0]
    as_known, unmoved, *regressed = np.mean(rows, axis=0)
    distance = {AS_KNOWN: float(as_known), UNMOVED: float(unmoved), REGRESSED: float(min(regressed))}
    return distance, PENALTIES[int(np.argmin(regressed))]


def edits_of_others(
    m: PosteriorMap,
    views: Views,
    samples: Samples,
    rows: NDArray[np.bool_],
    left_out: NDArray[np.intp],
) -> Floats:
    """Return the edits of views without the edits of left-out sources."""
    firsts, at = first_of_each(views.row[rows])
    raw = views.raw[np.flatnonzero(rows)[firsts]]
    scores = np.square(raw @ (views.axes.T @ m.square.T)) @ m.square_weight
    scores += raw @ (views.axes.T @ m.linear.T) + m.bias
    scores[:, left_out] = -np.inf
    p = scipy.special.softmax(scores, axis=1)
    blended = p @ samples.offsets
    for code in np.setdiff1d(np.arange(views.n_sources), left_out):
        blended += p[:, [code]] * (raw @ samples.edits[code])
    return np.asarray(blended[at])


def regress(
    samples: Samples, train: NDArray[np.bool_], penalties: tuple[float, ...] | list[float]
) -> list[tuple[Floats, Floats]]:
    """Return slope and offset of the ridge regression of goals on views, for each penalty."""
    x, y = samples.read[train], samples.goal[train]
    center, mean = x.mean(axis=0), y.mean(axis=0)
    x, y = x - center, y - mean
    values, axes = np.linalg.eigh(x.T @ x / len(x))
    products = axes.T @ (x.T @ y / len(x))
    slopes = (
        axes @ (products / (np.maximum(values, 0.0) + penalty * samples.unit)[:, None])
        for penalty in penalties
    )
    return [(slope, mean - center @ slope) for slope in slopes]


def closeness(moved: Floats, goal: Floats) -> float:
    """Return the mean squared distance of rows to their targets, relative to targets of other rows."""
    others = np.mean(np.sum(moved**2, axis=1)) + np.mean(np.sum(goal**2, axis=1))
    others -= 2.0 * moved.mean(axis=0) @ goal.mean(axis=0)
    tiny = np.finfo(np.float64).tiny
    return float(np.mean(np.sum((moved - goal) ** 2, axis=1)) / max(float(others), tiny))


def compare_devices(views: Views, n_rows: float) -> tuple[Floats, Floats, float]:
    """Return the whitening matrix (d, j), the whitened means of devices, and the threshold of the log-odds.

    A given share of held-out views of known devices exceeds the threshold; the views of each fold are
    compared with means and covariance of the other folds.
    """
    top = np.argsort(-views.variance, kind="stable")[:AXES]
    scale = np.sqrt((1.0 - BALL) * views.variance[top] + BALL * views.typical)
    white, row, fold = views.raw[:, top] / scale, *rows_and_folds(views)
    copies = np.bincount(row)[row]
    # Weight of a view in the covariance: once as a view, and once as a row, shared by all views of the row.
    times = 1.0 + min(1.0, n_rows / len(np.unique(row))) / copies
    total, ratio, centred = n_rows + len(white), np.zeros(len(white)), white.copy()
    centre(centred, views.codes)
    for test in (fold == k for k in np.unique(fold)):
        train = np.flatnonzero(~test[: len(views)])
        means = views.source_means(train if len(train) else np.arange(len(views)))[:, top] / scale
        apart = centred[test]
        within = total * np.eye(len(top)) - (apart * times[test, None]).T @ apart
        values, axes = np.linalg.eigh(within / max(1.0, total - times[test].sum()))
        whiten = axes / np.sqrt(np.maximum(values, BALL))
        ratio[test] = log_odds(white[test] @ whiten, means @ whiten)
    weight = 1.0 / (copies * np.bincount(views.codes, 1.0 / copies)[views.codes])
    order = np.argsort(ratio)
    above = 1.0 - np.cumsum(weight[order]) / weight.sum()
    odds = float(ratio[order][np.flatnonzero(above <= FALSE_SHARE)[0]])
    means = views.source_means(np.arange(len(views)))[:, top] / scale
    return views.axes[:, top] / scale, means, max(odds, float(np.log(FEWEST_ODDS)))


def rows_and_folds(views: Views) -> tuple[Codes, Codes]:
    """Return the row number and the fold of each view, (2 m,); folds keep participants or events together.

    A row is in several pairs if more than two devices recorded its event.
    """
    n, row = len(views), views.row
    if views.participants is not None:
        fold = np.unique(views.participants, return_inverse=True)[1] % FOLDS
    else:
        size = int(row.max()) + 1
        linked = scipy.sparse.coo_array((np.ones(n), (row[:n], row[n:])), shape=(size, size))
        fold = scipy.sparse.csgraph.connected_components(linked, directed=False)[1][row[:n]] % FOLDS
    return row, np.concatenate([fold, fold])
