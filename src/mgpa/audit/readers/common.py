"""Shared code of readers: types, blocks of rows, scores, and input checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ..._common.arrays import double
from ..._common.checks import as_float_matrix, require_finite
from ...estimators.tokens import as_tokens
from ...labels import encode_source, to_numpy

Array = Any  # numpy array or torch.Tensor
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
# Scores by reader: (n,), higher for the second of two sorted sources, or probabilities (n, K).
Scores = dict[str, Floats]
# A fitted reader: a function from rows to scores.
Reader = Callable[[Floats], Floats]

#: The banks: the paper's eleven readers (41 for tokens), and these with further ones besides.
BANKS = ("full", "paper")
SEED = 98
CHECKPOINTS = (12, 50, 200)
BLOCK = 2048  # rows per block


def blocks(X: Array) -> Iterator[tuple[int, Array]]:
    """Yield the first position and the rows of each block, in float64."""
    for start in range(0, max(len(X), 1), BLOCK):
        yield start, double(X[start : start + BLOCK])


def source_scores(logits: NDArray[Any]) -> Floats:
    """Return logit 1 - logit 0 (n,) for two sources, or probabilities (n, K) for more."""
    if logits.shape[1] == 2:
        return np.asarray(logits[:, 1] - logits[:, 0], dtype=np.float64)
    return np.asarray(softmax(logits.astype(np.float64), axis=1))


def model_scores(model: Any, X: Floats) -> Floats:
    """Return the scores of a scikit-learn classifier: one per row for two sources, else probabilities."""
    if len(model.classes_) == 2:
        return np.asarray(model.decision_function(X), dtype=np.float64)
    return np.asarray(model.predict_proba(X), dtype=np.float64)


def source_codes(source: Any, n: int) -> tuple[Codes, int]:
    """Return the source codes of HEAD rows, and the number of sources."""
    sources, codes = encode_source(source, n, "source_head")
    counts = np.bincount(codes)
    if len(sources) < 2 or counts.min() < 2:
        listed = dict(zip(sources.tolist(), counts.tolist(), strict=True))
        raise ValueError(f"HEAD rows of each source: {listed}; readers need two sources of two rows or more.")
    return codes, len(sources)


def check_bank(bank: str, restarts: int, checkpoints: Sequence[int]) -> tuple[int, ...]:
    """Return the checkpoints as a tuple; raise if the settings of readers are invalid."""
    epochs = tuple(int(epoch) for epoch in checkpoints)
    if bank not in BANKS:
        raise ValueError(f"No bank of readers {bank!r}; choose {' or '.join(map(repr, BANKS))}.")
    if restarts < 0 or not epochs or epochs[0] < 1 or any(a >= b for a, b in pairwise(epochs)):
        raise ValueError(
            f"restarts={restarts}, checkpoints={epochs}; expected 0 (no networks) or more restarts, and "
            "increasing numbers of epochs, from 1."
        )
    return epochs


def check_rows(X: Any, name: str) -> NDArray[Any]:
    """Return X as rows (n, d) or tokens (n, t, d); raise unless they are finite."""
    X = to_numpy(X)
    if X.ndim == 3:
        return as_tokens(X, name)
    rows = as_float_matrix(X, name=name)
    require_finite(rows, name)
    return rows
