"""Write a methods paragraph for a paper from the settings and results of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..baselines.registry import references
from ..errors import printable
from ..maps.info import gate_words
from . import draws, ranks
from .estimates import LEVEL, number
from .metrics import METRICS, SKEWED_GAINS, SKEWED_LOSSES
from .verdict import task_metric
from .verdict.caveats import trained_on_others
from .words import label, listed, reader_summary

if TYPE_CHECKING:
    from .result import Audit

PAPER = (
    "Aimoldin, A., Chen, Y., Mussabayeva, A., Akhanov, N. & Liu, X. (2026). Measurement-Gated Provenance "
    "Attenuation for Frozen EEG Representations."
)
_CITED = "Aimoldin et al. 2026"


def methods_text(audit: Audit) -> str:
    """Return one paragraph: data, roles, methods, readers, heads, intervals, versions, and the reference."""
    s, readers = audit.settings, audit["identity"].readers
    # With folds, each row is EVAL once; without folds, each row has one role.
    rows = s.rows["EVAL"] if s.folds > 1 else None if s.splits > 1 else sum(s.rows.values())
    size = f"{rows} embeddings" if rows is not None else "Embeddings"
    width = " tokens of ".join(map(str, s.features)) + " features"
    width += f" of {s.encoder['name']}" if "name" in s.encoder else ""
    units = f"the maps' coordinates (checksum {s.coordinates})" if s.coordinates else "their own units"
    scaled = f"Embeddings in {units} were standardised by mean and spread of the FIT rows for all measures."
    sentences = [
        *audit.warnings,
        f"{size} ({width}; checksum {s.data}) of the sources {listed(s.sources)} were audited with "
        f"mgpa {s.version}, which implements {_CITED}.",
        *_recordings(audit),
        _roles(audit),
        _methods(audit),
        scaled if s.standardize else f"Embeddings were measured in {units}, without standardisation.",
        f"Source accessibility S is the largest {_area(audit)} of {len(readers)} "
        f"readers trained on corrected HEAD rows ({reader_summary(readers)})"
        + (", minus the bias from choosing the largest (bootstrapped)" if s.widen else "")
        + f". It was compared with {ranks.DRAWS} permutations of source labels (seed {ranks.SEED})"
        + (f", and with sign flips of whole {audit.design.plural}" if s.widen and audit.design.within else "")
        + f"; the source was called readable if the larger p was at most {ranks.LEVEL:g}.",
        *_task(audit),
        *_results(audit),
        f"Intervals ({100 * LEVEL:g} %) are bootstrapped over {audit.design.plural}, "
        f"{draws.DRAWS:,} draws, seed {draws.SEED} (n = {audit.n_people}): "
        + (
            "percentiles, widened by the ratio of Student's t to the normal quantile, or t intervals "
            "corrected for skewness if these are wider; claims of a gain and of a kept task were one-sided "
            f"(.05) and assumed a skewness over {audit.design.plural} of {SKEWED_GAINS:.2g} and "
            f"{SKEWED_LOSSES:g}"
            if s.widen
            else "percentiles"
        )
        + "; draws are the same for all methods, and maps and readers are not refitted.",
        *_refits(audit),
        f"Software: mgpa {s.version}, {', '.join(f'{n} {v}' for n, v in s.versions.items())}"
        + (f"; networks on {s.device}." if any("gelu" in reader for reader in readers) else "."),
        f"Reference: {PAPER}",
    ]
    return printable(" ".join(sentences))


def _refits(audit: Audit) -> list[str]:
    n = audit.settings.refits
    return (
        [f"Some intervals include the variation of the fit ({n} fits on half of FIT {audit.design.plural})."]
        if n
        else []
    )


def _recordings(audit: Audit) -> list[str]:
    """Return channels, rate, reference and pairs of epochs, if the table contains them."""
    signals, pairing = audit.settings.signals, audit.settings.pairing
    if not signals or not pairing:
        return []
    reference = signals["reference"] or "as recorded"
    reference = reference if isinstance(reference, str) else " and ".join(reference)
    facts = [f"reference: {reference}"]
    if "samples" in signals and "tmin" in signals:
        end = signals["tmin"] + (signals["samples"] - 1) / signals["sfreq"]
        facts.append(f"window: {signals['tmin']:g} to {end:g} s")
    if signals.get("band"):
        facts.append("band: {:g} to {:g} Hz".format(*signals["band"]))
    if "baseline" in signals:
        span = signals["baseline"]
        facts.append("baseline: {:g} to {:g} s".format(*span) if span else "no baseline")
    cut = f"{len(signals['channels'])} channels at {signals['sfreq']:g} Hz ({'; '.join(facts)})"
    return [f"Epochs of {cut} were paired by event: {pairing}."]


def _roles(audit: Audit) -> str:
    s, people = audit.settings, audit.design.plural
    what = f"Methods were fitted on FIT {people}"
    what += " (with VAL where a method or a movement budget uses it)" if s.participants["VAL"] else ""
    what += ", source readers and refitted heads on HEAD, and scores come from EVAL"
    if all(audit[name].fitted_elsewhere for name in audit.methods[1:]) and len(audit.methods) > 1:
        what = "Maps came fitted" + _rows_of_maps(audit)
        what += "; source readers and refitted heads were trained on HEAD, and scores come from EVAL"
    if s.folds > 1:
        deals = f" in {s.repeats} random divisions" if s.repeats > 1 else ""
        return (
            f"{what}; roles rotated over {s.folds} folds{deals}, so that each of {audit.n_people} {people} "
            f"was EVAL once, scored by {trained_on_others(audit)}."
        )
    if s.splits > 1:
        return f"{what}, pooled over {s.splits} splits with {audit.n_people} EVAL {people} in all."
    used = [role for role in s.participants if "came fitted" not in what or role in ("HEAD", "EVAL")]
    sizes = listed(
        f"{role} {s.participants[role]} ({s.rows[role]} rows)" for role in used if s.participants[role]
    )
    return f"{what}; no {audit.design.unit} had two roles. {people[0].upper()}{people[1:]}: {sizes}."


def _rows_of_maps(audit: Audit) -> str:
    """Return the numbers of rows and contrasts in the fits of given maps, as words."""
    infos = [info for name in audit.methods[1:] for info in audit[name].provenance if info.n_rows]
    if not infos:
        return ""
    rows = sorted({info.n_rows or 0 for info in infos})
    pairs = sorted({info.n_contrasts or 0 for info in infos if info.n_contrasts})

    def span(numbers: list[int]) -> str:
        return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])

    return f" on {span(rows)} rows" + (f" with {span(pairs)} pairs" if pairs else "") + ", as they record"


def _methods(audit: Audit) -> str:
    if len(audit.methods) == 1:
        return "No correction was applied."
    budget, methods = audit.settings.budget, listed(_method(audit, m) for m in audit.methods[1:])
    lines = [f"Uncorrected embeddings were compared with {methods}."]
    if budget is not None:
        cut = budget if isinstance(budget, dict) else {"all maps": budget}
        limits = listed(f"{label(name)} {value:g}" for name, value in cut.items())
        lines.append(f"Maps were cut back to a relative movement of VAL rows: {limits}.")
    lines += [f"{label(name)} replaced the head." for name in audit.decoders]
    lines += [f"{label(m)} was left out: {why}." for m, why in audit.settings.omitted.items()]
    return " ".join(lines)


def _method(audit: Audit, name: str) -> str:
    """Return a method, its reference, and the fits and gates that its maps record."""
    result, s = audit[name], audit.settings
    first = result.provenance[0]
    reference = references().get(first.method, "")
    facts = [_CITED if reference == "this package's paper" else reference]
    if first.method and first.method.lower() != name.replace("_", ""):
        facts.insert(0, first.method)
    facts.append("came fitted" if result.fitted_elsewhere else "")
    seeds = [info.random_state for info in result.provenance]
    fits = f"{result.n_fits} fits" if result.n_fits > 1 else ""
    if None not in seeds:
        fits = f"{fits or '1 fit'}, seed{'s' * (len(seeds) > 1)} {listed(seeds)}"
    facts.append(fits)
    if first.gate_rank is not None:
        gate = f"gate of {gate_words(first)}"
        gate += "" if first.n_contrasts is None else f", {first.n_contrasts} contrasts of pairs"
        facts.append(gate + (" (first fold)" if s.folds > 1 else " (first split)" if s.splits > 1 else ""))
    facts.append("" if result.source_blind else "needs the source of every row")
    details = "; ".join(fact for fact in facts if fact)
    return f"{label(name)} ({details})" if details else label(name)


def _task(audit: Audit) -> list[str]:
    s, task = audit.settings, task_metric(audit)
    if task is None:
        return []
    paper = f"the {'network of tokens' if len(s.features) > 1 else 'ridge head'} of Aimoldin et al. 2026"
    criterion = f"; the task counts as kept where any loss of {task.name} is below {task.kept or 0:g} (95 %)"
    kind = (s.head or paper).partition("(")[0]
    if s.deployed:
        of = f" on rows of {s.head_source}" if s.head_source else ""
        lines = [
            f"The user's head ({kind}) was already fitted{of} and was scored without refitting on EVAL "
            "rows before and after the correction (subscript f); heads fitted to corrected HEAD rows of one "
            "source were scored on "
            f"EVAL rows of another (r){criterion if task.kept else ''}."
        ]
    else:
        lines = [
            f"Task heads ({kind}) were trained on HEAD rows of one source and scored on EVAL rows of "
            "another, trained before the correction (subscript f) or after it (r)"
            f"{criterion if task.kept else ''}."
        ]
    if s.directions:
        [*ways], origin = s.directions, s.directions_of
        how = "as set" if origin == "stated" else f"as in the {origin} rows"
        lines.append(
            f"For 'worst' and 'control', further heads learned that {ways[0]} ({how})."
            if len(ways) == 1
            else "For 'worst' and 'control', heads learned each possible shortcut; means are reported."
        )
    if {"A_u", "RMSEP_u"} & {*audit.columns}:
        lines.append(
            "Each source was also left out of maps and heads in turn, and then scored (subscript u)."
        )
    return lines


def _results(audit: Audit) -> list[str]:
    """Return one sentence each on S and the task before and after correction, with intervals."""
    task, (_, *names) = task_metric(audit), audit.methods
    chance = number(max(result.chance.high for result in audit.results.values()))
    sentences = []
    of_task = ("home", "away", task.name, "RMSEP_home", "RMSEP_r") if task else ()
    for metric in dict.fromkeys(["S", *(name for name in of_task if name in audit.metrics)]):
        shown, every = audit.tabled["identity"][metric], audit.estimates["identity"][metric]
        subject = metric if metric in ("S", task and task.name) else f"{METRICS[metric].title} ({metric})"
        subject += "" if shown is every else f" (heads of {audit.decoder} alone)"
        values = [f"{shown} without correction"]
        values += [f"{audit.tabled[name][metric]} with {label(name)}" for name in names]
        note = f" (chance reached {chance})" if metric == "S" else ""
        sentences.append(f"{subject} was {listed(values)}{note}.")
    return sentences


def _area(audit: Audit) -> str:
    """Return the definition of S in this design."""
    unit = audit.design.unit
    area = f"{unit}-mean AUROC" if audit.design.within else f"AUROC between {audit.design.plural}"
    return area if len(audit.settings.sources) < 3 else f"{area} (each source against the others, averaged)"
