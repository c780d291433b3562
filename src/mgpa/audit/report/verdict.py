"""Which method is best here, what each of them did, and how sure that is."""

from __future__ import annotations

from html import escape

from ..looks import label
from ..metrics import METRICS
from ..result import FEW, Audit
from .pieces import brackets, bullets, method, number, subscript, with_interval

# A method is judged by what it did to existing heads.
TASK = METRICS["T_f"]


def ranking(audit: Audit) -> tuple[list[str], str | None]:
    """Return the methods, the best first, and the best if there is one.

    The best has the lowest S of those that lowered it and kept (or improved) the task for existing heads.
    Methods that harmed the task come last, however low their S.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}

    def place(name: str) -> tuple[int, bool, float]:
        fell = audit.outcome(name, "S") == "improved"
        # Numbers of a map that was fitted on the people who judge it do not count.
        last = 3 if audit[name].fitted_on else places[audit.outcome(name, TASK.name)]
        return last, not fell, audit.estimates[name]["S"].value

    names = sorted(audit.methods[1:], key=place)
    return names, names[0] if names and place(names[0])[:2] == (0, False) else None


def verdict(audit: Audit) -> str:
    """Return a card for the best method, one for each other, and what limits them."""
    names, best = ranking(audit)
    if not names:
        return "<p>Only uncorrected embeddings were audited; there is nothing to compare.</p>"
    n = len(audit["identity"].participants)
    said = {name: audit.verdict(name) for name in names}
    # What is the same for everybody is said once, below; of one method, that is what follows its results.
    sure = [line for line in said[names[0]] if all(line in lines for lines in said.values())]
    if len(names) == 1:
        sure = sure[-2:] if n < FEW else sure[-1:]
    own = {name: bullets(line for line in lines if line not in sure) for name, lines in said.items()}
    if best is not None:
        first = _best_card(audit, names, best, own[best])
    else:
        task = " while clearly keeping the task" if TASK.name in audit.metrics else ""
        first = (
            f'<div class="card best"><h3>No method clearly lowered the source{task}.</h3>'
            '<p class="say">What each of them did is below. '
            "With more participants the intervals may become narrow enough to tell.</p></div>"
        )
    cards = "".join(
        f'<article class="card"><h3>{method(audit, name)}</h3>{_chips(audit, name)}{own[name]}</article>'
        for name in names
        if name != best
    )
    if len(names) > 1 and best is not None:
        sure.append(
            "The best method was picked on the same participants it is reported on, which flatters it a "
            "little; confirm it on new people."
        )
    others = f'<div class="cards">{cards}</div>' if cards else ""
    return f'{first}\n{others}\n<div class="note"><h3>How sure is this?</h3>{bullets(sure)}</div>'


def _best_card(audit: Audit, names: list[str], best: str, lines: str) -> str:
    before, after = audit.estimates["identity"]["S"], audit.estimates[best]["S"]
    status = audit.outcome(best, TASK.name)
    say = f"The best reader of the source fell from AUROC {number(before.value)} to {number(after.value)}"
    say += ", which these readers do not tell from chance" if after.low <= 0.5 else ""
    say += {
        "kept": f"; existing task heads kept their AUROC to within {number(TASK.kept, 2)}.",
        "improved": "; existing task heads got better.",
        None: ". The table has no labels, so what happened to the task is not known.",
    }[status]
    why = "The lowest S"
    if status is not None:
        why += f" among methods that kept the task (a loss above {number(TASK.kept, 2)} is excluded)"
    why += f" of the {len(names)} audited." if len(names) > 1 else "."
    shown = "".join(_tile(audit, best, metric) for metric in audit.metrics)
    return (
        f'<article class="card best"><p class="eyebrow">Best here</p><h3>{method(audit, best)}</h3>'
        f'{_chips(audit, best)}<p class="say">{escape(say)}</p>'
        f'<p class="lede">{escape(why)} {escape(_rival(audit, names, best))} '
        f'{escape(_passed_over(audit, best))}</p><div class="tiles">{shown}</div>{lines}</article>'
    )


def _tile(audit: Audit, name: str, metric: str) -> str:
    """Return one metric of the best method: how it changed or, of movement, how much there was."""
    known, change, e = METRICS[metric], audit.changes[name][metric], audit.estimates[name][metric]
    digits = 3 if known.kept is None else 4
    if not known.unit:
        big, small = f"{100 * e.value:.1f} %", f"95 % interval {100 * e.low:.1f} to {100 * e.high:.1f} %"
    elif metric == "S":
        big = f"{number(audit.estimates['identity'][metric].value)} → {number(e.value)}"
        small = f"change {with_interval(change, digits, True)}"
    else:
        big, small = number(change.value, digits, True), brackets(change, digits, True)
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


def _passed_over(audit: Audit, best: str) -> str:
    """Return which methods have a lower S than the best and why they are not it."""
    why = {"unclear": "whether it kept the task is not clear", "suffered": "it harmed the task"}
    lower = sorted((audit.estimates[name]["S"].value, name) for name in audit.changes)
    return " ".join(
        f"{label(name)} has a lower S ({number(value)}), but {why[status]}."
        for value, name in lower
        if value < audit.estimates[best]["S"].value and (status := audit.outcome(name, TASK.name)) in why
    )


def _chips(audit: Audit, name: str) -> str:
    source = {
        "improved": ("good", "✓ source harder to read"),
        "suffered": ("bad", "✗ source easier to read"),
        "unclear": ("warn", "? source: no clear change"),
    }
    chips = [source[str(audit.outcome(name, "S"))]]
    signs = {"improved": "good ✓", "kept": "good ✓", "suffered": "bad ✗", "unclear": "warn ?"}
    for metric in audit.metrics:
        if METRICS[metric].kept is not None:
            outcome = str(audit.outcome(name, metric))
            kind, sign = signs[outcome].split()
            chips.append((kind, f"{sign} task {outcome}, {METRICS[metric].subject}"))
    chips.append(("", "source-blind" if audit[name].source_blind else "source-aware"))
    if audit[name].n_fits > 1:
        chips.append(("", f"{audit[name].n_fits} fits"))
    spans = "".join(f'<span class="chip {kind}">{words}</span>' for kind, words in chips)
    return f'<div class="chips">{spans}</div>'
