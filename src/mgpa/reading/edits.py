"""Read the source first: edits of uncorrected rows, weighted by the probability of each source.

    h' = h + Σ_s p_s(h) E_s(h)

p is the posterior of the source given the row (:mod:`mgpa.reading.posterior`). E_s maps a row of source s to
the target: the view of one device, or the mean of all views (:mod:`mgpa.reading.regressions`). If the source
is read correctly, the map equals a correction with known sources. The error is measured on held-out views, as
the missed share of the edit with known sources. If it is too large, the direction in which sources differ is
collapsed first, as in the closed form, and remaining differences are corrected afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from .._common.markup import rounded_repr
from ..linalg import EPS
from ..maps import AffineMap, PosteriorMap
from ..moments import Standardizer
from .posterior import Posterior, score_form
from .regressions import (
    Regressions,
    affine_edit,
    differences,
    displacement,
    fit_regressions,
    is_constant,
    without_slopes,
)
from .spread import SpreadEvidence, describe_spread, read_by_length, rows_scale
from .views import Floats, Views, first_of_each

# Largest share of the edit with known sources that may be missed. With a reference, edits by recognised
# source preserve a decoder with a task along the shift, and collapsing does not. Without a reference, no
# decoder must be preserved, and collapsing removes more source information.
MISSED_WITH_REFERENCE, MISSED = 0.08, 0.02
UNSEEN_ERRORS = 1.5  # number of missed edits added for errors that few held-out views may not show
TINY = float(np.finfo(np.float64).tiny)
NEGLIGIBLE = 1e-12  # edits of sources with smaller probabilities are not computed
FULL = 0.7  # from this rank on (as a share of the features), edits are stored for each feature


class Action(Enum):
    """The correction chosen by a fit."""

    NOTHING = "nothing"
    COLLAPSE = "collapse"  # the closed form: rows of all sources move to one level along the mean contrast
    READ = "read"  # edits weighted by the posterior of the source
    COLLAPSE_AND_READ = "collapse, then read"  # edits of collapsed rows

    def in_words(self, reference: str) -> str:
        """Return the correction in words; the target is the named source or, if empty, the mean."""
        view = f"the view of {reference!r}" if reference else "the mean of all views"
        level = f"the level of {reference!r}" if reference else "the mean level of all sources"
        collapse = f"the direction in which sources differ is collapsed to {level}"
        moves = (
            f"; rows of {reference!r} move too, so a decoder may lose accuracy at home (collapse set to "
            "'never' avoids this loss but leaves the source more readable)"
            if reference
            else ""
        )
        return {
            Action.NOTHING: "not corrected",
            Action.COLLAPSE: f"correction applied: {collapse}{moves}",
            Action.READ: f"correction applied: the source is read from each row, and the row moves to {view}",
            Action.COLLAPSE_AND_READ: f"correction applied: {collapse}, then rows move to {view}{moves}",
        }[self]


@dataclass(frozen=True)
class Reading:
    """The accuracy with which the source of held-out views is read."""

    right: float  # share of views with correctly recognised source
    missed: float  # share of the squared edit with known source that blended edits miss
    n_views: int
    allowed: float  # largest allowed missed share

    __repr__ = rounded_repr

    @property
    def expected(self) -> float:
        """The expected missed share, including errors that few views may not show."""
        return self.missed + UNSEEN_ERRORS / self.n_views

    @property
    def suffices(self) -> bool:
        """Whether rows may be edited as if the source were known."""
        return self.expected <= self.allowed

    def __str__(self) -> str:
        return (
            f"the source is recognised in {self.right:.0%} of held-out views, which loses "
            f"{self.missed:.1%} of the correction with known sources"
        )


@dataclass(frozen=True)
class Tested:
    """Held-out views after edits fitted on other pairs, with slopes and as mean differences."""

    # (m,): squared distances between views, relative to the variance of rows, for mean differences and slopes
    constant: Floats
    sloped: Floats
    missed: Floats  # (2, 2 m): squared differences of blended edits from edits with known source
    told: Floats  # (2, 2 m): squared sizes of edits with known source
    length: Floats  # (2 m,): lengths of corrected, whitened views


@dataclass(frozen=True)
class Fit:
    """The evidence in one set of views, and the regressions between them."""

    views: Views
    regressions: Regressions
    spread: SpreadEvidence
    reading: Reading
    slopes: bool  # whether differences in spread are corrected


@dataclass(frozen=True)
class ReadingSettings:
    """Requirements for the edits, and the shift that rows show."""

    target: int | None  # the source to whose view rows are mapped; None: the mean of all
    spread: str  # "auto", "always" or "never"
    is_precise: bool  # rows clearly show the shift of the pairs in its full size
    is_absent: bool  # rows clearly lack the shift


def read_sources(
    views: Views,
    rows: list[tuple[float, Floats]],
    posterior: Posterior,
    shown: SpreadEvidence,
    settings: ReadingSettings,
) -> Fit:
    """Fit the edits of views to the target, and test them on held-out pairs.

    ``shown`` is :func:`mgpa.reading.spread.show_spread` of the views.
    """
    evidence, spread = replace(shown, is_absent=settings.is_absent), settings.spread
    try_slopes = spread == "always" or (spread == "auto" and evidence.is_shown)
    regressions = fit_regressions(views, slopes=try_slopes)
    tested = hold_out(views, posterior, regressions, settings.target)
    right = share_right(posterior, views)
    if try_slopes:
        evidence = weigh_slopes(evidence, views, rows, regressions, tested, right)
    matches = evidence.matches_rows or settings.is_precise
    slopes = spread == "always" or (try_slopes and evidence.is_shown and evidence.helps and matches)
    if try_slopes and not slopes:
        regressions = without_slopes(regressions)
    total = max(float(tested.told[int(slopes)].sum()), TINY)
    missed = float(tested.missed[int(slopes)].sum()) / total
    allowed = MISSED if settings.target is None else MISSED_WITH_REFERENCE
    return Fit(views, regressions, evidence, Reading(right, missed, 2 * len(views), allowed), slopes)


def share_right(posterior: Posterior, views: Views) -> float:
    """Return the share of held-out views with correctly recognised source, averaged over sources."""
    right = posterior.held_out.argmax(axis=1) == views.codes
    return float(np.mean([right[views.codes == code].mean() for code in np.unique(views.codes)]))


def hold_out(views: Views, posterior: Posterior, regressions: Regressions, target: int | None) -> Tested:
    """Return held-out views after edits with posteriors and regressions fitted on other pairs."""
    m, whitening = len(views), posterior.whitening
    apart, missed, told = np.zeros((2, m)), np.zeros((2, 2 * m)), np.zeros((2, 2 * m))
    length = np.zeros(2 * m)
    fitted = [regressions] if is_constant(regressions) else [without_slopes(regressions), regressions]
    for _, test in views.folds:
        forms: list[Regressions] = [{} for _ in fitted]
        for step, x, y in differences(views, test):
            for edits, whole in zip(forms, fitted, strict=True):
                edits[step] = whole[step].without(x, y)
        for pairs in views.blocks(test):
            both = np.concatenate([pairs, pairs + m])
            firsts, at = first_of_each(views.row[both])
            some = both[firsts]
            X, codes, p = views.moved(some), views.codes[some], posterior.held_out[some]
            for form, edits in enumerate(forms):
                moved, right = blend_edits(edits, X, codes, p, target)
                missed[form, both] = np.sum((moved - right) ** 2, axis=1)[at]
                told[form, both] = np.sum(right**2, axis=1)[at]
                moved += X
                length[both] = np.sum(whitening.white(moved) ** 2, axis=1)[at]
                between = (moved[at[len(pairs) :]] - moved[at[: len(pairs)]]) * views.weight
                apart[form, pairs] = np.sum(between**2, axis=1)
    return Tested(apart[0], apart[1], missed, told, length)


def blend_edits(
    edits: Regressions, X: Floats, codes: NDArray[np.int64], p: Floats, target: int | None
) -> tuple[Floats, Floats]:
    """Return the edits of views X blended by posteriors p (n, K), and the edits with known source."""
    n_sources = p.shape[1]
    if is_constant(edits):
        offsets = np.stack([affine_edit(edits, code, target)[1] for code in range(n_sources)])
        return p @ offsets, offsets[codes]
    blend, right = np.zeros_like(X), np.empty_like(X)
    for code in range(n_sources):
        rows = np.flatnonzero((p[:, code] > NEGLIGIBLE) | (codes == code))
        edit, its = displacement(edits, code, X[rows], target), codes[rows] == code
        right[rows[its]] = edit[its]
        blend[rows] += p[rows, code, None] * edit
    return blend, right


def weigh_slopes(
    evidence: SpreadEvidence,
    views: Views,
    rows: list[tuple[float, Floats]],
    regressions: Regressions,
    tested: Tested,
    right: float,
) -> SpreadEvidence:
    """Return the evidence of spread with the effect of slopes on held-out views."""
    m, whose = len(views), views.participants
    units = np.arange(m) if whose is None else np.unique(whose, return_inverse=True)[1]
    if units.max() < 2:
        units = np.arange(m)
    closer = np.bincount(units, tested.constant - tested.sloped)
    total = max(float(tested.constant.sum()), TINY)
    gain, rotation, noise = describe_spread(views, regressions)
    return replace(
        evidence,
        scale=rows_scale(views, rows),
        gain=gain,
        rotation=rotation,
        noise=noise,
        removed=float(closer.sum()) / total,
        error=float(np.sqrt(len(closer) * np.var(closer, ddof=1))) / total,
        readable=right,
        by_length=read_by_length(tested.length, views.codes),
    )


def posterior_map(
    fit: Fit, posterior: Posterior, position: AffineMap, standardizer: Standardizer,
    *, target: int | None, gate: NDArray[np.float64] | None,
) -> PosteriorMap:  # fmt: skip
    """Return the correction of position and the edits as one stored map.

    ``gate`` (d, r) limits mean differences; it is None for slopes, which act in the span of the differences.
    """
    views, scale = fit.views, standardizer.scale
    V, along = views.axes, views.along
    if gate is None:
        turn = edit_basis(fit.regressions, along, V.shape[1])
        direction = V.T if turn is None else (V @ turn).T
    else:
        turn, direction = V.T @ gate, gate.T
    direction = np.where(standardizer.varies, direction, 0.0)  # exact zeros for constant features
    full = len(direction) > FULL * len(scale)  # one full product is faster than two thin products
    # E_s(h) = pos(h) + D_s(h + pos(h)), pos(h) = -(h readout + offset) along
    readout = position.readout * scale[:, None] if len(along) else np.zeros((len(scale), 0))
    offset = position.offset + (standardizer.center - position.center) @ position.readout
    offset = offset if len(along) else np.zeros(0)
    edits, offsets = [], []
    for code in range(views.n_sources):
        M, v = affine_edit(fit.regressions, code, target)
        stays = along if M is None else along + along @ M
        v, linear = v - offset @ stays, -readout @ (stays if turn is None else stays @ turn)
        if M is not None:
            linear += V @ (M if turn is None else M @ turn)
        v = v if turn is None else v @ turn
        edits.append(linear @ direction if full else linear)
        offsets.append(v @ direction if full else v)
    square, square_weight, linear, bias = score_form(views, posterior)
    return PosteriorMap(
        center=standardizer.center,
        scale=scale,
        square=square,
        square_weight=square_weight,
        linear=linear,
        bias=bias,
        edit=np.stack(edits),
        edit_offset=np.stack(offsets),
        direction=None if full else direction,
    )


def edit_basis(regressions: Regressions, along: Floats, r: int) -> Floats | None:
    """Return an orthonormal basis (r, k) of the possible edits; None for the complete space."""
    columns = [step.directions / step.weight[:, None] for (a, b), step in regressions.items() if a < b]
    columns += [regression.offset[:, None] for regression in regressions.values()] + [along.T]
    spanned = np.concatenate(columns, axis=1)
    if spanned.shape[1] >= r:
        return None
    U, sizes, _ = np.linalg.svd(spanned, full_matrices=False)
    return np.asarray(U[:, sizes > sizes[0] * r * EPS])


def decide(fit: Fit, *, has_position: bool, same_scale: bool, collapse: str) -> Action:
    """Return the correction to apply, chosen from the evidence of uncorrected views.

    ``has_position`` means that pairs and rows show a shift; ``same_scale`` means that their shifts agree.
    """
    if not has_position:
        return Action.READ if fit.slopes else Action.NOTHING
    if collapse == "always" or not same_scale:
        return Action.COLLAPSE
    return Action.READ if collapse == "never" or fit.reading.suffices else Action.COLLAPSE
