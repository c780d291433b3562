"""Provenance of a map, as fields and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import first_few

if TYPE_CHECKING:
    from .base import CorrectionMap

# Map classes by their names in files; each class registers itself when defined.
KINDS: dict[str, type[CorrectionMap]] = {}


@dataclass(frozen=True, kw_only=True)
class MapInfo:
    """The provenance of a map.

    Provenance never changes corrected rows; feature names and token counts only reject unsuitable input. A
    :class:`~mgpa.maps.RoutedMap` also reads its sources from here.

    Attributes
    ----------
    parameters, changed : dict, tuple of str
        All settings of the estimator, and the names of those that differ from the defaults.
    feature_names : tuple of str or None
        Names of the features, if known. With coordinates, names of the raw features if their number matches.
    people : tuple of str
        Hashes of the names of the fitting participants.
    row_sample : str
        Hashes of a sample of the fitting rows, written by :func:`mgpa.tables.rows.encode_sample`.
    n_tokens, token_layout : int or None, {"mean", "joint"}
        Number of tokens per row in the fit, and whether the map's features are the token mean or all tokens
        concatenated.
    constant_features : tuple of int
        Positions of features that did not vary in the fit. Their scale is 1, they are never edited, and they
        are ignored in the row size to which movement is relative.
    source_column : str
        Name of the source column in the user's table, such as "hospital"; empty if unknown.
    signals : dict
        Recording and preparation of the signals: channels, rate, window, band, baseline, reference.
    evidence : str
        The evidence for an effect in the fitting data, and whether a correction was applied.
    doubt : str
        Doubts about the pairs; shown first in :meth:`CorrectionMap.summary`.
    reference : str
        The source to which rows are moved; empty if rows move to the mean of all sources, or for methods
        without a reference.
    """

    method: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
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
    signals: dict[str, Any] = field(default_factory=dict)
    people: tuple[str, ...] = ()
    row_sample: str = ""
    library_version: str = __version__
    evidence: str = ""
    doubt: str = ""
    notes: str = ""
    reference: str = ""

    def facts(self, n_features: int, *, coordinates: str) -> dict[str, str]:
        """Return the provenance as named texts, empty for unknown facts."""
        names = f": {first_few(self.feature_names, 5)}" if self.feature_names else ""
        constant = f"; {len(self.constant_features)} constant in the fit" if self.constant_features else ""
        counts = {"rows": self.n_rows, "contrasts": self.n_contrasts}
        tokens = f"{'mean of' if self.token_layout == 'mean' else 'together, all'} {self.n_tokens}"
        return {
            "method": self.method,
            "features": f"{n_features}{names}{constant}",
            "sources": first_few(self.source_names, 5),
            "gate": "" if self.gate_rank is None else gate_words(self),
            "fitted on": ", ".join(f"{count} {what}" for what, count in counts.items() if count is not None),
            "found": self.evidence,
            "tokens": "" if self.n_tokens is None else tokens,
            "encoder": ", ".join(f"{k} {v}" for k, v in self.encoder.items()),
            "signals": signals_in_words(self.signals),
            "coordinates": coordinates,
            "seed": "" if self.random_state is None else str(self.random_state),
            "settings": ", ".join(f"{k}={self.parameters.get(k)}" for k in self.changed),
            "people": f"{len(self.people)} (stored as hashes)" if self.people else "",
            "data": self.fingerprint or "",
            "written by": f"mgpa {self.library_version}",
            "notes": self.notes,
        }


def gate_words(info: MapInfo) -> str:
    """Return the rank of a map's gate and its share of the contrasts, in words."""
    energy = "" if info.gate_energy is None else f", {info.gate_energy:.1%} of contrast energy"
    return f"rank {info.gate_rank}{energy}"


def signals_in_words(signals: dict[str, Any]) -> str:
    """Return the recording and preparation of signals in words.

    Examples
    --------
    >>> signals_in_words({"channels": ["Oz", "Pz"], "sfreq": 128.0, "band": [1.0, 40.0], "reference": None})
    '2 channels, sfreq 128.0, band 1.0 to 40.0'
    """
    words = []
    for name, value in signals.items():
        if name == "channels" and isinstance(value, list | tuple):
            words.append(f"{len(value)} channels")
        elif value is not None:
            several = isinstance(value, list | tuple)
            words.append(f"{name} {' to '.join(map(str, value)) if several else value}")
    return ", ".join(words)
