"""What a fit found and did, in words: one function an output. Nothing is decided here."""

from __future__ import annotations

from ..position import Effect
from .edits import Action, Reading
from .spread import ALL_NOISE, FEWEST_UNITS, SpreadEvidence

STILL_READABLE = 0.65  # an AUROC that is worth a sentence


def in_words(
    action: Action,
    effect: Effect | None,
    spread: SpreadEvidence | None,
    reading: Reading | None,
    reference: str,
) -> str:
    """Return what pairs and rows show, and what is done about it."""
    parts = ["pairs show no common shift" if effect is None else str(effect)]
    if spread is not None:
        parts.append(spread_in_words(spread))
    if reading is not None and action is not Action.NOTHING:
        parts.append(
            f"the source is read right in {reading.right:.0%} of held-out views, and edits miss "
            f"{reading.missed:.1%} of what they would do if the source were told"
        )
    return "; ".join([*parts, action_in_words(action, reference)])


def action_in_words(action: Action, reference: str) -> str:
    """Return what is done with rows."""
    view = "the mean of all views" if not reference else f"the view of {reference!r}"
    level = "the mean level of all sources" if not reference else f"the level of {reference!r}"
    collapse = f"the direction in which sources differ is collapsed to {level}"
    return {
        Action.NOTHING: "not corrected",
        Action.COLLAPSE: f"correction applied: {collapse}",
        Action.READ: f"correction applied: the source is read from each row, and the row moves to {view}",
        Action.COLLAPSE_AND_READ: f"correction applied: {collapse}, then rows move to {view}",
    }[action]


def spread_in_words(spread: SpreadEvidence) -> str:
    """Return what held-out pairs say about spread."""
    if spread.n_units < FEWEST_UNITS:
        unit = spread.unit if spread.n_units > 1 else spread.unit.replace("participants", "participant")
        return f"a difference in spread cannot be tested with {spread.n_units} {unit}"
    tested = f"(p = {spread.p_value:.2g}, {spread.n_units} {spread.unit})"
    if not spread.is_shown:
        return f"no difference in spread {tested}"
    words = (
        f"sources differ in spread {tested}: gain {spread.gain:.0%}, rotation {spread.rotation:.0%}, noise "
        f"{spread.noise:.0%} of the paired differences beyond the shift"
    )
    if spread.noise >= ALL_NOISE:
        return f"{words}; noise cannot be undone, so the source stays readable from it"
    if not spread.helps:
        return f"{words}; correcting it brings held-out pairs no closer"
    if not spread.matches_rows:
        return f"{words}; rows do not show it"
    words += f"; correcting it removes {spread.removed:.0%} of the difference of held-out pairs"
    if spread.by_length < STILL_READABLE:
        return words
    return f"{words}; what stays readable is the length of embeddings (AUROC {spread.by_length:.2f})"
