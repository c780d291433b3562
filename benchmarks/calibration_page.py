"""The picture and the tables of docs/how_often_wrong.md, from benchmarks/calibration.json.

    python benchmarks/calibration_page.py                  # writes the page and how_often_wrong/rates.svg
    python benchmarks/calibration_page.py --add more.json  # puts rates of another run into the file first

Everything between the page's markers is replaced, and nothing else. A fold says when its rates were measured;
one of another day has that day beside it, one without a day a star.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from calibration import CELLS, DESIGNS, N_FITS, PEOPLE, RECORD, Cell, number
from mgpa.audit.plots.drawing import CHANCE, MUTED, PAGE, canvas, figure_bytes, style
from mgpa.audit.plots.palette import COLORS
from page import DOCS, fill

NOISES, PAIRS = (0.1, 0.5, 1.0, 2.0), (20, 60, 200)
KINDS = {"normal": "", "heavy": ", heavy-tailed", "uneven": ", uneven"}
SHAPES = {
    "normal": "normal", "heavy": "heavy-tailed", "skewed": "exponential", "lognormal": "lognormal",
    "one in ten": "one in ten changes much",
}  # fmt: skip
UNITS = (4, 6, 8, 12, 24)


class Rates:
    """Rates by cell, each with its day."""

    def __init__(self, record: dict, day: str = "") -> None:
        self.record, self.day, self.days = record, day, []

    def get(self, cell: Cell | str, what: str = "false") -> float | None:
        """Return a rate; None where it was not measured."""
        return self.record.get(str(cell), {}).get(what)

    def text(self, cell: Cell | str, *parts: tuple[str, int]) -> str:
        """Return rates as the page writes them: the first, others in brackets, and the day if it is older."""
        values = [number(self.get(cell, what), digits) for what, digits in parts]
        if not values[0]:
            return ""
        day = self.record[str(cell)].get("date", "")
        self.days.append(day)
        older = "" if day == self.day else f", {day[5:]}" if day else "*"
        rest = [value for value in values[1:] if value]
        return values[0] + (f" ({', '.join(rest)})" if rest else "") + older

    def folded(self, text: Callable[["Rates"], str]) -> str:
        """Return a folded table, with the day on which most of its rates were measured."""
        seen = Rates(self.record)
        text(seen)
        day = (Counter(filter(None, seen.days)).most_common(1) or [("",)])[0][0]
        measured = f", measured on {day}" if day else ""
        summary = f"<details><summary>The numbers{measured}</summary>"
        return "\n".join([summary, "", text(Rates(self.record, day)), "", "</details>"])


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def acting(rates: Rates) -> str:
    """Return how often the closed form acts."""
    rows: dict[tuple[str, ...], dict[int, str]] = {}
    for cell in CELLS:
        extra = [cell.rows] * (cell.rows != "normal") + ["unequal people"] * cell.unequal
        extra += [f"d = {cell.features}"] * (cell.features != 10)
        kind = (cell.design, str(cell.sources), ", ".join(extra) or "normal")
        people = 6 if cell.rows == "alone" else cell.people
        rows.setdefault(kind, {})[people] = rates.text(cell, ("false", 3), ("power", 2))
    head = ["design", "sources", "rows", *map(str, PEOPLE[:-1]), f"{PEOPLE[-1]} people"]
    return table(head, [[*kind, *(row.get(P, "") for P in PEOPLE)] for kind, row in rows.items()])


def decisions(rates: Rates) -> str:
    """Return the error rates of the other decisions."""
    wide = {"features": 20}
    lines = {
        ("a gate has a direction", ".01"): [Cell("gate", people=P) for P in (2, *PEOPLE)],
        ("the same; one person has 100 pairs, the others 8", ".01"): [
            Cell("gate", people=P, unequal=True) for P in (4, 6, 12)
        ],
        ("a gate has a second direction, four sources", ".01"): [
            Cell("more", people=P, sources=4, features=40) for P in (6, 12)
        ],
        ("the same, all pairs with one source (star)", ".01"): [
            Cell("more", "star", P, sources=4, features=40) for P in (6, 12)
        ],
        ("the iterative correction begins, crossed", ".05"): [Cell("begin", people=P) for P in (6, 12)],
        ("the same, nested", ".05"): [Cell("begin", "nested", P) for P in (6, 12)],
        ("it goes on after the closed form removed a shift", ".16"): [
            Cell("go on", people=P) for P in (6, 12)
        ],
        ("spread is corrected", ".05"): [Cell("spread", people=P, **wide) for P in PEOPLE],
        ("the same, heavy-tailed rows", ".05"): [Cell("spread", people=8, rows="heavy", **wide)],
        ("the same, participants unknown", ".05"): [Cell("spread", people=8, rows="alone", **wide)],
        ("spread is found; 200 windows, each .9 of the one before", ".05"): [Cell("windows", rows="alone")],
    }
    rows = []
    for (words, nominal), cells in lines.items():
        measured = [(cell, rates.text(cell, ("false", 3), ("power", 2))) for cell in cells]
        said = "; ".join(
            text if cell.rows == "alone" else f"{cell.people}: {text}" for cell, text in measured if text
        )
        fits = rates.get(cells[0], "fits")
        rows.append([words if fits == N_FITS else f"{words} ({fits} fits)", nominal, said])
    return table(["decision", "nominal", "people: measured (power)"], rows)


def wrong_pairs(rates: Rates) -> str:
    """Return how often right pairs are doubted, and shuffled ones found."""
    rows = []
    for noise in NOISES:
        for rows_kind, words in KINDS.items():
            row = [f"{noise:g}{words}"]
            for P in PAIRS:
                settings = {"people": P, "features": 16, "noise": noise, "rows": rows_kind}
                doubt, refuse = Cell("doubt", **settings), Cell("refuse", **settings)
                right = rates.text(doubt, ("false", 3))
                found = f"{number(rates.get(refuse, 'power'), 2)} ({number(rates.get(doubt, 'power'), 2)})"
                shuffled = number(rates.get(Cell("mismatched", **settings), "power"), 2)
                row.append(", ".join(filter(None, [right, found, shuffled])) if right else "")
            rows.append(row)
    return table(["noise", *(f"{P} pairs" for P in PAIRS)], rows)


def associated(rates: Rates) -> str:
    """Return how often the closed form acts, without a warning, where task and source agree."""
    rows = []
    for association in (0.75, 0.9):
        for cosine in (0.0, 0.3, 0.7):
            settings = {"people": 12, "association": association, "cosine": cosine}
            cells = [Cell("associated", design, **settings) for design in DESIGNS]
            texts = [rates.text(cell, ("false", 3), ("power", 2)) for cell in cells]
            rows.append([number(association, 2), f"{cosine:g}", *texts])
    return table(["association", "cosine of task and shift", *DESIGNS], rows)


def losses(rates: Rates) -> str:
    """Return how often a task is called kept, or improved, wrongly."""
    rows = [
        [str(n), *(rates.text(f"kept {shape} P={n}", ("false", 3), ("improved", 3)) for shape in SHAPES)]
        for n in UNITS
    ]
    return table(["people", *SHAPES.values()], rows)


def draw(rates: Rates) -> bytes:
    """Return the picture: errors and power against people, noise of pairs, and shapes of losses."""
    with style():
        figure, axes = canvas(PAGE, 2.1, 4, 2, extra=0.2)
        errors, power, pairs, claims = axes
        wide = {"features": 20}
        shown = {
            "a shift is corrected, crossed": [Cell(people=P) for P in PEOPLE],
            "the same, nested": [Cell(design="nested", people=P) for P in PEOPLE],
            "spread is corrected": [Cell("spread", people=P, **wide) for P in PEOPLE],
            "a gate has a direction": [Cell("gate", people=P) for P in PEOPLE],
        }
        for i, (words, cells) in enumerate(shown.items()):
            look = {"color": COLORS[i + 1], "marker": "osD^"[i], "label": words}
            curve(errors, PEOPLE, [rates.get(cell) for cell in cells], **look)
            curve(power, PEOPLE, [rates.get(cell, "power") for cell in cells], **look)
        errors.axhline(0.05, **CHANCE)
        errors.set(ylim=(0, 0.1), title="No effect: how often one is found", ylabel="error rate")
        power.set(ylim=(0, 1.03), title="An effect: how often it is found", ylabel="power")
        for i, P in enumerate(PAIRS):
            cells = [Cell("doubt", people=P, features=16, noise=noise) for noise in NOISES]
            look = {"color": COLORS[i + 1], "marker": "osD"[i]}
            curve(pairs, NOISES, [rates.get(cell, "power") for cell in cells], label=f"{P} pairs", **look)
            curve(pairs, NOISES, [rates.get(cell) for cell in cells], ls=":", mfc="none", **look)
        pairs.plot([], [], color=MUTED, ls=":", label="none is shuffled")
        pairs.set(ylim=(-0.02, 1.03), title="A fifth of pairs is shuffled: doubted", ylabel="share of fits")
        for i, (shape, words) in enumerate(SHAPES.items()):
            look = {"color": COLORS[i + 1], "marker": "osD^v"[i], "label": words}
            curve(claims, UNITS, [rates.get(f"kept {shape} P={n}") for n in UNITS], **look)
        claims.axhline(0.05, **CHANCE)
        claims.set(ylim=(-0.01, 0.72), title="A loss of .01: called kept", ylabel="error rate")
        for ax, words in zip(axes, ("people", "people", "noise of a view", "people scored"), strict=True):
            ax.set(xscale="log", xlabel=words)
            ticks = {"people": PEOPLE, "noise of a view": NOISES}.get(words, UNITS)
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
            if ax is not power:
                ax.legend(loc="upper right" if ax is errors else "best")
        picture = figure_bytes(figure)
    return b"\n".join(line.rstrip() for line in picture.splitlines()) + b"\n"


def curve(ax, x, y, **look) -> None:
    """Draw the points that were measured."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
    if points:
        ax.plot(*zip(*points, strict=True), **look)


TABLES = {
    "acting": acting,
    "decisions": decisions,
    "pairs": wrong_pairs,
    "associated": associated,
    "losses": losses,
}


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="JSON files of other runs")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text())
    for path in options.add:
        record |= json.loads(path.read_text())
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    rates, path = Rates(record), DOCS / "how_often_wrong.md"
    page = path.read_text("utf-8")
    for name, text in TABLES.items():
        page = fill(page, name, rates.folded(text))
    path.write_text(page, "utf-8")
    picture = DOCS / "how_often_wrong" / "rates.svg"
    picture.parent.mkdir(exist_ok=True)
    picture.write_bytes(draw(rates))


if __name__ == "__main__":
    main()
