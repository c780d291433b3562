"""A methods paragraph of an audit, ready to paste: only what its settings and results say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..baselines.registry import references
from ..errors import printable
from . import bootstrap, chance
from .metrics import METRICS
from .verdict import shortcut_note
from .words import READERS, label, listed, reader_parts

if TYPE_CHECKING:
    from .result import Audit

PAPER = (
    "Aimoldin, A., Chen, Y., Mussabayeva, A., Akhanov, N. & Liu, X. (2026). Measurement-Gated Provenance "
    "Attenuation for Frozen EEG Representations."
)
_CITED = "Aimoldin et al. 2026"
# Intervals of all outputs have the same draws.
INTERVALS = (
    f"{100 * bootstrap.LEVEL:g} % percentile bootstrap over participants, {bootstrap.DRAWS:,} draws, "
    f"seed {bootstrap.SEED}"
)


def methods_text(audit: Audit) -> str:
    """Return one paragraph: data, roles, methods, readers, heads, intervals, versions, and the reference."""
    s = audit.settings
    versions = ", ".join(f"{name} {version}" for name, version in s["versions"].items())
    sentences = [
        *audit.warnings,
        _table(audit),
        _roles(audit),
        _methods(audit),
        *_exceptions(audit),
        _coordinates(audit),
        _source(audit),
        *_task(audit),
        f"Intervals are {INTERVALS} (n = {audit.n_people}); every statistic is computed again in each draw, "
        "draws are the same for all methods, and maps and readers stay as they were fitted.",
        f"Software: mgpa {s['version']}, {versions}; networks on {s['device']}.",
        f"Reference: {PAPER}",
    ]
    return printable(" ".join(sentences))


def _table(audit: Audit) -> str:
    s = audit.settings
    # Each row of a table is EVAL in one fold; without folds it has one role in all.
    rows = s["rows"]["EVAL"] if "folds" in s else None if "splits" in s else sum(s["rows"].values())
    width = " tokens of ".join(map(str, s["features"])) + " features"
    size = f"{rows} embeddings" if rows is not None else "Embeddings"
    return (
        f"{size} ({width}; checksum {s['data']}) of the sources {listed(s['sources'])} were audited with "
        f"mgpa {s['version']}, which implements {_CITED}."
    )


def _roles(audit: Audit) -> str:
    s, what = audit.settings, "Methods were fitted on FIT participants"
    what += " (with VAL where a method or a movement budget uses it)" if s["participants"]["VAL"] else ""
    what += ", source readers and refitted heads on HEAD, and everything was scored on EVAL"
    if "folds" in s:
        return (
            f"{what}; roles rotated over {s['folds']} folds, so that each of {audit.n_people} participants "
            "was EVAL once, scored by maps, readers and heads fitted on others."
        )
    if "splits" in s:
        return f"{what}, pooled over {s['splits']} splits with {audit.n_people} EVAL participants in all."
    sizes = listed(f"{role} {n} ({s['rows'][role]} rows)" for role, n in s["participants"].items() if n)
    return f"{what}; no participant had two roles. Participants: {sizes}."


def _methods(audit: Audit) -> str:
    names = audit.methods[1:]
    if not names:
        return "No correction was applied."
    given = listed(_method(audit, name) for name in names)
    budget = audit.settings["budget"]
    if isinstance(budget, dict):
        cut = listed(f"{label(name)} {value:g}" for name, value in budget.items())
        how = f" Maps were cut back to a relative movement of VAL rows: {cut}."
    else:
        how = (
            "" if budget is None else f" Maps were cut back to a relative movement of {budget:g} of VAL rows."
        )
    return f"Uncorrected embeddings were compared with {given}.{how}"


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
        chosen = first.parameters.get("gate")
        gate = f"gate {chosen}" if chosen else "gate"
        gate += f" of rank {first.gate_rank}"
        gate += "" if first.gate_energy is None else f", {first.gate_energy:.1%} of contrast energy"
        gate += "" if first.n_contrasts is None else f", {first.n_contrasts} contrasts of pairs"
        facts.append(gate + (" (first fold)" if "folds" in s else " (first split)" if "splits" in s else ""))
    facts.append("" if result.source_blind else "told the source of every row")
    said = "; ".join(fact for fact in facts if fact)
    return f"{label(name)} ({said})" if said else label(name)


def _exceptions(audit: Audit) -> list[str]:
    """Return methods that were fitted on EVAL participants, and those that were left out."""
    lines = [
        f"{label(name)} was fitted on {len(result.fitted_on)} of the participants it was scored on."
        for name, result in audit.results.items()
        if result.fitted_on
    ]
    return lines + [
        f"{label(name)} was left out: {why}." for name, why in audit.settings.get("omitted", {}).items()
    ]


def _coordinates(audit: Audit) -> str:
    s = audit.settings
    where = f"the maps' coordinates (checksum {s['coordinates']})" if s["coordinates"] else "their own units"
    if s["standardize"]:
        return f"Embeddings in {where} were standardised by mean and spread of the FIT rows for all measures."
    return f"Embeddings were measured in {where}, without standardisation."


def _source(audit: Audit) -> str:
    readers = audit["identity"].readers
    return (
        f"Source accessibility S is the largest participant-mean AUROC of {len(readers)} readers trained on "
        f"corrected HEAD rows ({_readers(readers)}); it was compared with {chance.DRAWS} permutations of "
        f"source labels within participants (seed {chance.SEED}), and the source called readable where the "
        f"permutation p was at most {chance.LEVEL:g}."
    )


def _readers(readers: Sequence[str]) -> str:
    """Return the bank in words.

    Examples
    --------
    >>> _readers(["linear", "gelu r0 e12", "gelu r0 e50", "gelu r1 e12", "gelu r1 e50", "spread"])
    'logistic; network (2 restarts, read after 12 and 50 epochs); spread'
    >>> _readers(["mean linear", "residual grid_gelu r0 e12"])
    'token mean: logistic / token residuals: token network (1 restart, read after 12 epochs)'
    """
    banks: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for group, family, run in map(reader_parts, readers):
        runs = banks.setdefault(group, {}).setdefault(family, [])
        runs += [] if run is None else [run]
    said = []
    for group, families in banks.items():
        words = []
        for family, runs in families.items():
            text = READERS.get(family, family)
            if runs:
                restarts, epochs = (sorted(set(numbers)) for numbers in zip(*runs, strict=True))
                many = "s" * (len(restarts) > 1)
                text += f" ({len(restarts)} restart{many}, read after {listed(epochs)} epochs)"
            words.append(text)
        said.append((f"{group.lower()}: " if group else "") + "; ".join(words))
    return " / ".join(said)


def _task(audit: Audit) -> list[str]:
    if "T_f" not in audit.columns:
        return []
    s = audit.settings
    head = s["head"] or (
        "the paper's network of tokens" if len(s["features"]) > 1 else "the paper's ridge head"
    )
    lines = [
        f"Task heads ({' '.join(head.split())}) were trained on HEAD rows of one source and scored on EVAL "
        "rows of another by AUROC, trained before the correction (T_f) or after it (T_r); the task counts as "
        f"kept where any loss is below {METRICS['T_f'].kept:g} (95 %)."
    ]
    if audit.settings["directions"]:
        what = shortcut_note(audit).partition(": ")[2]
        lines.append(f"Association shift: {what[0].upper()}{what[1:]}")
    return lines
