"""Run the source readers on vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ..._common.extras import torch_device
from ...labels import to_numpy
from .common import CHECKPOINTS, SEED, Array, Codes, Scores, check_bank, check_rows, source_codes
from .further import FURTHER, LENGTHS, WIDEST, Participants, further_scores
from .logistic import linear_scores
from .networks import network_scores, restart_seeds, train_sets
from .stopping import worth_training

# One of the quick further readers.
QUICK = LENGTHS[0]


def run_readers(
    X_head: Any,
    source_head: Any,
    X_eval: Any,
    *,
    bank: str = "paper",
    participants: Participants | None = None,
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
    seed: int = SEED,
    device: str = "auto",
) -> Scores:
    """Train source readers on HEAD rows and score EVAL rows with each reader.

    The readers are "linear", "whitened_linear" and, for each restart and checkpoint, "gelu r0 e12". The full
    set adds the readers in ``mgpa.audit.readers.FURTHER``.

    Parameters
    ----------
    X_head, source_head : (n, d) array, (n,) labels
        Corrected HEAD rows and their sources, two or more.
    X_eval : (n_eval, d) array
        Corrected EVAL rows of other participants; their sources are not needed.
    bank : {"paper", "full"}
        "paper" (default here): only the paper's readers; "full": all readers, as in :func:`mgpa.audit.run`.
    participants : tuple of two arrays, or None
        The participants of HEAD and EVAL rows. If given, the full set has two further readers of rows minus
        the mean of their participant.
    restarts, checkpoints : int, increasing ints
        Number of networks (3), and the epochs after which they are evaluated. restarts=0 needs no torch.
    seed : int
        Restart r uses the seed ``seed`` + 1001 + 10000 r for initial weights and shuffling.
    device : str
        Device for training networks; "auto" (default) is CUDA if available.

    Returns
    -------
    dict of reader to scores
        For two sources (n_eval,), higher for the second of the sorted labels; for more, the probability of
        each source, (n_eval, K).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.metrics import roc_auc_score
    >>> rng = np.random.default_rng(0)
    >>> source = np.tile(["dry", "wet"], 100)
    >>> X = rng.normal(size=(200, 4)) + (source == "wet")[:, None] * np.eye(4)[0]
    >>> scores = run_readers(X[:100], source[:100], X[100:], restarts=0)
    >>> list(scores), round(float(roc_auc_score(source[100:], scores["linear"])), 2)
    (['linear', 'whitened_linear'], 0.75)
    """
    return run_readers_on_each(
        [X_head],
        source_head,
        [X_eval],
        bank=bank,
        participants=participants,
        restarts=restarts,
        checkpoints=checkpoints,
        seed=seed,
        device=device,
    )[0]


def run_readers_on_each(
    X_head: Sequence[Any],
    source_head: Any,
    X_eval: Sequence[Any],
    *,
    bank: str = "paper",
    participants: Participants | None = None,
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
    seed: int = SEED,
    device: str = "auto",
) -> list[Scores]:
    """Run the readers on several corrections of the same rows; networks are trained as one program.

    Parameters
    ----------
    X_head, X_eval : sequences of (n, d) and (n_eval, d) arrays
        HEAD and EVAL rows corrected by each method.
    source_head, bank, participants, restarts, checkpoints, seed, device
        As in :func:`run_readers`.

    Returns
    -------
    list of dict of reader to scores
        The results of :func:`run_readers` for each correction, up to rounding.
    """
    heads = [check_rows(X, "X_head") for X in X_head]
    helds = [check_rows(X, "X_eval") for X in X_eval]
    for head, held in zip(heads, helds, strict=True):
        if head.ndim == 3 or head.shape[1:] != held.shape[1:]:
            raise ValueError(
                f"X_head has shape {head.shape}, X_eval {held.shape}; expected the same number of features. "
                "For tokens (n, t, d) use run_token_readers."
            )
        if head.shape != heads[0].shape:
            raise ValueError(
                f"X_head has shapes {heads[0].shape} and {head.shape}; expected corrections of the same rows."
            )
    codes, _ = source_codes(source_head, len(heads[0]))
    epochs = check_bank(bank, restarts, checkpoints)
    whose = [check_participants(participants, head, held) for head, held in zip(heads, helds, strict=True)]
    place = torch_device(device, "run_readers") if restarts else None
    readings = [
        Reading(head, codes, held, people) for head, held, people in zip(heads, helds, whose, strict=True)
    ]
    found = trained_scores(readings, bank=bank, restarts=restarts, epochs=epochs, seed=seed, place=place)
    return [
        with_further(scores, reading, bank, seed) for scores, reading in zip(found, readings, strict=True)
    ]


class Reading(NamedTuple):
    """Input of readers: HEAD rows with source codes, EVAL rows to score, and participants of both."""

    head: NDArray[Any]
    codes: Codes
    held: NDArray[Any]
    people: Participants | None = None


def with_further(trained: Scores, reading: Reading, bank: str, seed: int) -> Scores:
    """Return the scores of all readers, adding those that :func:`trained_scores` does not compute."""
    if bank == "paper":
        return trained
    kinds = ["slow"] if QUICK in trained else ["quick", "slow"]
    found = trained | further_scores(*reading[:3], seed, reading.people, kinds=kinds)
    first = [name for name in found if name not in FURTHER]
    return {name: found[name] for name in (*first, *FURTHER) if name in found}


def trained_scores(
    readings: Iterable[Reading], *, bank: str, restarts: int, epochs: tuple[int, ...], seed: int, place: Any
) -> list[Scores]:
    """Return the scores of logistic readers and networks; networks are trained as one batched program.

    Readings may be different corrections of the same rows, or rows of several folds. On a GPU, rows stay in
    its memory until all networks are trained, and networks are trained to the end, because parallel training
    takes less time than early stopping. The scores then also include the "quick" readers of
    :func:`~mgpa.audit.readers.further_scores`, which run on the GPU.
    """
    on_gpu = place is not None and place.type == "cuda"
    found: list[Scores] = []
    kept: list[tuple[Array, Codes, Array]] = []
    ends: list[tuple[int, ...]] = []
    for head, codes, held, people in readings:
        rows = (_where(head, place), _where(held, place)) if on_gpu else (head, held)
        found.append(linear_scores(rows[0], codes, int(codes.max()) + 1, rows[1]))
        if on_gpu and bank == "full" and head.shape[1] <= WIDEST:
            found[-1] |= further_scores(rows[0], codes, rows[1], seed, people, kinds=["quick"])
        if restarts:
            stops = bank == "full" and not on_gpu
            whose = None if people is None else people[0]
            ends.append(worth_training(head, codes, whose, epochs, seed, place) if stops else epochs)
            kept.append((rows[0], codes, rows[1]))
    if restarts:
        heads, codes_of, helds = zip(*kept, strict=True)
        trained = train_sets("gelu", heads, codes_of, restart_seeds(seed, restarts), ends, device=place)
        for scores, networks, held in zip(found, trained, helds, strict=True):
            scores |= network_scores("gelu", networks, held, epochs)
    return found


def check_participants(
    participants: Participants | None, head: NDArray[Any], held: NDArray[Any]
) -> Participants | None:
    """Return the participants of HEAD and EVAL rows; raise if some are missing."""
    if participants is None:
        return None
    whose = tuple(to_numpy(people) for people in participants)
    if [len(people) for people in whose] != [len(head), len(held)]:
        raise ValueError(
            f"participants has {' and '.join(str(len(people)) for people in whose)} names; expected those of "
            f"{len(head)} HEAD rows and of {len(held)} EVAL rows."
        )
    return whose[0], whose[1]


def _where(X: NDArray[Any], place: Any) -> Array:
    """Return rows on the given GPU."""
    import torch

    return torch.as_tensor(X, device=place)
