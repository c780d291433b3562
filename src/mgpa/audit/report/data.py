"""What the charts are drawn from, and the JSON it travels in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..bootstrap import Estimate, estimate
from ..details import association_curve, gates, movement_by_stage, participant_values, variance
from ..looks import label, looks, reader_rows
from ..metrics import METRICS
from ..result import Audit


def chart_data(audit: Audit) -> dict[str, Any]:
    """Return what the charts are drawn from: plain lists and numbers, for JSON."""
    identity = audit["identity"]
    picture, clouds = _picture(audit)
    return {
        "identity": 0,
        "folds": audit.settings.get("splits", 1),
        "sources": np.unique(audit.picture_source).tolist(),
        "second": audit.settings["sources"][1],
        "people": list(identity.participants),
        "readers": [list(row) for row in reader_rows(identity.readers)],
        "factors": list(variance(identity)),
        "metrics": {
            m: {
                "short": METRICS[m].short,
                "better": METRICS[m].better,
                "auroc": METRICS[m].unit == "AUROC",
                "compared": m in audit.metrics,
            }
            for m in audit.columns
        },
        "gates": [
            {
                "methods": [audit.methods.index(m) for m in gate.methods],
                "names": ", ".join(map(label, gate.methods)),
                "energy": gate.energy[: max(200, gate.rank)].tolist(),
                "rank": gate.rank,
                "shown": min(gate.shown, max(200, gate.rank)),
                "coverage": gate.coverage,
            }
            for gate in gates(audit)
        ],
        "pairs": _pairs(audit),
        "picture": picture,
        "methods": [_method(audit, name) | clouds[name] for name in audit],
    }


def _pairs(audit: Audit) -> dict[str, Any] | None:
    """Return what the pairs show; nothing without pairs. Beyond the first directions curves say little."""
    check = audit.check_pairs()
    if check is None:
        return None
    shown = min(len(check.coverage), max(3 * check.rank, 24))
    low, middle, high = check.shuffled_range[:, :shown]
    return {
        "verdict": check.verdict,
        "facts": check.facts,
        "rank": check.rank,
        "coverage": check.coverage[:shown].tolist(),
        "shuffled": [low.tolist(), middle.tolist(), high.tolist()],
    }


def _method(audit: Audit, name: str) -> dict[str, Any]:
    result, look, found = audit[name], looks(audit)[name], audit.estimates[name]
    curves = {}
    for head in ("shortcut", "control") if "worst" in audit.metrics else ():
        curve, lowest, xi = association_curve(result, head)
        worst = _triple(found["worst"]) if head == "shortcut" else None
        curves[head] = {"abc": curve.tolist(), "min": [xi, lowest], "worst": worst}
    return {
        "label": look.label,
        "color": look.hue,
        "marker": look.marker,
        "blind": result.source_blind,
        "est": {m: _triple(e) for m, e in found.items()},
        "delta": {m: _triple(e) for m, e in audit.changes.get(name, {}).items()},
        "readers": [_triple(estimate(result.source_auroc[:, :, r])) for r in range(len(result.readers))],
        "best": result.readers.index(result.best_reader()),
        "people": {m: participant_values(result, m).tolist() for m in audit.metrics},
        "influence": {m: result.influence(m).tolist() for m in ("S", "T_f") if m in audit.metrics},
        "stages": [path.tolist() for path in movement_by_stage(result)],
        "bySource": np.mean([cell["movement_by_source"] for cell in result.cells], axis=0).tolist(),
        "variance": variance(result),
        "curves": curves,
        "reliability": _reliability(audit, name),
    }


def _triple(e: Estimate) -> list[float]:
    return [e.value, e.low, e.high]


def _reliability(audit: Audit, name: str) -> dict[str, Any] | None:
    """Return the calibration of a method's best reader in its first fit, for two sources."""
    if audit[name].cells[0]["source_scores"].ndim != 2:
        return None
    found, [(_, reader)] = audit.reliability(name), reader_rows([audit[name].best_reader()])
    p, o, n = (values.tolist() for values in (found.predicted, found.observed, found.count))
    return {"reader": reader, "p": p, "o": o, "n": n, "error": found.error}


def _picture(audit: Audit) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the before/after clouds on a common grid of whole numbers, which is finer than the eye."""
    clouds = {name: audit[name].cells[0]["picture"].astype(np.float64) for name in audit}
    everything = np.concatenate(list(clouds.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    unit, margin = float((high - low).max()) / 1000 or 1.0, 20.0
    sources, codes = np.unique(audit.picture_source, return_inverse=True)
    methods = {}
    for name, cloud in clouds.items():
        placed = (cloud - low) / unit + margin
        parts = [placed[codes == i] for i in range(len(sources))]
        means = [part.mean(axis=0) for part in parts]
        # How far apart the means of two sources are, in standard deviations.
        spread = float(np.sqrt(np.mean([part.var(axis=0).sum() for part in parts])))
        known = len(sources) == 2 and spread > 0
        methods[name] = {
            "picture": placed.round().astype(int).ravel().tolist(),
            "means": [mean.tolist() for mean in means],
            "counts": len(cloud),
            "gap": float(np.linalg.norm(means[0] - means[1])) / spread if known else None,
        }
    return {"source": codes.tolist(), "size": ((high - low) / unit + 2 * margin).tolist()}, methods


def to_json(value: Any) -> str:
    """Return short JSON that cannot end the script element it stands in, nor start anything in it."""
    text = json.dumps(_rounded(value), allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(v) for v in value]
    return round(value, 5) if isinstance(value, float) else value
