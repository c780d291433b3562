"""The page: one figure, a few sentences and tables of stored results, always the same from the same files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from .._common.files import write_atomically
from ..audit.bootstrap import contrast, number
from ..audit.plots.drawing import MUTED, PAGE, canvas, style
from ..audit.plots.palette import MARKERS, colour_of, marker_of
from .datasets import DATASETS
from .methods import METHODS, Method
from .protocol import DRAWS, MEASURES

Results = dict[str, dict[str, Any]]
TITLES = {"worlds": "simulated worlds"} | {data.name: data.title for data in DATASETS.values()}
CEILING = "told regression (ceiling)"
OURS = ("MGPA to the reference", "MGPA to the midpoint")
CLOSE = 0.02
#: What columns of tables are called.
HEADS = {"worst": "worst association", "unseen": "unseen device"}


def read_results(folder: Path) -> Results:
    """Return the results in a folder, in the order of the page."""
    stored = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}
    order = [*TITLES, *stored]
    return {name: stored[name] for name in dict.fromkeys(order) if name in stored}


def entries(results: Results) -> list[Method]:
    """Return the methods in the results: those of this package's list first."""
    names = dict.fromkeys(
        name for result in results.values() for cells in result["settings"].values() for name in cells
    )
    listed = [method for method in METHODS if method.name in names]
    others = names.keys() - {method.name for method in listed}
    return listed + [
        Method(name, lambda data, reference: lambda rows, device: rows) for name in sorted(others)
    ]


def settings_of(results: Results) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield data set, setting and cells of every setting."""
    for data, result in results.items():
        for name, cells in result["settings"].items():
            yield data, name, cells


def average(cells: list[dict[str, Any]], measure: str) -> float | None:
    """Return the mean of a measure over settings; None where a setting lacks it."""
    values = [cell.get(measure) for cell in cells]
    if not values or any(value is None for value in values):
        return None
    return float(np.mean([value[0] if isinstance(value, list) else value for value in values]))


def looks(methods: list[Method]) -> dict[str, tuple[str, str]]:
    """Return the project's colour of every method, and its marker, or another where two would look alike."""
    chosen: dict[str, tuple[str, str]] = {}
    for method in methods:
        color = colour_of(method.key or method.name)
        markers = (marker_of(method.key or method.name), *MARKERS)
        chosen[method.name] = next((color, m) for m in markers if (color, m) not in chosen.values())
    return chosen


def of_method(result: dict[str, Any], method: Method) -> list[dict[str, Any]]:
    """Return a method's cells of all settings of a data set; none if one is missing or was refused."""
    cells = [cells.get(method.name, {"refused": ""}) for cells in result["settings"].values()]
    return [] if any("refused" in cell for cell in cells) else cells


def standing(cells: dict[str, Any]) -> dict[str, Any]:
    """Return how far MGPA is from the best other source-blind method and from the ceiling, in accuracy away.

    ``first`` says whether its accuracy is highest, or the interval of the difference contains zero; ``close``
    whether the ceiling is at most .02 above it.
    """
    usable = {name: cell for name, cell in cells.items() if "away" in cell}
    blind = [m.name for m in METHODS if not m.told and m.name not in OURS and m.name in usable]
    result: dict[str, Any] = {}
    for name in OURS:
        if name not in usable or not blind:
            continue
        best = max(blind, key=lambda other: usable[other]["away"][0])
        mine, other = (np.array(usable[n]["away_of_each"], dtype=float) for n in (name, best))
        both = np.isfinite(mine) & np.isfinite(other)
        gap = contrast(mine[both], other[both], widen=True, n_draws=DRAWS)
        result[name] = {"best": best, "gap": gap, "first": gap.value >= 0 or gap.high >= 0}
        if CEILING in usable:
            below = usable[CEILING]["away"][0] - usable[name]["away"][0]
            result[name] |= {"below": below, "close": below <= CLOSE}
    return result


def draw(results: Results) -> bytes:
    """Return the figure: S against accuracy away, a panel for each data set, as SVG."""
    methods, n = entries(results), len(results)
    columns, look = min(n, 3), looks(methods)
    with style():
        figure, axes = canvas(PAGE, 1.9, n, columns, extra=1.0)
        for ax, (data, result) in zip(axes, results.items(), strict=True):
            readable = average(of_method(result, METHODS[0]), "S")
            for method in methods:
                cells = of_method(result, method)
                S, away = average(cells, "S"), average(cells, "away")
                S = readable if method.name.startswith("decoder") else S  # whose rows are uncorrected
                if S is None or away is None:
                    continue
                color, marker = look[method.name]
                ax.plot(S, away, marker, color=color, ls="", mew=0.9, ms=5, label=method.name,
                        mfc="none" if method.told else color)  # fmt: skip
            ax.axvline(0.5, color=MUTED, ls=":", lw=0.8)
            ax.set_title(f"{TITLES.get(data, data)} ({len(result['settings'])})")
        for place, ax in enumerate(axes):
            if place >= n - columns:
                ax.set_xlabel("source readable, S (AUROC)")
            if place % columns == 0:
                ax.set_ylabel("decoder away from home")
        handles = {
            text: handle for ax in axes for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
        stream = BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return b"\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + b"\n"


def sentences(results: Results) -> list[str]:
    """Return what the results show, counted over settings."""
    counted = [(data, name, standing(cells)) for data, name, cells in settings_of(results)]
    lines = []
    for ours in OURS:
        judged = [(data, name, s[ours]) for data, name, s in counted if ours in s]
        if not judged:
            continue
        first = [s["first"] for _, _, s in judged]
        close = [s["close"] for _, _, s in judged if "close" in s]
        line = (
            f"**{ours}** has the highest accuracy away from home of all source-blind methods, or is tied "
            f"with the best other by the interval of the difference, in {_share(first)} settings."
        )
        if close:
            line += f" It is within .02 of a regression that is told the device in {_share(close)}."
        lines += [line, ""]
    return lines


def _share(flags: list[bool]) -> str:
    return f"{sum(flags)} of {len(flags)} ({100 * sum(flags) / len(flags):.0f} %)"


def where_not(results: Results) -> list[str]:
    """Return the settings where MGPA is not first, and those where the ceiling is far, as lines of a list."""
    lines = []
    for data, name, cells in settings_of(results):
        for ours, s in standing(cells).items():
            title = f"{TITLES.get(data, data)}, {name}: {ours}"
            if not s["first"]:
                lines.append(f"- {title} {s['gap']:+.3f} against {s['best']}")
            if not s.get("close", True):
                lines.append(f"- {title} {number(-s['below'], '+.3f')} against the ceiling")
    return lines


def table(result: dict[str, Any], methods: list[Method]) -> list[str]:
    """Return a table of a data set: each method's measures averaged over settings, refusals as dashes."""
    shown = [
        m
        for m in MEASURES
        if any(m in cell for cells in result["settings"].values() for cell in cells.values())
    ]
    lines = [
        "| method | " + " | ".join(HEADS.get(m, m) for m in shown) + " | note |",
        "|---" * (len(shown) + 2) + "|",
    ]
    for method in methods:
        every = [cells[method.name] for cells in result["settings"].values() if method.name in cells]
        if not every:
            continue
        refused = sorted({cell["refused"] for cell in every if "refused" in cell})
        cells = of_method(result, method)
        values = [average(cells, measure) for measure in shown]
        texts = [
            "–" if v is None else f"{v:.2g}" if m == "seconds" else number(v)
            for m, v in zip(shown, values, strict=True)
        ]
        note = "; ".join([*(["told the device"] * method.told), *refused])
        lines.append(f"| {method.name} | " + " | ".join(texts) + f" | {note.replace('|', '/')} |")
    return lines


def each_setting(result: dict[str, Any], methods: list[Method]) -> list[str]:
    """Return a table of accuracies away from home: a row for each setting."""
    lines = ["| setting | " + " | ".join(m.name for m in methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name, cells in result["settings"].items():
        values = [cells.get(method.name, {}).get("away") for method in methods]
        lines.append(f"| {name} | " + " | ".join("–" if v is None else number(v[0]) for v in values) + " |")
    return lines


def build(folder: Path) -> Path:
    """Write ``results.md`` and ``results.svg`` beside the results in a folder, and return the page."""
    results = read_results(folder)
    if not results:
        raise FileNotFoundError(f"{folder} has no results of mgpa bench.")
    methods = entries(results)
    write_atomically(folder / "results.svg", draw(results))
    lines = ["![S against accuracy away from home](results.svg)", "", *sentences(results)]
    if misses := where_not(results):
        lines += [
            f":::{{dropdown}} Where MGPA is not best, or the ceiling is far ({len(misses)})",
            *misses,
            ":::",
            "",
        ]
    for data, result in results.items():
        n = len(result["settings"])
        lines += [f":::{{dropdown}} {TITLES.get(data, data)}: {n} setting{'s' * (n > 1)}"]
        if data in DATASETS:
            source = DATASETS[data]
            lines += [f"[{source.citation}]({source.home}), {source.license}, {source.size}.", ""]
        made = "; ".join(
            f"commit {commit or 'unknown'}, {date}" for commit, date in result["measured"].items()
        )
        lines += [*table(result, methods), "", "Decoder away from home:", ""]
        lines += [*each_setting(result, methods), "", f"mgpa {result['mgpa']}, {made}.", ":::", ""]
    return write_atomically(folder / "results.md", "\n".join(lines).encode())
