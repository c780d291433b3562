"""Which method is best here, what each of them did, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from ...errors import printable
from ..design import TOO_FEW
from ..looks import label
from ..metrics import METRICS
from ..result import Audit
from .pieces import brackets, bullets, method, printed, subscript, with_interval

# A method is judged by what it did to existing heads.
TASK = METRICS["T_f"]
SURE = "How sure is this?"
ALONE = "Only uncorrected embeddings were audited; there is nothing to compare."


def ranking(audit: Audit) -> tuple[list[str], tuple[str, ...]]:
    """Return the methods, the best first, and the best source-blind and source-aware ones, if there are any.

    The best has the lowest S of those that lowered it and kept (or improved) the task for existing heads.
    Methods that harmed the task come last, however low their S. Source-aware methods are told more than
    others and compete among themselves. With too few people nobody is best.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}

    def place(name: str) -> tuple[int, bool, float]:
        fell = audit.outcome(name, "S") == "improved"
        # Numbers of a map that was fitted on the people who judge it do not count.
        last = 3 if audit[name].fitted_on else places[audit.outcome(name, TASK.name)]
        return last, not fell, audit.estimates[name]["S"].value

    names = sorted(audit.methods[1:], key=place)
    good = [name for name in names if place(name)[:2] == (0, False) and audit.n_people >= TOO_FEW]
    groups = ([name for name in good if audit[name].source_blind == blind] for blind in (True, False))
    return names, tuple(group[0] for group in groups if group)


def verdict(audit: Audit) -> str:
    """Return a card for the best methods, one for each other, and what limits them."""
    names, best = ranking(audit)
    if not names:
        alone = audit.findings("identity") + audit.caveats("identity")
        return f"<p>{ALONE}</p>{bullets(alone)}"
    said = {name: _sentences(audit, name) for name in names}
    first = "".join(_best_card(audit, names, name, said[name]) for name in best)
    if not best:
        head, say = map(escape, _no_best_sentences(audit, names))
        first = f'<div class="card best"><h3>{head}</h3><p class="say">{say}</p></div>'
    cards = "".join(
        f'<article class="card"><h3>{method(audit, name)}</h3>{_chips(audit, name)}'
        f"{_tiles(audit, name, ('S', TASK.name))}{said[name]}</article>"
        for name in names
        if name not in best
    )
    others = f'<div class="cards">{cards}</div>' if cards else ""
    sure = bullets(_caveats(audit, names, best))
    return f'{first}\n{others}\n<div class="note"><h3>{SURE}</h3>{sure}</div>'


def spoken(audit: Audit) -> list[tuple[str, list[str]]]:
    """Return the same as text: headings with their sentences, the best methods first, how sure it is last."""
    names, best = ranking(audit)
    if not names:
        return [(ALONE, audit.findings("identity")), (SURE, audit.caveats("identity"))]
    blocks = []
    for name in best:
        head = f"Best here, {_group(audit, name)}: {label(name)}"
        blocks.append((head, [*_best_sentences(audit, names, name), *audit.findings(name)]))
    if not best:
        head, say = _no_best_sentences(audit, names)
        blocks.append((head, [say]))
    blocks += [(label(name), audit.findings(name)) for name in names if name not in best]
    return [*blocks, (SURE, _caveats(audit, names, best))]


def verdict_text(audit: Audit) -> str:
    """Return the verdict for a terminal: what the uncorrected source is, and the report's sentences."""
    blocks = spoken(audit)
    lines = audit.findings("identity")[: 2 if audit.too_few else 1] if len(audit.methods) > 1 else []
    for head, sentences in blocks:
        lines += ["", head, *(f"  {sentence}" for sentence in sentences)]
    return printable("\n".join(lines).lstrip("\n"), lines=True)


def _caveats(audit: Audit, names: list[str], best: tuple[str, ...]) -> list[str]:
    sure = [*audit.caveats(names[0])]
    if len(names) > 1 and best:
        sure.append(
            "The best method was picked on the same participants it is reported on, which flatters it a "
            "little; confirm it on new people."
        )
    return sure


def _sentences(audit: Audit, name: str) -> str:
    """Return what no number shows; and, out of the way until asked for, what chips and tiles say already."""
    limits = audit.limits(name)
    again = [line for line in audit.findings(name) if line not in limits]
    shown = bullets(limits) if limits else ""
    return f"{shown}<details><summary>In words, with intervals</summary>{bullets(again)}</details>"


def _no_best_sentences(audit: Audit, names: list[str]) -> tuple[str, str]:
    """Return why no method is best, and what would help."""
    task = " while clearly keeping the task" if TASK.name in audit.metrics else ""
    head, say = f"No method clearly lowered the source{task}.", "What each of them did is below. "
    floors = [name for name in names if audit[name].floor_explains]
    if audit.n_people < TOO_FEW:
        head = f"{audit.n_people} EVAL participants are too few for a verdict."
        say += f"At least {TOO_FEW} are needed{audit.advice_on_folds}."
    elif not audit["identity"].chance.excluded:
        head = "The source is indistinguishable from chance before any correction."
        say += "These readers find nothing to remove."
    elif floors:
        say += (
            f"The floor explains S of {', '.join(map(label, floors))}: what the gate preserves is as "
            "readable. More participants will not change that; a wider gate may."
        )
    else:
        say += "With more participants the intervals may become narrow enough to tell."
    return head, say


def _group(audit: Audit, name: str) -> str:
    return "source-blind" if audit[name].source_blind else "source-aware"


def _best_sentences(audit: Audit, names: list[str], best: str) -> tuple[str, str]:
    """Return what the best method did, and why it is the best."""
    before, after = audit.estimates["identity"]["S"], audit.estimates[best]["S"]
    status = audit.outcome(best, TASK.name)
    say = f"The best reader of the source fell from AUROC {printed(before.value)} to {printed(after.value)}"
    readable = audit[best].chance.excluded
    say += ", where it is still readable" if readable else ", which is indistinguishable from chance"
    say += {
        "kept": f"; existing task heads kept their AUROC to within {printed(TASK.kept, 2)}.",
        "improved": "; existing task heads got better.",
        None: ". The table has no labels, so what happened to the task is not known.",
    }[status]
    rivals = [name for name in names if audit[name].source_blind == audit[best].source_blind]
    why = "The lowest S"
    if status is not None:
        why += f" among methods that kept the task (a loss above {printed(TASK.kept, 2)} is excluded)"
    why += f" of the {len(rivals)} {_group(audit, best)} ones audited." if len(rivals) > 1 else "."
    reasons = (why, _rival(audit, rivals, best), _passed_over(audit, rivals, best))
    return say, " ".join(reason for reason in reasons if reason)


def _best_card(audit: Audit, names: list[str], best: str, lines: str) -> str:
    say, why = _best_sentences(audit, names, best)
    return (
        f'<article class="card best"><p class="eyebrow">Best here, {_group(audit, best)}</p>'
        f"<h3>{method(audit, best)}</h3>"
        f'{_chips(audit, best)}<p class="say">{escape(say)}</p>'
        f'<p class="lede">{escape(why)}</p>{_tiles(audit, best, audit.metrics)}{lines}</article>'
    )


def _tiles(audit: Audit, name: str, metrics: Iterable[str]) -> str:
    """Return what became of those of the metrics that were measured."""
    tiles = "".join(_tile(audit, name, metric) for metric in metrics if metric in audit.metrics)
    return f'<div class="tiles">{tiles}</div>'


def _tile(audit: Audit, name: str, metric: str) -> str:
    """Return one metric of a method: how it changed or, of movement, how much there was."""
    known, change, e = METRICS[metric], audit.changes[name][metric], audit.estimates[name][metric]
    digits = 3 if known.kept is None else 4
    if not known.unit:
        big, small = f"{100 * e.value:.1f} %", f"95 % interval {100 * e.low:.1f} to {100 * e.high:.1f} %"
    elif metric == "S":
        big = f"{printed(audit.estimates['identity'][metric].value)} → {printed(e.value)}"
        small = f"change {with_interval(change, digits, True)}"
    else:
        big, small = printed(change.value, digits, True), brackets(change, digits, True)
    small = re.sub(r"(?<=,) ", "\N{NO-BREAK SPACE}", small)
    return (
        f'<div class="tile"><div class="what">{subscript(known.short)}</div>'
        f'<div class="big">{escape(big)}</div><div class="ci">{escape(small)}</div></div>'
    )


def _rival(audit: Audit, names: list[str], best: str) -> str:
    """Return how the next good method compares, if there is one."""
    good = [n for n in names if n != best and audit.outcome(n, TASK.name) in ("kept", "improved", None)]
    if not good:
        return ""
    try:
        gap = audit.contrast(best, good[0], "S")
    except ValueError:  # different numbers of fits have no paired difference
        return ""
    clear = "Clearly below" if gap.high < 0 else "Not clearly different from"
    return f"{clear} {label(good[0])} (difference {with_interval(gap, 3, True)})."


def _passed_over(audit: Audit, rivals: list[str], best: str) -> str:
    """Return which of its rivals have a lower S than the best and why they are not it."""
    why = {"unclear": "whether it kept the task is not clear", "suffered": "it harmed the task"}
    lower = sorted((audit.estimates[name]["S"].value, name) for name in rivals)
    return " ".join(
        f"{label(name)} has a lower S ({printed(value)}), but {why[status]}."
        for value, name in lower
        if value < audit.estimates[best]["S"].value and (status := audit.outcome(name, TASK.name)) in why
    )


def _chips(audit: Audit, name: str) -> str:
    readable = audit[name].chance.excluded
    source = {
        "improved": ("warn", "↓ source harder to read, still readable")
        if readable
        else ("good", "✓ source indistinguishable from chance"),
        "suffered": ("bad", "✗ source easier to read"),
        "unclear": ("warn", "? source still readable" if readable else "? source: no clear change"),
    }
    chips = [source[str(audit.outcome(name, "S"))]]
    signs = {"improved": "good ✓", "kept": "good ✓", "suffered": "bad ✗", "unclear": "warn ?"}
    for metric in audit.metrics:
        if METRICS[metric].kept is not None:
            outcome = str(audit.outcome(name, metric))
            kind, sign = signs[outcome].split()
            chips.append((kind, f"{sign} task {outcome}, {METRICS[metric].subject}"))
    if audit.n_people < TOO_FEW:  # nothing is green
        chips = [("warn", words.replace("✓", "?")) for _, words in chips] + [("warn", "too few people")]
    chips.append(("", _group(audit, name)))
    if audit[name].n_fits > 1:
        chips.append(("", f"{audit[name].n_fits} fits"))
    spans = "".join(f'<span class="chip {kind}">{words}</span>' for kind, words in chips)
    return f'<div class="chips">{spans}</div>'
