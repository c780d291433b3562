"""Build the benchmark page (figure, sentences and tables) deterministically from stored results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._common.files import write_atomically
from ..audit.bootstrap import contrast
from ..audit.estimates import Estimate, number
from ..audit.plots.drawing import MUTED, PAGE, canvas, figure_bytes, style
from ..audit.plots.palette import MARKERS, colour_of, marker_of
from .datasets import DATASETS
from .methods import METHODS, Method, refit
from .protocol import DRAWS, MEASURES
from .settings import Floats

Results = dict[str, dict[str, Any]]
TITLES = {"worlds": "simulated worlds"} | {data.name: data.title for data in DATASETS.values()}
CEILING = "told regression (ceiling)"
REFITTED = "decoder refitted on calibration rows"
REFERENCE, MIDPOINT = OURS = ("MGPA to the reference", "MGPA to the midpoint")
#: The regressions that correct to the same target and know the device of each row.
TOLD = {REFERENCE: CEILING, MIDPOINT: "told regression (midpoint)"}
CLOSE = 0.02
HOME_LOSS = 0.01
SAME = 0.005  # largest difference between repeated measurements that count as equal
#: Titles of table columns.
HEADS = {"worst": "worst association", "unseen": "unseen device"}


def read_results(folder: Path) -> Results:
    """Return the results in a folder, in page order."""
    stored = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}
    order = [*TITLES, *stored]
    return {name: stored[name] for name in dict.fromkeys(order) if name in stored}


def entries(results: Results) -> list[Method]:
    """Return the methods in the results, beginning with those in this package's list."""
    needs_device: dict[str, bool] = {}
    for _, _, cells in settings_of(results):
        for name, cell in cells.items():
            needs_device[name] = needs_device.get(name, False) or cell.get("told", False)
    listed = [method for method in METHODS if method.name in needs_device]
    others = sorted(needs_device.keys() - {method.name for method in listed})
    return listed + [Method(name, refit, needs_device[name]) for name in others]


def settings_of(results: Results) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield data set, name and cells of each setting."""
    for data, result in results.items():
        for name, cells in result["settings"].items():
            yield data, name, cells


def average(cells: list[dict[str, Any]], measure: str) -> float | None:
    """Return the mean of a measure over settings, or None if no setting has this measure."""
    values = [cell[measure] for cell in cells if measure in cell]
    return float(np.mean([np.ravel(value)[0] for value in values])) if values else None


def looks(methods: list[Method]) -> dict[str, tuple[str, str]]:
    """Return the colour and marker of each method; markers change if two methods would look alike."""
    chosen: dict[str, tuple[str, str]] = {}
    for method in methods:
        color = colour_of(method.key or method.name)
        markers = (marker_of(method.key or method.name), *MARKERS)
        chosen[method.name] = next((color, m) for m in markers if (color, m) not in chosen.values())
    return chosen


def of_method(result: dict[str, Any], method: Method) -> list[dict[str, Any]]:
    """Return the cells of a method for all settings of a data set in which it could be fitted."""
    cells = [cells.get(method.name, {"refused": ""}) for cells in result["settings"].values()]
    return [cell for cell in cells if "refused" not in cell]


def standing(cells: dict[str, Any]) -> dict[str, Any]:
    """Compare MGPA with the best other source-blind method and with regressions that know the device.

    ``first`` states whether MGPA has the highest accuracy away, or the interval of the difference contains
    zero. ``told`` is MGPA minus the regression that knows the device and has the same target, ``ceiling``
    MGPA minus the regression to the reference; ``close`` and ``near_ceiling`` state whether MGPA is at most
    .02 below these. ``home`` (for the reference only) and ``unseen`` are its differences from no correction.
    """
    usable = {name: cell for name, cell in cells.items() if "away" in cell}
    blind = [name for name, cell in usable.items() if not cell["told"] and name not in OURS]
    result: dict[str, Any] = {}
    for name in OURS:
        if name not in usable or not blind:
            continue
        best = max(blind, key=lambda other: usable[other]["away"][0])
        gap = ahead(usable[name], usable[best])
        highest = gap.value >= 0
        result[name] = {"best": best, "gap": gap, "highest": highest, "first": highest or gap.high >= 0}
        if "unseen" in usable[name] and "unseen" in usable.get(METHODS[0].name, ()):
            result[name]["unseen"] = usable[name]["unseen"][0] - usable[METHODS[0].name]["unseen"][0]
        if name == REFERENCE and "home" in usable[name] and "home" in usable.get(METHODS[0].name, ()):
            result[name]["home"] = usable[name]["home"][0] - usable[METHODS[0].name]["home"][0]
        for told, key, near in ((TOLD[name], "told", "close"), (CEILING, "ceiling", "near_ceiling")):
            if told in usable:
                gap = ahead(usable[name], usable[told])
                result[name] |= {key: gap, near: gap.value >= -CLOSE}
    return result


def ahead(one: dict[str, Any], other: dict[str, Any]) -> Estimate:
    """Return the difference in accuracy on other devices between two cells, paired over participants."""
    each = np.array([one["away_of_each"], other["away_of_each"]], dtype=float)
    both = each[:, np.isfinite(each).all(axis=0)]
    return contrast(both[0], both[1], widen=True, n_draws=DRAWS)


def draw(results: Results) -> bytes:
    """Return the figure as SVG: accuracy away against S, with one panel per data set."""
    methods, n = entries(results), len(results)
    columns, look = min(n, 3), looks(methods)
    with style():
        figure, axes = canvas(PAGE, 1.9, n, columns, extra=1.0)
        for ax, (data, result) in zip(axes, results.items(), strict=True):
            readable = average(of_method(result, METHODS[0]), "S")
            for method in methods:
                cells = of_method(result, method)
                if len(cells) < len(result["settings"]):
                    continue
                S, away = average(cells, "S"), average(cells, "away")
                S = readable if method.name.startswith("decoder") else S  # this method uses uncorrected rows
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
        picture = figure_bytes(figure)
    return b"\n".join(line.rstrip() for line in picture.splitlines()) + b"\n"


def sentences(results: Results) -> list[str]:
    """Return three sentences on the results, with counts of settings."""
    every = [cells for _, _, cells in settings_of(results)]
    standings = [standing(cells) for cells in every]

    def count(flag: str, ours: Sequence[str] = OURS) -> str:
        shares = []
        for name in ours:
            if judged := [s[name] for s in standings if flag in s.get(name, ())]:
                n, highest = (sum(s[key] for s in judged) for key in (flag, "highest"))
                also = f"; highest in {highest}" if flag == "first" else ""
                share = f"{n} of {len(judged)} settings, {100 * n / len(judged):.0f} %{also}"
                shares.append(f"{name.removeprefix('MGPA ')} ({share})")
        return " and ".join(shares)

    lines = []
    if first := count("first"):
        lines.append(
            "Among methods that are not told the device, **MGPA decodes best away from home or ties with the "
            f"best** (the interval of the difference contains zero): {first}."
        )
        at_home = [s[REFERENCE] for s in standings if "home" in s.get(REFERENCE, ())]
        falls = [s for s in at_home if s["home"] < -HOME_LOSS]
        if at_home:
            lines[0] += (
                f" With {REFERENCE}, mean accuracy at home falls by more than {number(HOME_LOSS, '.2f')} in "
                f"{len(falls)} of {settings_in_words(len(at_home))}, of which "
                f"{sum(s['first'] for s in falls)} count here as best or tied (stored results give no "
                "interval of this difference)."
            )
    if close := count("close"):
        worse = int(sum(gaps_away(every, CEILING, METHODS[0].name) < 0))
        line = (
            "MGPA is at most .02 below a regression on pairs that is told the device and corrects to the "
            f"same place: {close}. "
        )
        if near := count("near_ceiling", [MIDPOINT]):
            line += f"Below the regression to the reference, where the decoder is at home: {near}. "
        line += f"The regression to the reference is worse than no correction in {settings_in_words(worse)}."
        lines.append(line)
    if len(refitted := gaps_away(every, REFITTED, OURS[0])):
        lines.append(
            "A new decoder, fitted on each device's labelled calibration rows, is better than "
            f"{OURS[0]} in {sum(refitted > 0)} of {len(refitted)} settings."
        )
    return [text for line in lines for text in (line, "")]


def gaps_away(every: list[dict[str, Any]], one: str, other: str) -> Floats:
    """Return the differences in accuracy on other devices of two methods, where both were measured."""
    both = [cells for cells in every if all("away" in cells.get(name, ()) for name in (one, other))]
    return np.array([cells[one]["away"][0] - cells[other]["away"][0] for cells in both], dtype=float)


def where_not(results: Results) -> list[str]:
    """Return settings where MGPA is not first, far below the regression to its target, or harms accuracy."""
    lines = []
    for data, name, cells in settings_of(results):
        for ours, s in standing(cells).items():
            title = f"{TITLES.get(data, data)}, {name}: {ours}"
            if not s["first"]:
                lines.append(f"- {title} {s['gap']:+.3f} against {s['best']}")
            if s.get("home", 0.0) < -HOME_LOSS:
                lines.append(f"- {title} {number(s['home'], '+.3f')} at home, against no correction")
            if not s.get("close", True):
                lines.append(f"- {title} {s['told']:+.3f} against {TOLD[ours]}")
            if s.get("unseen", 0.0) < -CLOSE:
                lines.append(
                    f"- {title} {number(s['unseen'], '+.3f')} on an unseen device, against no correction"
                )
    return lines


def settings_in_words(n: int) -> str:
    """Return "1 setting", "2 settings", …"""
    return f"{n} setting{'s' * (n != 1)}"


def far_from_the_ceiling(results: Results) -> list[str]:
    """Return the settings in which MGPA to the midpoint is far below the regression to the reference."""
    every = [(data, name, standing(cells).get(MIDPOINT, {})) for data, name, cells in settings_of(results)]
    return [
        f"- {TITLES.get(data, data)}, {name}: {s['ceiling']:+.3f}"
        for data, name, s in every
        if not s.get("near_ceiling", True)
    ]


def table(result: dict[str, Any], methods: list[Method]) -> list[str]:
    """Return the table of a data set, with the measures of each method averaged over settings."""
    settings = list(result["settings"].values())
    n_with = {m: sum(any(m in cell for cell in cells.values()) for cells in settings) for m in MEASURES}
    heads = [
        HEADS.get(m, m) + (f" ({settings_in_words(n)})" if n < len(settings) else "")
        for m, n in n_with.items()
        if n
    ]
    rows = [
        [method.name, *_averages(of_method(result, method), n_with), _note(settings, method)]
        for method in methods
        if any(method.name in cells for cells in settings)
    ]
    return markdown(["method", *heads, "note"], rows)


def _averages(cells: list[dict[str, Any]], n_with: dict[str, int]) -> list[str]:
    """Return the means of a method as text, for all measures in the table."""
    values = {m: average(cells, m) for m, n in n_with.items() if n}
    return ["–" if v is None else f"{v:.2g}" if m == "seconds" else number(v) for m, v in values.items()]


def _note(settings: list[dict[str, Any]], method: Method) -> str:
    """Return the note on a method: whether it knows the device, and in how many settings it was fitted."""
    every = [cells[method.name] for cells in settings if method.name in cells]
    refused = [cell["refused"] for cell in every if "refused" in cell]
    some = 0 < len(every) - len(refused) < len(settings)
    mean = [f"mean of {len(every) - len(refused)} of {len(settings)} settings"] * some
    return "; ".join(["told the device"] * method.told + mean + sorted(set(refused))).replace("|", "/")


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]


def origins(result: dict[str, Any], methods: list[Method]) -> str:
    """Return the commit and date of the measurements; methods are named if they differ from the majority."""
    groups: dict[str, list[str]] = {}
    for method in methods:
        every = [cells[method.name] for cells in result["settings"].values() if method.name in cells]
        if every:
            at = dict.fromkeys(part for cell in every for part in cell["measured"].split("; "))
            groups.setdefault("; ".join(at), []).append(method.name)
    others = max(groups, key=lambda at: len(groups[at]))
    named = [f"{', '.join(names)}: {at}" for at, names in groups.items() if at != others]
    return ". ".join([*named, f"All others: {others}" if named else others])


def each_setting(result: dict[str, Any], methods: list[Method]) -> list[str]:
    """Return a table of decoder accuracies on other devices, with one row per setting."""
    rows = []
    for name, cells in result["settings"].items():
        values = [cells.get(method.name, {}).get("away") for method in methods]
        rows.append([name, *("–" if v is None else number(v[0]) for v in values)])
    return markdown(["setting", *(m.name for m in methods)], rows)


def build(folder: Path) -> Path:
    """Write ``results.md`` and ``results.svg`` beside the results in a folder; return the page's path."""
    results = read_results(folder)
    if not results:
        raise FileNotFoundError(f"{folder} has no results of mgpa bench.")
    methods = entries(results)
    write_atomically(folder / "results.svg", draw(results))
    lines = ["![S against accuracy away from home](results.svg)", "", *sentences(results)]
    for title, misses in (
        ("Where MGPA is behind", where_not(results)),
        ("MGPA to the midpoint far below the regression to the reference", far_from_the_ceiling(results)),
    ):
        if misses:
            lines += [f":::{{dropdown}} {title} ({len(misses)})", *misses, ":::", ""]
    for data, result in results.items():
        lines += [f":::{{dropdown}} {TITLES.get(data, data)}: {settings_in_words(len(result['settings']))}"]
        if data in DATASETS:
            source = DATASETS[data]
            cited = f"[{source.citation}]({source.home})" if source.home else source.citation
            how = "made here" if not source.home else "downloaded" if source.fetch else f"`{source.file}`"
            lines += [f"{cited}, {source.license}, {source.size}; {how}.", ""]
        used = ", ".join(f"{name} {version}" for name, version in sorted(result["packages"].items()))
        lines += [*table(result, methods), "", "Decoder away from home:", ""]
        lines += [*each_setting(result, methods), "", f"{origins(result, methods)}. With {used}.", ":::", ""]
    return write_atomically(folder / "results.md", "\n".join(lines).encode())


def compare(folder: Path, other: Path) -> str:
    """Return a summary of differences between two folders of results, for all measures except seconds."""
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
    same = sum(gap <= SAME for gap, _ in gaps)
    return (
        f"{same} of {len(gaps)} measures and their intervals are within {number(SAME)} of {other}; "
        f"the largest difference is {number(largest)} ({where})."
    )
