"""Which method is best here, what each of them did, and how sure that is."""

from __future__ import annotations

from html import escape

from ..looks import label
from ..result import FEW, KEPT, Audit
from .pieces import brackets, bullets, method, number, subscript, with_interval


def source_status(audit: Audit, name: str) -> str:
    """Return what became of the source: "fell", "rose" or "unclear"."""
    change = audit.changes[name]["S"]
    return "fell" if change.high < 0 else "rose" if change.low > 0 else "unclear"


def task_status(audit: Audit, name: str, metric: str = "T_f") -> str | None:
    """Return what became of the task: "improved", "kept", "suffered" or "unclear"; None if not measured."""
    if metric not in audit.metrics:
        return None
    change = audit.changes[name][metric]
    if change.low > 0:
        return "improved"
    if change.low >= -KEPT:
        return "kept"
    return "suffered" if change.high < 0 else "unclear"


def ranking(audit: Audit) -> tuple[list[str], str | None]:
    """Return the methods, the best first, and the best if there is one.

    The best has the lowest S of those that lowered it and kept (or improved) the task for existing heads.
    Methods that harmed the task come last, however low their S.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}

    def place(name: str) -> tuple[int, bool, float]:
        fell = source_status(audit, name) == "fell"
        # Numbers of a map that was fitted on the people who judge it do not count.
        last = 3 if audit[name].fitted_on else places[task_status(audit, name)]
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
        task = " while clearly keeping the task" if "T_f" in audit.metrics else ""
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
    changes, status = audit.changes[best], task_status(audit, best)
    say = f"The best reader of the source fell from AUROC {number(before.value)} to {number(after.value)}"
    say += ", which these readers do not tell from chance" if after.low <= 0.5 else ""
    say += {
        "kept": f"; existing task heads kept their AUROC to within {number(KEPT, 2)}.",
        "improved": "; existing task heads got better.",
        None: ". The table has no labels, so what happened to the task is not known.",
    }[status]
    why = "The lowest S"
    if status is not None:
        why += f" among methods that kept the task (a loss above {number(KEPT, 2)} is excluded)"
    why += f" of the {len(names)} audited." if len(names) > 1 else "."
    S = f"{number(before.value)} → {number(after.value)}"
    tiles = [("S: can the source be read?", S, f"change {with_interval(changes['S'], 3, True)}")]
    for metric, words, digits in (
        ("T_f", "T_f: existing task heads", 4),
        ("T_r", "T_r: refitted task heads", 4),
        ("worst", "Shortcut head at its worst", 3),
    ):
        if metric in audit.metrics:
            e = changes[metric]
            tiles.append((words, number(e.value, digits, True), brackets(e, digits, True)))
    M = audit.estimates[best]["M"]
    size = f"95 % interval {100 * M.low:.1f} to {100 * M.high:.1f} %"
    tiles.append(("M: how far rows moved", f"{100 * M.value:.1f} %", size))
    shown = "".join(
        f'<div class="tile"><div class="what">{subscript(what)}</div>'
        f'<div class="big">{escape(big)}</div><div class="ci">{escape(ci)}</div></div>'
        for what, big, ci in tiles
    )
    return (
        f'<article class="card best"><p class="eyebrow">Best here</p><h3>{method(audit, best)}</h3>'
        f'{_chips(audit, best)}<p class="say">{escape(say)}</p>'
        f'<p class="lede">{escape(why)} {escape(_rival(audit, names, best))} '
        f'{escape(_passed_over(audit, best))}</p><div class="tiles">{shown}</div>{lines}</article>'
    )


def _rival(audit: Audit, names: list[str], best: str) -> str:
    """Return how the next good method compares, if there is one."""
    good = [n for n in names if n != best and task_status(audit, n) in ("kept", "improved", None)]
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
        if value < audit.estimates[best]["S"].value and (status := task_status(audit, name)) in why
    )


def _chips(audit: Audit, name: str) -> str:
    source = {
        "fell": ("good", "✓ source harder to read"),
        "rose": ("bad", "✗ source easier to read"),
        "unclear": ("warn", "? source: no clear change"),
    }
    chips = [source[source_status(audit, name)]]
    signs = {"improved": "good ✓", "kept": "good ✓", "suffered": "bad ✗", "unclear": "warn ?"}
    for metric, words in (("T_f", "task"), ("T_r", "task after refitting")):
        status = task_status(audit, name, metric)
        if status is not None:
            kind, sign = signs[status].split()
            chips.append((kind, f"{sign} {words} {status}"))
    chips.append(("", "source-blind" if audit[name].source_blind else "source-aware"))
    if audit[name].n_fits > 1:
        chips.append(("", f"{audit[name].n_fits} fits"))
    spans = "".join(f'<span class="chip {kind}">{words}</span>' for kind, words in chips)
    return f'<div class="chips">{spans}</div>'
