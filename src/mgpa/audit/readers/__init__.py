"""Independent source readers: models, trained after a correction, that predict the source.

A reader is trained on corrected HEAD rows and scores corrected EVAL rows of other participants. The paper's
readers are two logistic readers and a GELU network with three restarts, each evaluated after 12, 50 and 200
epochs.

Audits use the full set, which adds further readers, because linear readers and small networks hardly detect a
source that changes spread, covariance or length (docs/audit.md explains the choice).
"""

from __future__ import annotations

from .common import BANKS, CHECKPOINTS, SEED, Scores, check_bank, check_rows, source_codes
from .further import FURTHER, further_scores
from .logistic import SHRINKAGE
from .networks import train_networks
from .tokens import (
    check_tokens,
    moves_tokens_alike,
    run_residual_readers,
    run_token_readers,
    token_residuals,
    token_scaling,
)
from .vectors import Reading, run_readers, run_readers_on_each, trained_scores, with_further

__all__ = [
    "BANKS", "CHECKPOINTS", "FURTHER", "SEED", "SHRINKAGE", "Reading", "Scores", "check_bank", "check_rows",
    "check_tokens", "further_scores", "moves_tokens_alike", "run_readers", "run_readers_on_each",
    "run_residual_readers", "run_token_readers", "source_codes", "token_residuals", "token_scaling",
    "train_networks", "trained_scores", "with_further",
]  # fmt: skip
