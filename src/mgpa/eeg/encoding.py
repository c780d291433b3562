"""From trials to a table: anything that embeds signals, fixed features and frozen networks alike."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..tables.table import Table
from .trials import Trials


class Encoder(Protocol):
    """What turns trials into embeddings."""

    @property
    def identity(self) -> dict[str, Any]:
        """What the embeddings depend on besides the trials, as JSON could hold it."""

    def embed(self, trials: Any, *, verbose: bool = False) -> NDArray[Any]:
        """Return an embedding (n, d), or tokens (n, t, d), of trials or MNE epochs."""


def as_trials(trials: Any) -> Trials:
    """Return trials as they are, and MNE epochs, or a list of them, as trials."""
    return trials if isinstance(trials, Trials) else Trials.from_epochs(trials)


def encode(trials: Any, encoder: Encoder, *, verbose: bool = False) -> Table:
    """Embed trials and return a table with their columns.

    Parameters
    ----------
    trials : Trials, mne.Epochs, or a list of mne.Epochs
        Signals, and what is known about each.
    encoder : Encoder
        As in :mod:`mgpa.eeg.features` and :mod:`mgpa.eeg.encoders`; any object with ``identity`` and
        ``embed`` will do. ``info["encoder"]`` of the table says what made the embeddings.
    verbose : bool
        Show progress.

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa.eeg.features import TemporalBins
    >>> trials = Trials(np.ones((2, 3, 128)), ["Oz", "O1", "O2"], 128.0, columns={"label": [0, 1]})
    >>> encode(trials, TemporalBins(0, 0.75, 0.05))
    <Table: 2 rows of 45 float32, with label>
    """
    trials = as_trials(trials)
    X = np.asarray(encoder.embed(trials, verbose=verbose))
    if X.ndim not in (2, 3) or len(X) != len(trials):
        raise ValueError(
            f"{type(encoder).__name__}.embed returned shape {X.shape} for {len(trials)} trials; expected "
            "one embedding (n, d) or one set of tokens (n, t, d) per trial."
        )
    if X.dtype == np.float16:
        X = X.astype(np.float32)  # half precision is for storing; nothing is lost
    info: dict[str, Any] = {"encoder": encoder.identity}
    if X.ndim == 2 and hasattr(encoder, "feature_names"):
        info["feature_names"] = encoder.feature_names(trials.channels)
    table: Table = trials.table(X, **info)
    return table
