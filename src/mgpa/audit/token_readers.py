"""Source readers for token embeddings (n, t, d): of the mean, of all tokens, and of what a shift leaves.

A correction of the token mean shifts all tokens of a row alike, so differences between tokens stay. Readers
of the whole sequence may find the source there. Those of the centred tokens R_t = H_t - mean(H) see nothing
else; every such correction leaves them alike, so they are fitted once, on uncorrected HEAD tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..critics import LinearCritic, fit_logistic
from ..estimators.staged import torch_device
from ..pairs import to_numpy
from ..tokens import as_tokens, token_mean
from .further_readers import further_scores
from .readers import (
    CHECKPOINTS,
    SEED,
    SourceReading,
    as_reading,
    check_bank,
    check_schedule,
    logistic_scores,
    network_scores,
    read_sources,
    restart_seeds,
    source_codes,
    train_networks,
)

Tokens = NDArray[np.float32]

MIN_SCALE = 1e-5
MAX_ITER = 10_000
RESIDUAL_TOLERANCE = 2e-4


@dataclass(frozen=True)
class TokenScaling:
    """Mean and scale of every coordinate of HEAD tokens, in float32."""

    center: Tokens
    scale: Tokens

    @classmethod
    def fit(cls, X: Tokens) -> Self:
        """Measure HEAD tokens."""
        center = X.mean(axis=0, dtype=np.float64).astype(np.float32)
        scale = np.maximum(X.std(axis=0, dtype=np.float64), MIN_SCALE).astype(np.float32)
        return cls(center, scale)

    def apply(self, X: Tokens) -> Tokens:
        """Return tokens in standard units."""
        return (X - self.center) / self.scale


def read_residuals(
    X_head: Any,
    source_head: Any,
    X_eval: Any,
    *,
    device: str = "auto",
    seed: int = SEED,
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
) -> SourceReading:
    """Read sources from centred tokens: by a standardised logistic reader and by token networks.

    A correction that shifts all tokens of a row alike leaves these as they are, so one reading of uncorrected
    tokens serves all such corrections. The parameters are those of :func:`read_token_sources`.
    """
    head, held = (
        token_residuals(check_tokens(X, name)) for X, name in ((X_head, "X_head"), (X_eval, "X_eval"))
    )
    codes, n_sources = source_codes(source_head, len(head))
    scaling = TokenScaling.fit(head)
    head, held = scaling.apply(head), scaling.apply(held)
    linear = _fit_logistic("residual linear_standardized", head, codes, n_sources, C=0.01)
    scores = {"linear_standardized": logistic_scores(linear, _flat(held))}
    if restarts:
        seeds, place = restart_seeds(seed, restarts), torch_device(device, "read_residuals")
        epochs = check_schedule(restarts, checkpoints)
        [trained] = train_networks("grid_gelu", [head], codes, seeds, epochs, device=place)
        scores |= network_scores("grid_gelu", trained, held)
    return as_reading({f"residual {name}": values for name, values in scores.items()})


def read_token_sources(
    X_head: Any,
    source_head: Any,
    X_eval: Any,
    *,
    residual: SourceReading | None = None,
    device: str = "auto",
    seed: int = SEED,
    bank: str = "paper",
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
) -> SourceReading:
    """Train source readers on HEAD tokens and score EVAL tokens with each.

    By name: "mean " and a reader of :func:`~mgpa.audit.readers.read_sources` (11), "tokens linear_raw",
    "tokens linear_standardized", "tokens flat_gelu r0 e12" and "tokens grid_gelu r0 e12" (20), and the
    "residual " reading given (10). In the full bank also "boosted_trees" and "spread", of the mean and of
    all tokens.

    Parameters
    ----------
    X_head, source_head, X_eval : (n, t, d) array, (n,) labels, (n_eval, t, d) array
        Corrected HEAD tokens and their sources, and corrected EVAL tokens.
    residual : SourceReading or None
        From :func:`read_residuals`; its readers are added.
    device, seed, bank, restarts, checkpoints
        As in :func:`~mgpa.audit.readers.read_sources`.

    Returns
    -------
    SourceReading
    """
    head, held = check_tokens(X_head, "X_head"), check_tokens(X_eval, "X_eval")
    if head.shape[1:] != held.shape[1:]:
        raise ValueError(f"X_eval has tokens of shape {held.shape[1:]}; X_head has {head.shape[1:]}.")
    codes, n_sources = source_codes(source_head, len(head))
    checkpoints = check_schedule(restarts, checkpoints)
    check_bank(bank)
    how: dict[str, Any] = {"device": device, "seed": seed, "bank": bank}
    how |= {"restarts": restarts, "checkpoints": checkpoints}
    mean_reading = read_sources(token_mean(head), source_head, token_mean(held), **how)
    readings = {f"mean {name}": mean_reading.scores[:, i] for i, name in enumerate(mean_reading.readers)}

    raw = _fit_logistic("tokens linear_raw", head, codes, n_sources, C=1.0)
    readings["tokens linear_raw"] = logistic_scores(raw, _flat(held))
    scaling = TokenScaling.fit(head)
    head, held = scaling.apply(head), scaling.apply(held)
    standard = _fit_logistic("tokens linear_standardized", head, codes, n_sources, C=0.01)
    readings["tokens linear_standardized"] = logistic_scores(standard, _flat(held))
    if restarts:
        seeds, place = restart_seeds(seed, restarts), torch_device(device, "read_token_sources")
        for name, architecture in (("tokens flat_gelu", "gelu"), ("tokens grid_gelu", "grid_gelu")):
            [trained] = train_networks(architecture, [head], codes, seeds, checkpoints, device=place)
            readings |= network_scores(name, trained, held)
    if bank == "full":
        further = further_scores(_flat(head), codes, _flat(held), seed)
        readings |= {f"tokens {name}": scores for name, scores in further.items()}
    if residual is not None:
        readings |= {name: residual.scores[:, i] for i, name in enumerate(residual.readers)}
    return as_reading(readings)


def token_residuals(X: Any) -> Tokens:
    """Return tokens minus their mean over the row, taken in float64, as float32.

    Examples
    --------
    >>> token_residuals([[[1.0], [2.0], [6.0]]]).ravel()
    array([-2., -1.,  3.], dtype=float32)
    """
    tokens = np.asarray(X)
    residuals: Tokens = (tokens - tokens.mean(axis=1, dtype=np.float64, keepdims=True)).astype(np.float32)
    return residuals


def moves_tokens_alike(original: Any, corrected: Any) -> bool:
    """Return whether a correction left the centred tokens of these rows as they were, up to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> tokens = np.zeros((2, 3, 4))
    >>> moves_tokens_alike(tokens, tokens + 1.0), moves_tokens_alike(tokens, tokens + np.eye(3, 4))
    (True, False)
    """
    drift = np.abs(token_residuals(corrected) - token_residuals(original))
    return bool(drift.max(initial=0.0) <= RESIDUAL_TOLERANCE)


def check_tokens(X: Any, name: str) -> Tokens:
    """Return X as (n, t, d) float32 tokens, or say what is wrong with it."""
    return as_tokens(to_numpy(X), name).astype(np.float32, copy=False)


def _flat(X: Tokens) -> NDArray[np.float64]:
    return X.reshape(len(X), -1).astype(np.float64)


def _fit_logistic(
    name: str, X: Tokens, codes: NDArray[np.int64], n_sources: int, *, C: float
) -> LinearCritic:
    """Fit a balanced logistic reader of flattened tokens; raise if it does not converge."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            return fit_logistic(_flat(X), codes, n_sources, C=C, max_iter=MAX_ITER)
    except ConvergenceWarning as warning:
        raise RuntimeError(
            f"The reader {name!r} did not converge in {MAX_ITER} iterations, and half a fit would understate "
            "what can be read. Bring the tokens to a common scale first."
        ) from warning
