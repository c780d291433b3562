"""What a map says about itself: its provenance, in fields and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import first_few

if TYPE_CHECKING:
    from .base import CorrectionMap

# The classes of maps by the names that files use; filled as the classes are defined.
KINDS: dict[str, type[CorrectionMap]] = {}


@dataclass(frozen=True, kw_only=True)
class MapInfo:
    """The provenance of a map. It never changes a corrected row; names and tokens only reject other input.

    A :class:`~mgpa.maps.RoutedMap` also finds its sources here.

    Attributes
    ----------
    parameters, changed : dict, tuple of str
        The estimator's settings, and the names of those that were not its defaults.
    feature_names : tuple of str or None
        Names of the features, where they have some; with coordinates, of the raw ones if there are as many.
    people : tuple of str
        Digests of the names of the participants it was fitted on.
    row_sample : str
        Digests of some of their rows, as :func:`mgpa.tables.rows.encode_sample` writes them.
    n_tokens, token_layout : int or None, {"mean", "joint"}
        Tokens per row in the fit, and what the map's features are: the tokens' mean, or all tokens one after
        another.
    constant_features : tuple of int
        Positions of the features that never varied in the fit. Their scale is 1, they are never edited, and
        they do not count in the size that movement is relative to.
    source_column : str
        What the user's table called the sources ("hospital"); empty if unknown.
    signals : dict
        How the signals were recorded and prepared: channels, rate, window, band, baseline, reference.
    evidence : str
        What the fit found before it acted, and whether it did.
    doubt : str
        What is doubtful about the pairs; :meth:`CorrectionMap.summary` begins with it.
    reference : str
        The source that rows are moved to; empty if that is the mean of all sources, or for methods without a
        reference.
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
        """Return provenance in words, by what it says; empty where nothing is known."""
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
    """Return how signals were recorded and prepared.

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
