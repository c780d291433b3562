"""Where a map came from: what is stored with it besides its arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from ..errors import printable


@dataclass(frozen=True, kw_only=True)
class MapInfo:
    """Where a map came from. None of it changes a corrected row; names and tokens only refuse other input.

    A :class:`~mgpa.maps.RoutedMap` also finds its sources here.

    Attributes
    ----------
    feature_names : tuple of str or None
        Names of the features, where they have some; with coordinates, of the raw ones if there are as many.
    people : tuple of str
        Digests of the names of those it was fitted on.
    row_sample : str
        Digests of some rows of each of them, as :class:`mgpa.tables.seen.SeenRows` writes them.
    n_tokens, token_layout : int or None, {"mean", "joint"}
        Tokens a row had in the fit, and which of them are the map's features: those of their mean, or all,
        one token after another. See :func:`mgpa.transform_tokens`.
    constant_features : tuple of int
        Positions of the features that never varied in the fit. Their scale is 1, they are never edited, and
        they do not count in the size that movement is relative to.
    source_column : str
        What the user's table called the sources ("hospital"); empty if unknown.
    evidence : str
        What the fit found before it acted, and whether it did.
    """

    method: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    random_state: int | None = None
    feature_names: tuple[str, ...] | None = None
    constant_features: tuple[int, ...] = ()
    source_names: tuple[str, ...] = ()
    source_column: str = ""
    n_rows: int | None = None
    n_contrasts: int | None = None
    fingerprint: str | None = None
    gate_rank: int | None = None
    gate_energy: float | None = None
    n_tokens: int | None = None
    token_layout: str = "mean"
    encoder: dict[str, Any] = field(default_factory=dict)
    people: tuple[str, ...] = ()
    row_sample: str = ""
    library_version: str = __version__
    evidence: str = ""
    notes: str = ""


def facts_of(m: Any) -> dict[str, str]:
    """Return everything that a map's summary tells, by short names; what is not known is left out."""
    info, coordinates, constant = m.info, m.coordinates, len(m.info.constant_features)
    energy = "" if info.gate_energy is None else f", {info.gate_energy:.1%} of contrast energy"
    counts = {"rows": info.n_rows, "contrasts": info.n_contrasts}
    tokens = f"mean of {info.n_tokens}" if info.token_layout == "mean" else f"all {info.n_tokens} of a row"
    where = ""
    if coordinates is not None:
        whole = coordinates.components is None
        kept = "standardised" if whole else f"{coordinates.n_coordinates} principal components"
        where = f"{kept} of {coordinates.n_raw} raw features"
    facts = {
        "method": info.method,
        "features": f"{m.n_features}" + (f", {constant} of them constant in the fit" if constant else ""),
        "sources": ", ".join(info.source_names),
        "gate": "" if info.gate_rank is None else f"rank {info.gate_rank}{energy}",
        "fitted on": ", ".join(f"{count} {what}" for what, count in counts.items() if count is not None),
        "found": info.evidence,
        "tokens": "" if info.n_tokens is None else tokens,
        "encoder": ", ".join(f"{k} {v}" for k, v in info.encoder.items()),
        "coordinates": where,
        "strength": f"{m.strength:g}",
        "seed": "" if info.random_state is None else str(info.random_state),
        "parameters": ", ".join(f"{k}={v}" for k, v in info.parameters.items()),
        "people": f"{len(info.people)}, known by their digests" if info.people else "",
        "data": info.fingerprint or "",
        "written by": f"mgpa {info.library_version}",
        "notes": info.notes,
    }
    return {name: printable(text) for name, text in facts.items() if text}
