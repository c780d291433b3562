"""What figures and report show besides estimates: people, association, gates, stages, variance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .association import curve_at, curve_coefficients, curve_minimum
from .method_result import MethodResult
from .result import Audit

Floats = NDArray[np.float64]


def participant_values(result: MethodResult, metric: str) -> Floats:
    """Return a metric of every participant, averaged over fits; their mean is the metric itself.

    For S these are AUROCs of the reader that sets it, for the worst association AUROCs at the association
    that is worst on average.
    """
    statistic, values = result.values(metric)
    if statistic == "max":
        best = values.mean(axis=1).argmax(axis=-1)
        values = np.stack([fit[:, reader] for fit, reader in zip(values, best, strict=True)])
    elif statistic == "worst":
        curves = curve_coefficients(values)
        xi = curve_minimum(curves.mean(axis=1))[1]
        values = np.stack([curve_at(c, float(x)) for c, x in zip(curves, xi, strict=True)])
    return np.asarray(values.mean(axis=0))


def association_curve(result: MethodResult, head: str = "shortcut") -> tuple[Floats, float, float]:
    """Return (a, b, c) of the mean curve over participants and fits, its minimum, and the ξ of that."""
    values = result.shortcut if head == "shortcut" else result.control
    if values is None:
        result.values("worst")  # raises, and says why
        raise ValueError(f"{head} was not measured for {result.name}.")
    curve = curve_coefficients(values).mean(axis=(0, 1))
    lowest, xi = curve_minimum(curve)
    return curve, float(lowest), float(xi)


class SharedGate(NamedTuple):
    """A gate: who uses it, its spectrum and rank, and its coverage of new people's contrasts, if known."""

    methods: list[str]
    basis: Floats
    energy: Floats
    rank: int
    coverage: float | None
    shown: int


def gates(audit: Audit) -> list[SharedGate]:
    """Return the different gates of the methods' first fits."""
    found: list[SharedGate] = []
    for name, result in audit.results.items():
        facts = result.facts[0] if result.facts else {}
        if "gate_energy" not in facts:
            continue
        basis, energy = facts["gate_basis"], np.asarray(facts["gate_energy"])
        same = [g for g in found if _same_span(g.basis, basis)]
        if same:
            same[0].methods.append(name)
            continue
        coverage = float(facts["gate_coverage"]) if "gate_coverage" in facts else None
        # Beyond this the spectrum says nothing more.
        shown = min(len(energy), max(basis.shape[1] + 2, int(np.searchsorted(energy, 0.999)) + 1))
        found.append(SharedGate([name], basis, energy, basis.shape[1], coverage, shown))
    return found


def _same_span(A: Floats, B: Floats) -> bool:
    return A.shape == B.shape and bool(np.allclose(np.linalg.svd(A.T @ B, compute_uv=False), 1, atol=1e-6))


def movement_by_stage(result: MethodResult) -> list[Floats]:
    """Return each fit's movement after 0, 1, 2, … stages; nothing for maps without stages."""
    paths = (fit.get("stage_movement", ()) for fit in result.facts)
    return [np.concatenate([[0.0], path]) for path in paths if len(path)]


def variance(result: MethodResult) -> dict[str, tuple[float, float]]:
    """Return each factor's share of the variance, averaged over fits, and its share by chance."""
    shares = np.mean([cell["variance_share"] for cell in result.cells], axis=0)
    factors = result.cells[0]["variance_factor"].tolist()
    return {f: (float(row[0]), float(row[1])) for f, row in zip(factors, shares, strict=True)}
