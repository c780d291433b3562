"""Certainty of an audit: warnings, caveats for all methods, and notes on measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import first_few, printable
from ..design import FEW, TOO_FEW
from ..diagnostics import UNASSOCIATED, cramers_v
from ..estimates import number
from ..method_result import once
from ..metrics import METRICS
from ..words import label, listed, reader_summary
from .conclusions import repeated, span, units
from .decisions import ranking, smallest_cell, too_few
from .requirements import participants_needed

if TYPE_CHECKING:
    from ..result import Audit

# Cramér's V above which an association is called strong.
STRONG = 0.4


def certainty(audit: Audit, *, warn: bool = True) -> str:
    """Return one line on certainty: warnings, number of participants, and number needed."""
    lines = [*warnings(audit).values()] if warn else []
    if not too_few(audit):
        lines.append(f"Intervals are over {_scored(audit)}.")
        lines += map(str, repeated(audit))
        # Methods at chance level are not ranked by S.
        leaders = ranking(audit)[1]
        readable = {name for group in leaders for name in group if audit[name].chance.excluded}
        questions = (e for e in participants_needed(audit) if readable & {*e["methods"]} or not leaders)
        lines += [e["sentence"] for e in questions][:1]
    return " ".join(lines)


def _scored(audit: Audit) -> str:
    """Return the number of scored participants, and of those in S if this is fewer."""
    n = int(audit["identity"].sample("S")[1].shape[1])
    return units(audit) + f" (S: {n})" * (n < audit.n_people)


@once
def warnings(audit: Audit) -> dict[str, str]:
    """Return the warnings for all outputs: sentences by short badge."""
    s, marks = audit.settings, {}
    if s.preliminary:
        few = missing_networks(audit) or "few, briefly trained readers"
        marks["Preliminary"] = f"Preliminary: {few}, so S may be too low."
    if too_few(audit):
        cell, n = smallest_cell(audit)
        marks["Exploratory"] = f"Only {units(audit, n)}{f' in the cell {cell}' * bool(cell)}: exploratory."
    if s.corrected_by:
        marks["Corrected before"] = (
            f"The rows were already corrected (by map {s.corrected_by}), perhaps by a map fitted on these "
            f"{audit.design.plural}. Audit the uncorrected table, and pass the map as a method."
        )
    # Duplicate rows make all methods look as if fitted on EVAL participants; their warning follows below.
    leaked = [label(name) for name, result in audit.results.items() if result.fitted_on]
    if leaked and not (s.duplicates and len(leaked) == len(audit.methods)):
        was = "were" if len(leaked) > 1 else "was"
        marks["Not held out"] = (
            f"{listed(leaked)} {was} fitted on EVAL {audit.design.plural}, so "
            f"{'their' if len(leaked) > 1 else 'its'} scores are too good."
        )
    if s.duplicates:
        copies = "; ".join(f"{count} {what}" for what, count in s.duplicates.items())
        marks["Duplicate rows"] = (
            f"The same rows have two roles ({copies}), so all scores are too good. Registered twice: "
            f"{first_few(list(s.copied), 4)}. Give each {audit.design.unit} one name."
        )
    return marks


def missing_networks(audit: Audit) -> str:
    """Return a note with the reason if no networks were among the readers, else an empty text."""
    why = " (torch is not installed)" if audit.settings.no_networks else ""
    networks = any("gelu" in reader for reader in audit["identity"].readers)
    return "" if networks else f"no networks among the readers{why}"


def caveats(audit: Audit) -> list[str]:
    """Return the caveats that hold for all methods."""
    return [
        *warnings(audit).values(),
        audit.design.sentence,
        *audit.design.notes,
        *_who_was_fitted_on(audit),
        *_association_in_scored_rows(audit),
        *_few_pairs(audit),
        *_whose_head(audit),
        *_unseen_losses(audit),
        _intervals(audit),
        *(entry["sentence"] for entry in participants_needed(audit) if not too_few(audit)),
        *_chosen_here(audit),
    ]


def _who_was_fitted_on(audit: Audit) -> list[str]:
    """Return sentences on which participants were used to train and to score."""
    s, people, lines = audit.settings, audit.design.plural, []
    nested = [f"{n} {role}" for role, n in s.one_source.items() if n]
    if nested and audit.design.kind == "crossed":
        lines.append(
            f"{listed(nested)} {people} have one source only: methods and readers may learn the {people} "
            "instead of the source, so S may be too low."
        )
    if s.folds > 1:
        how_often = "once" if s.repeats == 1 else f"once in each of {s.repeats} repeats"
        lines.append(
            f"Each {audit.design.unit} was scored {how_often}, by {trained_on_others(audit)}, in {s.folds} "
            "folds."
        )
        lines += map(str, repeated(audit))
    if s.always_fit:
        lines.append(
            f"{units(audit, s.always_fit)} {'was' if s.always_fit == 1 else 'were'} fitted on in every fold "
            "and never scored, because they have the pairs or because a map was fitted on them."
        )
    return lines


def trained_on_others(audit: Audit) -> str:
    """Return the parts (maps, readers, heads) that were certainly trained on other participants."""
    held_out = all(audit[name].fitted_on == () for name in audit.methods[1:])
    parts = [*["maps"] * (held_out and len(audit.methods) > 1), "readers"]
    parts += ["heads"] if audit.settings.task and not audit.settings.deployed else []
    return f"{listed(parts)} trained on others"


def _association_in_scored_rows(audit: Audit) -> list[str]:
    """Return a caveat if source and label are associated in scored rows, which lets labels reveal sources."""
    if audit.settings.folds == 1 or audit.design.kind != "crossed" or not audit.counts:
        return []
    v = cramers_v(audit.counts)
    if v < UNASSOCIATED:
        return []
    return [
        f"Source and label are associated in the scored rows (Cramér's V {number(v, '.2f')}): a reader can "
        "predict the source from the label, so S may stay above .5 without any effect of the source."
    ]


def _few_pairs(audit: Audit) -> list[str]:
    few, people = audit.settings.pair_participants, audit.design.plural
    if not few or min(few) >= TOO_FEW:
        return []
    each = "In each fold, m" if audit.settings.folds > 1 else "M"
    return [f"{each}ethods that use pairs had pairs of only {span(list(few))} {people}."]


def _whose_head(audit: Audit) -> list[str]:
    if not audit.settings.deployed or audit.settings.head_source:
        return []
    return [
        "The source on which the head was trained was not stated, so its scores are means over all sources. "
        "Pass head_source= to separate home from away."
    ]


def unseen_share(n: int) -> float:
    """Return the largest share of a population that a sample of n may miss completely (95 %).

    Intervals cannot show large losses of a few participants if the sample has none of them.

    Examples
    --------
    >>> round(unseen_share(12), 2)
    0.22
    """
    return float(1.0 - 0.05 ** (1.0 / n))


def _unseen_losses(audit: Audit) -> list[str]:
    """Return a caveat on losses of single participants, if any method has the outcome "kept"."""
    limited = [m for m in audit.metrics if METRICS[m].kept is not None]
    if not any(audit.outcome(name, m) == "kept" for name in audit.methods[1:] for m in limited):
        return []
    share = f"{100 * unseen_share(audit.n_people):.0f} %"
    return [f"Kept refers to the mean: losses in up to {share} of {audit.design.plural} may go unnoticed."]


def _intervals(audit: Audit) -> str:
    few = audit.n_people < FEW and not audit.settings.widen
    narrow = " Intervals over so few tend to be too narrow." if few else ""
    return (
        f"Intervals are over {_scored(audit)}, for these fitted maps and readers; a stronger reader may find "
        f"more. Chance comes from permuted source labels.{narrow}"
    )


def _chosen_here(audit: Audit) -> list[str]:
    if len(audit.methods) < 3 or not any(len(group) == 1 for group in ranking(audit)[1]):
        return []
    return [f"The best method was chosen on these {audit.design.plural}; confirm it on new ones."]


def confounding(audit: Audit) -> str:
    """Return a sentence on the association of source and label in the fitting rows."""
    if not audit.settings.task:
        return "The table has no labels, so their association with the source was not measured."
    if not audit.counts and audit.settings.task == "classification":
        return "The association of source and label in the fitting rows is not known."
    if not audit.counts:
        return "The labels are not classes, so their association with the source was not measured."
    v = cramers_v(audit.counts)
    strength = "no" if v < UNASSOCIATED else "some" if v < STRONG else "strong"
    harm = ": erasing whatever predicts the source also removes task information" * (v >= UNASSOCIATED)
    size = number(v, ".2f")
    return f"Source and label show {strength} association in the fitting rows (Cramér's V {size}){harm}."


def class_chance(audit: Audit, metric: str) -> str:
    """Return the chance level of balanced accuracy in words, or an empty text for other metrics."""
    classes = audit.design.classes
    return (
        f"chance {number(1 / len(classes))}"
        if classes and METRICS[metric].unit == "balanced accuracy"
        else ""
    )


def readers_note(audit: Audit) -> str:
    """Return a note on the readers used, and S of the paper's readers alone."""
    readers = audit["identity"].readers
    note = f"S: the best of {len(readers)} readers ({reader_summary(readers)})."
    note += f" There were {missing}." if (missing := missing_networks(audit)) else ""
    if audit.settings.bank == "paper":
        return f"{note} All are the paper's readers."
    paper = {name: result.estimate("S_paper").value for name, result in audit.results.items()}
    alone = ", ".join(f"{printable(label(name))} {number(value)}" for name, value in paper.items())
    above = any(number(value) > number(audit[name].S) for name, value in paper.items())
    why = " S is corrected for the choice among more readers, so S_paper may exceed S." * above
    return f"{note} By the paper's readers alone (S_paper): {alone}.{why}"


def shortcut_note(audit: Audit) -> str:
    """Return a note on the shortcut learned by the heads behind ``worst``."""
    ways, origin = audit.settings.directions, audit.settings.directions_of
    if not ways:
        return f"worst and control were not measured: {origin}." if origin else ""
    if len(ways) > 1:
        return "worst: the mean over heads that learned each possible shortcut."
    how = "as set" if origin == "stated" else f"as in the {origin} rows"
    return f"worst: heads learned that {ways[0]} ({how})."


def decoder_note(audit: Audit) -> str:
    """Return a note on the source of the heads in tables, for methods with a reference."""
    every, shown = audit.estimates["identity"], audit.tabled["identity"]
    names = [m for m in audit.columns if m in every and shown[m] is not every[m]]
    return f"Existing heads ({', '.join(names)}): those trained on {audit.decoder} alone." if names else ""
