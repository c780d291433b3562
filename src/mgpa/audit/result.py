"""What an audit found: estimates with intervals, contrasts between methods, and a verdict in words."""

from __future__ import annotations

import hashlib
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Parameter, Signature
from itertools import dropwhile
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import missing
from .._common.files import write_atomically
from .._common.markup import text_table
from ..errors import MissingEvidence, printable
from ..tables.table import Table
from . import sentences
from .bootstrap import Estimate, contrast
from .design import Design
from .diagnostics import Confounding, Reliability, reliability
from .method_result import MethodResult
from .metrics import METRICS

if TYPE_CHECKING:
    from .pair_check import PairCheck

Floats = NDArray[np.float64]

# Characters of a printed table; metrics that do not fit follow below.
LINE = 100


def _plots() -> Any:
    from . import plots

    return plots


def _drawn(name: str, what: str, **first: Any) -> Callable[..., Any]:
    """Return a method that draws one of the figures of :mod:`mgpa.audit.plots`; it takes what that takes.

    ``first`` are the parameters that may be passed without their names, for help and completion.
    """

    def draw(self: Audit, *arguments: Any, **options: Any) -> Any:
        plots = _plots()
        return plots.stamped(self, getattr(plots, name)(self, *arguments, **options))

    draw.__name__, draw.__qualname__ = name, f"Audit.{name}"
    draw.__doc__ = f"Draw {what} (:func:`mgpa.audit.plots.{name}`)."
    plain = Parameter.POSITIONAL_OR_KEYWORD
    named = [Parameter(parameter, plain, default=default) for parameter, default in first.items()]
    shown = [Parameter("self", plain), *named, Parameter("options", Parameter.VAR_KEYWORD)]
    draw.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    return draw


@dataclass(frozen=True)
class Audit:
    """The result of :func:`mgpa.audit.run`. ``audit["leace"]`` is one method's.

    Attributes
    ----------
    results : dict of name to MethodResult
    confounding : Confounding
        How source, task and people go together in the fitting rows.
    settings : dict
        What was run on what.
    picture_source : array
        Sources of the rows in the before/after picture.
    paired_rows : Table or None
        The fitting rows, if the pairs among them are the pairs that methods were fitted with.
    design : Design or None
        What was compared with what: crossed, nested or mixed, and what a unit is called.
    """

    results: dict[str, MethodResult]
    confounding: Confounding
    settings: dict[str, Any]
    picture_source: NDArray[Any]
    paired_rows: Table | None = None
    design: Design | None = None
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def pool(cls, audits: Sequence[Audit]) -> Audit:
        """Put together audits of the same methods on different participants, as of rotated roles.

        Estimates are then over all participants. What is shown of single fits (pairs, gates, calibration,
        the picture of the rows) is the first audit's.
        """
        if not audits:
            raise ValueError("There are no audits to put together.")
        first = audits[0]
        # Who could not be measured somewhere would be measured on fewer people than the others.
        omitted: dict[str, str] = {}
        for audit in audits:
            omitted |= audit.settings.get("omitted", {})
        if omitted and len(audits) > 1:
            audits = [
                replace(audit, results={name: r for name, r in audit.results.items() if name not in omitted})
                for audit in audits
            ]
            first = audits[0]
        for other in audits[1:]:
            if other.methods != first.methods:
                raise ValueError(
                    f"One audit has {', '.join(first.methods)}, another {', '.join(other.methods)}."
                )
        if len(audits) == 1:
            return first
        rows = {role: sum(a.settings["rows"][role] for a in audits) for role in first.settings["rows"]}
        results = {
            name: MethodResult.pool([audit.results[name] for audit in audits]) for name in first.methods
        }
        people = dict(first.settings["participants"]) | {"EVAL": len(results["identity"].participants)}
        data = hashlib.sha256(" ".join(a.settings["data"] for a in audits).encode()).hexdigest()[:16]
        settings = first.settings | {
            "rows": rows,
            "participants": people,
            "data": data,
            "duplicates": dict(sum((Counter(a.settings["duplicates"]) for a in audits), Counter())),
            "directions": list(dict.fromkeys(way for a in audits for way in a.settings["directions"])),
            "splits": len(audits),
            "omitted": omitted,
            "unattained": _added(a.settings.get("unattained", {}) for a in audits),
        }
        return replace(first, results=results, settings=settings)

    def __getitem__(self, method: str) -> MethodResult:
        if method not in self.results:
            raise KeyError(f"{method!r} was not audited; there are {', '.join(self.results)}.")
        return self.results[method]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    @property
    def methods(self) -> tuple[str, ...]:
        """Names, the identity first."""
        return tuple(self.results)

    @property
    def columns(self) -> tuple[str, ...]:
        """Metrics that some method has, those that are parts of others aside."""
        whole = (name for name, metric in METRICS.items() if not metric.part_of)
        return tuple(m for m in whole if any(result.has(m) for result in self.results.values()))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Of these, the ones that every method has: methods can be compared by them."""
        return tuple(m for m in self.columns if all(result.has(m) for result in self.results.values()))

    @property
    def direction(self) -> str:
        """Which label went with which source where the heads behind ``worst`` learned their shortcut."""
        ways, origin = self.settings["directions"], self.settings["directions_of"]
        if not ways:
            return f"worst and control were not measured: {origin}." if origin else ""
        if len(ways) == 1:
            said = "as stated" if origin == "stated" else f"as in the {origin} rows"
            return f"worst: the shortcut that heads learned is that {ways[0]} ({said})."
        return (
            f"worst: source and task show no clear association in the {origin} rows, so heads learned either "
            f"shortcut ({'; '.join(ways)}), and their curves are averaged."
        )

    @property
    def bank(self) -> str:
        """Who read the source, and what the paper's readers alone make of it, if there were others."""
        n = len(self["identity"].readers)
        if self.settings["bank"] == "paper":
            return f"S: the best of {n} readers, all of them the paper's."
        alone = ", ".join(
            f"{printable(name)} {result.estimate('S_paper'):.3f}" for name, result in self.results.items()
        )
        size = "a small bank" if self.preliminary else "the full bank"
        return f"S: the best of {n} readers ({size}). By the paper's alone (S_paper): {alone}."

    @property
    def duplicates(self) -> str:
        """Which rows stand in more than one role, word for word; empty if none do."""
        said = "; ".join(f"{count} {what}" for what, count in self.settings["duplicates"].items())
        return (
            f"THE SAME ROWS IN TWO ROLES: {said}. What was fitted on them cannot be judged by them."
            * bool(said)
        )

    def check_pairs(self, *, verbose: bool = False) -> PairCheck | None:
        """Return what the pairs in the fitting rows show; None if there are none, or too few to hold any out.

        It is computed when it is first asked for, as a report does.
        """
        from .pair_check import check_pairs

        if "pairs" not in self._cache:
            self._cache["pairs"] = None
            if self.paired_rows is not None:
                with suppress(MissingEvidence):
                    self._cache["pairs"] = check_pairs(self.paired_rows, verbose=verbose)
        found: PairCheck | None = self._cache["pairs"]
        return found

    @cached_property
    def estimates(self) -> dict[str, dict[str, Estimate]]:
        """Every metric of every method."""
        return {
            name: {m: result.estimate(m) for m in self.columns if result.has(m)}
            for name, result in self.results.items()
        }

    def contrast(self, a: str, b: str = "identity", metric: str = "S") -> Estimate:
        """Return method a minus method b, paired over participants and draws."""
        statistic, first, drawn = self[a].sample(metric)
        _, second, _ = self[b].sample(metric)
        few, many = sorted((len(first), len(second)))
        if many % few:
            raise ValueError(
                f"{a} has {len(first)} fits and {b} {len(second)}; one must have as many as the other, or "
                "several times as many."
            )
        # Several variants with the same seeds each, as random gates: fit i of all of them goes with fit i.
        first, second = (v.reshape(-1, few, *v.shape[1:]) if few > 1 else v for v in (first, second))
        return contrast(first, second, statistic, drawn)

    def influence(self, a: str, b: str = "identity", metric: str = "S") -> Floats:
        """Return the contrast without each participant in turn: does the verdict hang on one person?"""
        return self[a].influence(metric) - self[b].influence(metric)

    def table(self, contrasts_with: str | None = None) -> Any:
        """Return a pandas frame: a row per method; value, low and high of every metric.

        With ``contrasts_with``, differences from that method instead.
        """
        pandas = _pandas()
        rows = {}
        for name in self.methods:
            if contrasts_with is None:
                found = self.estimates[name]
            elif name == contrasts_with:
                continue
            else:
                found = {m: self.contrast(name, contrasts_with, m) for m in self.metrics}
            rows[name] = {
                (metric, part): getattr(e, part)
                for metric, e in found.items()
                for part in ("value", "low", "high")
            }
        frame = pandas.DataFrame.from_dict(rows, orient="index")
        frame.columns = pandas.MultiIndex.from_tuples(list(frame.columns), names=["metric", ""])
        return frame

    def participants(self) -> Any:
        """Return a pandas frame with one row per method, fit, participant, metric and its parts."""
        pandas = _pandas()
        rows = []
        for name, result in self.results.items():
            parts: list[tuple[str, Floats | None, tuple[Any, ...]]] = [
                ("source", result.source_auroc, result.readers),
                ("frozen", result.frozen, result.directions),
                ("refitted", result.refitted, result.directions),
                ("shortcut", result.shortcut, (-1, 0, 1)),
                ("control", result.control, (-1, 0, 1)),
                ("movement", result.movement[..., None], ("",)),
            ]
            for metric, values, names in parts:
                if values is None:
                    continue
                for (f, p, k), value in np.ndenumerate(values):
                    rows.append((name, f, result.participants[p], metric, names[k], float(value)))
        return pandas.DataFrame(rows, columns=["method", "fit", "participant", "metric", "part", "value"])

    def reliability(self, method: str, reader: str | None = None, fit: int = 0) -> Reliability:
        """Return the calibration of one reader (the best, unless named) on corrected EVAL rows."""
        result = self[method]
        reader = result.best_reader() if reader is None else reader
        scores = result.cells[fit]["source_scores"]
        if scores.ndim != 2:
            raise ValueError("Calibration is shown for two sources.")
        if reader not in result.readers:
            raise ValueError(f"There is no reader {reader!r}; there are {', '.join(result.readers)}.")
        truth = result.cells[fit]["eval_source"] == 1
        return reliability(scores[:, result.readers.index(reader)], truth)

    def outcome(self, method: str, metric: str) -> str | None:
        """Return what became of a metric: "improved", "kept", "suffered", "unclear"; None if not measured."""
        if metric not in self.metrics:
            return None
        return METRICS[metric].outcome(self.contrast(method, metric=metric))

    @property
    def n_people(self) -> int:
        """EVAL participants: those that everything is judged by."""
        return len(self["identity"].participants)

    def verdict(self, method: str) -> list[str]:
        """Return what the method did, in sentences: what fell, what was kept, and how sure that is."""
        return self.findings(method) + self.caveats(method)

    findings, limits, caveats = sentences.findings, sentences.limits, sentences.caveats
    too_few, corrected_before = property(sentences.too_few), property(sentences.corrected_before)
    still_readable = property(sentences.still_readable)

    @property
    def preliminary(self) -> str:
        """That the readers were a small bank, trained briefly; empty if they were not."""
        if not self.settings["preliminary"]:
            return ""
        return (
            "PRELIMINARY: fewer or shorter-trained source readers than in a full audit, so S may be too low. "
            "Audit with the full bank before believing a number."
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What every output says before its numbers are believed, a sentence each: few people, for one."""
        said = (self.preliminary, self.too_few, self.corrected_before, self.duplicates)
        return tuple(warning for warning in said if warning)

    @property
    def advice_on_folds(self) -> str:
        """How more people could judge, to end a sentence with; nothing, if everybody does already."""
        given = any(result.fitted_elsewhere for result in self.results.values())
        return "" if given or "folds" in self.settings else "; with folds everybody judges once"

    def __str__(self) -> str:
        cells = [["method", *(METRICS[m].wanted for m in self.columns)]]
        for name in self.methods:
            found = self.estimates[name]
            cells.append([printable(name), *(f"{found[m]:.3f}" if m in found else "" for m in self.columns)])
        names, *columns = zip(*cells, strict=True)
        # Words stand above symbols, in as many lines as they need.
        subjects = [
            wrap(METRICS[m].subject, max(map(len, c))) for m, c in zip(self.columns, columns, strict=True)
        ]
        blocks: list[list[tuple[str, ...]]] = [[]]
        height, width = max(map(len, subjects)), max(map(len, names))
        for subject, column in zip(subjects, columns, strict=True):
            whole = (*[""] * (height - len(subject)), *subject, *column)
            used = width + sum(2 + max(map(len, c)) for c in blocks[-1])
            if blocks[-1] and used + 2 + max(map(len, whole)) > LINE:
                blocks.append([])
            blocks[-1].append(whole)
        first = (*[""] * height, *names)
        tables = [text_table(zip(first, *block, strict=True)) for block in blocks]
        # Above the words of a column there may be nothing but empty lines.
        lines = [line for table in tables for line in ("", *dropwhile(lambda text: not text, table))]
        notes = (*self.warnings, self.bank, printable(self.still_readable), self.direction)
        return "\n".join(lines[1:] + [note for note in notes if note])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from .report import inline_verdict

        return inline_verdict(self)

    def show(self, height: int = 800) -> Any:
        """Return the whole report as something that a notebook shows, so many pixels high."""
        from .report import InlineReport

        return InlineReport(self, height)

    @cached_property
    def changes(self) -> dict[str, dict[str, Estimate]]:
        """Every metric of every other method minus the identity's."""
        others = (name for name in self.methods if name != "identity")
        return {name: {m: self.contrast(name, metric=m) for m in self.metrics} for name in others}

    plot_tradeoff = _drawn("plot_tradeoff", "source against task", ax=None)
    plot_readers = _drawn("plot_readers", "every reader before and after", axes=None)
    plot_movement = _drawn("plot_movement", "how far embeddings moved", axes=None)
    plot_gate = _drawn("plot_gate", "the gate's spectrum and rank", ax=None)
    plot_association = _drawn("plot_association", "AUROC over association", ax=None)
    plot_participants = _drawn(
        "plot_participants", "every participant before and after", metric="S", axes=None
    )
    plot_pairs = _drawn("plot_pairs", "what the pairs in the fitting rows show", ax=None)
    plot_embedding = _drawn("plot_embedding", "the rows before and after", axes=None)
    plot_variance = _drawn("plot_variance", "what the variance is due to", axes=None)

    def figures(
        self, folder: Any, formats: Sequence[str] = ("pdf", "svg", "png"), *, verbose: bool = False
    ) -> list[Path]:
        """Write every figure that applies to a folder, in every format, and return the paths.

        ``verbose`` shows how far it is.
        """
        return list(_plots().save_all(self, folder, formats, verbose=verbose))

    def to_csv(self, path: Any) -> Path:
        """Write one row for every method and metric: value, interval and difference from the identity."""
        from .report import csv_table

        return write_atomically(Path(path), csv_table(self).encode())

    def to_latex(self, path: Any = None) -> str:
        """Return a booktabs table, source-blind and source-aware methods apart; also write it to a path."""
        from .report import latex_table

        text = latex_table(self)
        if path is not None:
            write_atomically(Path(path), text.encode())
        return text

    def methods_text(self) -> str:
        """Return a paragraph for a paper's methods: what was done to what, with versions and references.

        Everything in it comes from the settings and results of this audit.
        """
        from .methods_text import methods_text

        return methods_text(self)

    def report(
        self,
        path: Any,
        title: str = "Correction audit",
        sections: Sequence[tuple[str, str, str]] = (),
        *,
        browser: bool = False,
        verbose: bool = False,
    ) -> Path:
        """Write everything as one HTML file that opens offline, and return its path.

        ``sections`` are yours: for each an id, a heading, and HTML that is put in as it is. ``browser`` opens
        the file in one, and ``verbose`` shows how far it is.
        """
        from .report import html_report

        self.check_pairs(verbose=verbose)  # the one part that takes time
        written = write_atomically(Path(path), html_report(self, title, sections).encode())
        if browser:
            webbrowser.open(written.resolve().as_uri())
        return written


def _added(parts: Iterable[dict[str, list[int]]]) -> dict[str, list[int]]:
    """Return how many fits missed their budget, and of how many, added up over splits."""
    total: dict[str, list[int]] = {}
    for part in parts:
        for name, counts in part.items():
            total[name] = [a + b for a, b in zip(total.get(name, [0, 0]), counts, strict=True)]
    return total


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise missing("A table of results", "pandas") from None
    return pandas
