"""Readers of tokens (n, t, d): of the token mean, of all tokens, and of centred tokens.

A correction of the token mean shifts all tokens of a row equally, so differences between tokens remain.
Centred tokens R_t = H_t - mean(H) contain only these differences and do not change with such corrections, so
their readers are fitted once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.extras import torch_device
from ...critics import Critic, fit_logistic
from ...estimators.tokens import as_tokens, token_mean
from ...labels import to_numpy
from .common import CHECKPOINTS, SEED, Codes, Floats, Scores, check_bank, source_codes
from .further import Participants, further_scores
from .logistic import logistic_scores
from .networks import network_scores, restart_seeds, train_networks
from .vectors import check_participants, run_readers

Tokens = NDArray[np.float32]

MIN_TOKEN_SCALE = 1e-5
TOKEN_ITERATIONS = 10_000
RESIDUAL_TOLERANCE = 2e-4


def run_residual_readers(X_head: Any, source_head: Any, X_eval: Any, **schedule: Any) -> Scores:
    """Return the scores of readers of centred tokens: a standardised logistic reader and token networks.

    A correction that shifts all tokens of a row equally does not change centred tokens, so the scores on
    uncorrected tokens hold for all such corrections. The parameters are those of :func:`run_token_readers`.
    """
    head, held = (token_residuals(X) for X in _token_sets(X_head, X_eval))
    return _read_tokens("residual", head, source_head, held, {"grid_gelu": "grid_gelu"}, **schedule)


def run_token_readers(
    X_head: Any,
    source_head: Any,
    X_eval: Any,
    *,
    residual: Any = None,
    bank: str = "paper",
    participants: Participants | None = None,
    **schedule: Any,
) -> Scores:
    """Train source readers on HEAD tokens and score EVAL tokens with each.

    Names of readers are "mean " and a reader of :func:`run_readers` (11), "tokens linear_raw", "tokens
    linear_standardized", "tokens flat_gelu r0 e12" and "tokens grid_gelu r0 e12" (20), and the "residual "
    readers, if given (10). The full set adds the further readers of the mean and of all tokens.

    Parameters
    ----------
    X_head, source_head, X_eval : (n, t, d) array, (n,) labels, (n_eval, t, d) array
        Corrected HEAD tokens and their sources, and corrected EVAL tokens.
    residual : dict or None
        The result of :func:`run_residual_readers`, to be included.
    bank, participants, restarts, checkpoints, seed, device
        As in :func:`run_readers`.
    """
    head, held = _token_sets(X_head, X_eval)
    how = {"bank": bank, "participants": participants, **schedule}
    mean = run_readers(token_mean(head), source_head, token_mean(held), **how)
    readings = {f"mean {name}": scores for name, scores in mean.items()}
    codes, n_sources = source_codes(source_head, len(head))
    raw = _fit_token_logistic("tokens linear_raw", head, codes, n_sources, C=1.0)
    readings["tokens linear_raw"] = logistic_scores(raw, _flat(held))
    networks = {"flat_gelu": "gelu", "grid_gelu": "grid_gelu"}
    readings |= _read_tokens("tokens", head, source_head, held, networks, **schedule)
    if bank == "full":
        head, held = _standardized(head, held)
        whose = check_participants(participants, head, held)
        further = further_scores(_flat(head), codes, _flat(held), schedule.get("seed", SEED), whose)
        readings |= {f"tokens {name}": scores for name, scores in further.items()}
    return readings | (residual or {})


def _read_tokens(
    prefix: str,
    head: Tokens,
    source_head: Any,
    held: Tokens,
    networks: dict[str, str],
    *,
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
    seed: int = SEED,
    device: str = "auto",
) -> Scores:
    """Return the scores of a logistic reader and of networks (by architecture) on standardised tokens."""
    codes, n_sources = source_codes(source_head, len(head))
    epochs = check_bank("paper", restarts, checkpoints)
    head, held = _standardized(head, held)
    name = f"{prefix} linear_standardized"
    linear = _fit_token_logistic(name, head, codes, n_sources, C=0.01)
    readings = {name: logistic_scores(linear, _flat(held))}
    for name, architecture in networks.items() if restarts else ():
        seeds, place = restart_seeds(seed, restarts), torch_device(device, "run_token_readers")
        trained = train_networks(architecture, head, codes, seeds, epochs, device=place)
        readings |= network_scores(f"{prefix} {name}", trained, held)
    return readings


def _token_sets(X_head: Any, X_eval: Any) -> tuple[Tokens, Tokens]:
    """Return HEAD and EVAL tokens after checks."""
    head, held = check_tokens(X_head, "X_head"), check_tokens(X_eval, "X_eval")
    if head.shape[1:] != held.shape[1:]:
        raise ValueError(f"X_eval has tokens of shape {held.shape[1:]}; X_head has {head.shape[1:]}.")
    return head, held


def _standardized(head: Tokens, held: Tokens) -> tuple[Tokens, Tokens]:
    """Return HEAD and EVAL tokens standardised by the HEAD tokens."""
    center, scale = token_scaling(head)
    return (head - center) / scale, (held - center) / scale


def token_scaling(X: Tokens) -> tuple[Tokens, Tokens]:
    """Return the mean and scale of each coordinate of tokens, in float32."""
    center = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    return center, np.maximum(X.std(axis=0, dtype=np.float64), MIN_TOKEN_SCALE).astype(np.float32)


def token_residuals(X: Any) -> Tokens:
    """Return tokens minus the token mean of their row (computed in float64), as float32."""
    tokens = np.asarray(X)
    residuals: Tokens = (tokens - tokens.mean(axis=1, dtype=np.float64, keepdims=True)).astype(np.float32)
    return residuals


def moves_tokens_alike(original: Any, corrected: Any) -> bool:
    """Return whether a correction left the centred tokens of these rows unchanged, up to rounding."""
    drift = np.abs(token_residuals(corrected) - token_residuals(original))
    return bool(drift.max(initial=0.0) <= RESIDUAL_TOLERANCE)


def check_tokens(X: Any, name: str) -> Tokens:
    """Return X as (n, t, d) float32 tokens, or raise."""
    return as_tokens(to_numpy(X), name).astype(np.float32, copy=False)


def _flat(X: Tokens) -> Floats:
    return X.reshape(len(X), -1).astype(np.float64)


def _fit_token_logistic(name: str, X: Tokens, codes: Codes, n_sources: int, *, C: float) -> Critic:
    """Fit a balanced logistic reader of flattened tokens; raise if it does not converge."""
    from sklearn.exceptions import ConvergenceWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            return fit_logistic(_flat(X), codes, n_sources, C=C, max_iter=TOKEN_ITERATIONS)
    except ConvergenceWarning as warning:
        raise RuntimeError(f"{name} did not converge; bring the tokens to a common scale first.") from warning
