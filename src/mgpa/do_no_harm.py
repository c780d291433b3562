"""When to stop: a correction with nothing left to remove should not move anything.

On rows the critics were not fitted on, the residual e = s(h) - a(q) is what a critic reads beyond the
expectation given the preserved coordinates. Once it no longer ranks the sources (Mann-Whitney against
chance), another stage would chase noise: it costs movement and task information and removes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from sklearn.model_selection import StratifiedGroupKFold

from .pairs import encode_source, is_paired

# Below this many rows a single held-out fifth says too little: five cross-fitted runs decide together.
FEW_ROWS = 2000
N_FOLDS = 5
# The first stage needs evidence that there is anything to remove (5 % error, all scores together). Once
# there was, stages go on until, twice in a row, no score exceeds chance by a standard error: a single quiet
# stage is often a dip.
ERROR_RATE = 0.05
CONTINUE_Z = 1.0
REVERSED_Z = 2.5
PATIENCE = 2


class Evidence:
    """Weighs held-out residuals stage by stage and says when to stop.

    Parameters
    ----------
    codes : list of int arrays
        Source of each held-out row, one array per run: residuals are ranked within a run only, since runs
        have critics, hence offsets, of their own.
    names : array
        The K source labels. Scores come in blocks of K - 1, each the logit of a source against the first.
    """

    def __init__(self, codes: list[NDArray[np.int64]], names: Any) -> None:
        labels = np.asarray(names).tolist()
        absent = [name for k, name in enumerate(labels) if not any((c == k).any() for c in codes)]
        if absent:
            raise ValueError(
                f"No held-out rows of source {absent}: do_no_harm compares sources on held-out rows. Add "
                "such rows to X_val, or set do_no_harm=False."
            )
        self.codes, self.n_sources = codes, len(labels)
        self.started, self.quiet = False, 0

    def weigh(self, residuals: list[NDArray[Any]]) -> dict[str, Any]:
        """Return AUROC and z of each score's residual, and whether the stage should be kept."""
        auroc, z = [], []
        for j in range(residuals[0].shape[1]):
            source = 1 + j % (self.n_sources - 1)
            runs = [(e[c == source, j], e[c == 0, j]) for e, c in zip(residuals, self.codes, strict=True)]
            area, excess = rank_evidence(runs)
            auroc.append(area)
            z.append(excess)
        if not self.started:
            self.started = max(z) > float(norm.isf(ERROR_RATE / len(z)))
            kept = self.started
        else:
            # After a step too far a critic ranks new rows backwards: the source can still be read. Cross-
            # fitting alone makes small negative z, so this way round the evidence must be strong.
            self.quiet = 0 if max(z) > CONTINUE_Z or min(z) < -REVERSED_Z else self.quiet + 1
            kept = self.quiet < PATIENCE
        return {"auroc": auroc, "z": z, "kept": kept}


def rank_evidence(runs: list[tuple[NDArray[Any], NDArray[Any]]]) -> tuple[float, float]:
    """Return the AUROC of scores, pooled over runs, and its distance from 1/2 in null standard errors.

    Parameters
    ----------
    runs : list of (positive, negative)
        Scores of the two sources; a run that lacks one of them says nothing.

    Examples
    --------
    >>> import numpy as np
    >>> area, z = rank_evidence([(np.array([2.0, 3.0, 4.0]), np.array([1.0, 0.0, 2.0]))])
    >>> round(area, 3), round(z, 2)
    (0.944, 1.75)
    """
    wins = pairs = variance = 0.0
    for positive, negative in runs:
        n1, n0 = len(positive), len(negative)
        if n1 and n0:
            ranks = rankdata(np.concatenate([positive, negative]))
            wins += ranks[:n1].sum() - n1 * (n1 + 1) / 2
            pairs += n1 * n0
            variance += n1 * n0 * (n1 + n0 + 1) / 12.0
    if not pairs:
        return 0.5, 0.0
    return float(wins / pairs), float((wins - 0.5 * pairs) / np.sqrt(variance))


def held_out_folds(
    codes: NDArray[np.int64], groups: Any, pair_id: NDArray[Any] | None, seed: int
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return (train, test) rows: one split with many rows, five folds with few.

    Whole groups (participants) stay together; without groups, views of one event do.
    """
    n = len(codes)
    if groups is not None:
        units = encode_source(groups, n, "groups")[1]
    elif pair_id is not None:
        # Unpaired rows are their own unit.
        ids = np.unique(pair_id, return_inverse=True)[1]
        units = np.where(is_paired(pair_id), ids, n + np.arange(n))
    else:
        units = np.arange(n)
    n_folds = min(N_FOLDS, len(np.unique(units)), int(np.bincount(codes).min()))
    if n_folds < 2:
        raise ValueError(
            "do_no_harm needs rows to hold out: at least two groups and two rows of each source. "
            "Pass X_val and source_val, or set do_no_harm=False."
        )
    splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed % 2**31)
    folds = list(splitter.split(np.zeros((n, 1)), codes, units))
    return folds[:1] if n >= FEW_ROWS else folds
