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
from .methods import METHODS, Method, refit
from .protocol import DRAWS, MEASURES
from .settings import Floats

Results = dict[str, dict[str, Any]]
TITLES = {"worlds": "simulated worlds"} | {data.name: data.title for data in DATASETS.values()}
CEILING = "told regression (ceiling)"
REFITTED = "decoder refitted on calibration rows"
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
    needs_device: dict[str, bool] = {}
    for _, _, cells in settings_of(results):
        for name, cell in cells.items():
            needs_device[name] = needs_device.get(name, False) or cell.get("told", False)
    listed = [method for method in METHODS if method.name in needs_device]
    others = sorted(needs_device.keys() - {method.name for method in listed})
    return listed + [Method(name, refit, needs_device[name]) for name in others]


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
    """Return the colour and marker of every method; a marker changes if two methods would look alike."""
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
    blind = [name for name, cell in usable.items() if not cell["told"] and name not in OURS]
    result: dict[str, Any] = {}
    for name in OURS:
        if name not in usable or not blind:
            continue
        best = max(blind, key=lambda other: usable[other]["away"][0])
        ours_of_each, other = (np.array(usable[n]["away_of_each"], dtype=float) for n in (name, best))
        both = np.isfinite(ours_of_each) & np.isfinite(other)
        gap = contrast(ours_of_each[both], other[both], widen=True, n_draws=DRAWS)
        highest = gap.value >= 0
        result[name] = {"best": best, "gap": gap, "highest": highest, "first": highest or gap.high >= 0}
        if "unseen" in usable[name] and "unseen" in usable.get(METHODS[0].name, ()):
            result[name]["unseen"] = usable[name]["unseen"][0] - usable[METHODS[0].name]["unseen"][0]
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
                ax.set_ylabel("accuracy away from home")
        handles = {
            text: handle for ax in axes for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        title = "filled: not told which device recorded a row; hollow: told"
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, title=title)
        stream = BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return b"\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + b"\n"


def sentences(results: Results) -> list[str]:
    """Return what the results show in three sentences, counted over settings."""
    every = [cells for _, _, cells in settings_of(results)]
    standings = [standing(cells) for cells in every]

    def count(flag: str, alone: str = "") -> str:
        counts = []
        for ours in OURS:
            judged = [s[ours] for s in standings if flag in s.get(ours, ())]
            if judged:
                n = sum(s[flag] for s in judged)
                share = f"{n} of {len(judged)} settings, {100 * n / len(judged):.0f} %"
                also = f"; {alone} in {sum(s[alone] for s in judged)}" if alone else ""
                counts.append(f"{ours.removeprefix('MGPA ')} ({share}{also})")
        return " and ".join(counts)

    lines = []
    if first := count("first", "highest"):
        lines.append(
            "Among methods that are not told the device, **MGPA decodes best away from home or ties with the "
            f"best** (the interval of the difference contains zero): {first}."
        )
    if close := count("close"):
        worse = sum(gaps_away(every, CEILING, METHODS[0].name) < 0)
        lines.append(
            f"MGPA is at most .02 below a regression on pairs that is told the device: {close}; this "
            f"regression is itself worse than no correction in {worse} settings."
        )
    if len(refitted := gaps_away(every, REFITTED, OURS[0])):
        lines.append(
            "A new decoder, fitted on each device's labelled calibration rows, is better than "
            f"{OURS[0]} in {sum(refitted > 0)} of {len(refitted)} settings."
        )
    return [text for line in lines for text in (line, "")]


def gaps_away(every: list[dict[str, Any]], one: str, other: str) -> Floats:
    """Return how much more accurate one method is away from home than another, where both were measured."""
    both = [cells for cells in every if all("away" in cells.get(name, ()) for name in (one, other))]
    return np.array([cells[one]["away"][0] - cells[other]["away"][0] for cells in both], dtype=float)


def where_not(results: Results) -> list[str]:
    """Return where MGPA is not first, where the ceiling is far, and where it harms an unseen device."""
    lines = []
    for data, name, cells in settings_of(results):
        for ours, s in standing(cells).items():
            title = f"{TITLES.get(data, data)}, {name}: {ours}"
            if not s["first"]:
                lines.append(f"- {title} {s['gap']:+.3f} against {s['best']}")
            if not s.get("close", True):
                lines.append(f"- {title} {number(-s['below'], '+.3f')} against the ceiling")
            if s.get("unseen", 0.0) < -CLOSE:
                lines.append(
                    f"- {title} {number(s['unseen'], '+.3f')} on an unseen device, against no correction"
                )
    return lines


def table(result: dict[str, Any], methods: list[Method]) -> list[str]:
    """Return a table of a data set: each method's measures averaged over settings, refusals as dashes."""
    measures = [
        m
        for m in MEASURES
        if any(m in cell for cells in result["settings"].values() for cell in cells.values())
    ]
    lines = [
        "| method | " + " | ".join(HEADS.get(m, m) for m in measures) + " | note |",
        "|---" * (len(measures) + 2) + "|",
    ]
    for method in methods:
        every = [cells[method.name] for cells in result["settings"].values() if method.name in cells]
        if not every:
            continue
        refused = sorted({cell["refused"] for cell in every if "refused" in cell})
        cells = of_method(result, method)
        values = [average(cells, measure) for measure in measures]
        texts = [
            "–" if v is None else f"{v:.2g}" if m == "seconds" else number(v)
            for m, v in zip(measures, values, strict=True)
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
            f":::{{dropdown}} Where MGPA is behind ({len(misses)})",
            *misses,
            ":::",
            "",
        ]
    for data, result in results.items():
        n = len(result["settings"])
        lines += [f":::{{dropdown}} {TITLES.get(data, data)}: {n} setting{'s' * (n > 1)}"]
        if data in DATASETS:
            source = DATASETS[data]
            cited = f"[{source.citation}]({source.home})" if source.home else source.citation
            how = "made here" if not source.home else "downloaded" if source.fetch else f"`{source.file}`"
            lines += [f"{cited}, {source.license}, {source.size}; {how}.", ""]
        made = "; ".join(
            f"commit {commit or 'unknown'}, {date}" for commit, date in result["measured"].items()
        )
        used = ", ".join(f"{name} {version}" for name, version in result["packages"].items())
        lines += [*table(result, methods), "", "Decoder away from home:", ""]
        lines += [*each_setting(result, methods), "", f"mgpa {result['mgpa']}, {made}; {used}.", ":::", ""]
    return write_atomically(folder / "results.md", "\n".join(lines).encode())


def compare(folder: Path, other: Path) -> str:
    """Return how far two folders of results are apart: every value and interval but seconds."""
    gaps: list[tuple[float, str]] = []
    other_cells = {(data, name): cells for data, name, cells in settings_of(read_results(other))}
    for data, name, cells in settings_of(read_results(folder)):
        for method, cell in cells.items():
            held = other_cells.get((data, name), {}).get(method, {})
            for measure in MEASURES[:-1]:
                if measure in cell and measure in held:
                    gap = float(np.max(np.abs(np.subtract(cell[measure], held[measure]))))
                    gaps.append((gap, f"{measure} of {method} in {data}, {name}"))
    if not gaps:
        return f"{folder} and {other} have no method, setting and measure in common."
    largest, where = max(gaps)
    return f"Largest difference of {len(gaps)} measures from {other}: {number(largest)} ({where})."
