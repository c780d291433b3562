"""Early stopping of networks that can no longer exceed other readers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ranks import rank_auroc, ranks, score_columns
from .common import Codes, Scores, source_scores
from .further import further_scores
from .logistic import linear_scores
from .networks import restart_seeds, training_run

#: With fewer rows of a source, networks are always trained to the end.
FEWEST_JUDGED = 20
#: Smaller increases of AUROC do not count as improvement.
IMPROVED = 0.002
#: Possible improvement after the first checkpoint; later, it is twice the last improvement.
FIRST, AGAIN = 0.25, 2.0


def worth_training(
    head: NDArray[Any], codes: Codes, people: Any, epochs: tuple[int, ...], seed: int, device: Any
) -> tuple[int, ...]:
    """Return the checkpoints up to which networks may still exceed other readers.

    One network is trained on three quarters of the HEAD participants. On the other HEAD participants, it is
    compared with its earlier checkpoints and with readers other than networks. Training stops if the network
    no longer improves, or if its possible improvement would not suffice. EVAL rows are not used.
    """
    who = np.arange(len(codes)) if people is None else np.unique(people, return_inverse=True)[1]
    judged = np.random.default_rng(seed).permutation(who.max() + 1)[who] % 4 == 0
    n_sources = int(codes.max()) + 1
    fewest = min(np.bincount(codes[part], minlength=n_sources).min() for part in (judged, ~judged))
    if fewest < FEWEST_JUDGED or len(epochs) == 1:
        return epochs
    rows, truth = (head[~judged], codes[~judged], head[judged]), codes[judged]
    whose = None if people is None else (people[~judged], people[judged])

    def best_of(scores: Scores) -> float:
        return max((_area(values, truth) for values in scores.values()), default=0.0)

    best = best_of(linear_scores(rows[0], rows[1], n_sources, rows[2]))
    # The slowest readers are fitted only if faster ones do not stop the network.
    waiting = ["slow", "quick"]
    values: list[float] = []
    run = training_run("gelu", rows[:1], rows[1:2], restart_seeds(seed, 1), epochs, device=device)
    for epoch, (network,) in run:
        values.append(_area(source_scores(network(rows[2])[0]), truth))
        if len(values) > 1 and values[-1] < values[-2] + IMPROVED:
            return epochs[: len(values) - 1]
        hoped = values[-1] + (FIRST if len(values) == 1 else AGAIN * (values[-1] - values[-2]))
        while best <= hoped and waiting and epoch < epochs[-1]:
            best = max(best, best_of(further_scores(*rows, seed, whose, kinds=[waiting.pop()])))
        if hoped < best:
            return tuple(e for e in epochs if e <= epoch)
    return epochs


def _area(scores: NDArray[Any], truth: Codes) -> float:
    """Return the AUROC over rows; with more than two sources, each against the rest."""
    columns = score_columns(scores[:, None])
    areas = [
        rank_auroc(ranks(column)[truth == k].sum(), int((truth == k).sum()), len(truth))
        for k, column in columns
    ]
    return float(np.mean(areas))
