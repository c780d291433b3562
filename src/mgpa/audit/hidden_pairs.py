"""Find hidden pairs: participants of two sources with rows that look like one person under two names.

Participants' mean rows are compared between sources, along axes in which rows vary within participants:

    one person:    difference ~ N(0, v),  v = the sampling variance of the means, plus a share τ of B
    two people:    difference ~ N(0, v + 2 B),  B = the variance between participants of one source

The likelihood ratio (mean over τ) exceeds c for two people with a probability of at most 1 / c. Pairs are
only suggested; the people who recorded the data must check them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEWEST = 5  # minimum number of participants of each source
MOST = 200
RATE = 0.05  # chance of any false candidate
CHANGES = (0.02, 0.1, 0.3)  # τ: candidate variances between two recordings of one person, relative to B
BALL = 0.02  # share of the variance within participants that is spread equally over all directions


@dataclass(frozen=True)
class HiddenPair:
    """Two participants who may be one person; ``log10_evidence`` is the log10 likelihood ratio."""

    sources: tuple[str, str]
    participants: tuple[str, str]
    log10_evidence: float

    def __str__(self) -> str:
        (a, b), (p, q) = self.sources, self.participants
        return f"{p!r} ({a}) and {q!r} ({b})"


def find_hidden_pairs(X: Any, source: Any, participant: Any) -> tuple[HiddenPair, ...]:
    """Return participants of different sources who may be one person, the most likely first.

    Parameters
    ----------
    X : (n, d) array
        Corrected rows, because differences between sources make people harder to recognise.
    source, participant : (n,) arrays
        Labels of the rows; participants with several sources are not searched.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(15, 8))
    >>> rows = np.repeat(np.concatenate([people[:8], people[7:]]), 20, axis=0)
    >>> X, who = rows + 0.5 * rng.normal(size=rows.shape), np.repeat(np.arange(16), 20)
    >>> [str(pair) for pair in find_hidden_pairs(X, np.where(who < 8, "dry", "wet"), who)]
    ["'7' (dry) and '8' (wet)"]
    """
    X = np.asarray(X, dtype=np.float64)
    names, code = np.unique(np.asarray(participant).astype(str), return_inverse=True)
    sources, where = np.unique(np.asarray(source).astype(str), return_inverse=True)
    count = np.zeros((len(names), len(sources)))
    np.add.at(count, (code, where), 1)
    alone = (count > 0).sum(axis=1) == 1
    home = count.argmax(axis=1)
    n_rows = count.max(axis=1)
    means = np.zeros((len(names), X.shape[1]))
    np.add.at(means, code, X)
    means /= count.sum(axis=1)[:, None]
    residual = X - means[code]
    variance, axes = np.linalg.eigh(residual.T @ residual / max(1, len(X) - len(names)))
    variance = (1.0 - BALL) * np.maximum(variance, 0.0) + BALL * variance.mean() + np.finfo(float).tiny
    groups = [np.flatnonzero(alone & (home == s) & (n_rows > 1))[:MOST] for s in range(len(sources))]
    found = []
    for a, b in combinations(range(len(sources)), 2):
        first, second = groups[a], groups[b]
        if min(len(first), len(second)) < FEWEST:
            continue
        W = [means[side] @ axes / np.sqrt(variance) for side in (first, second)]
        W = [w - np.median(w, axis=0) for w in W]
        rows = [n_rows[side] for side in (first, second)]
        by_chance = np.mean(1.0 / np.concatenate(rows))
        # Robust estimate: with a few extreme participants, all others would seem to be the same person.
        between = (1.4826 * np.median(np.abs(np.concatenate(W)), axis=0)) ** 2
        between = np.maximum(between - by_chance, 0.01 * by_chance)
        apart = np.square(W[0][:, None] - W[1])
        noise = (1.0 / rows[0][:, None] + 1.0 / rows[1])[..., None]
        ratios = []
        for change in CHANGES:
            one, two = noise + change * between, noise + (2.0 + change) * between
            ratios.append(0.5 * np.sum(np.log(two / one) - apart * (1.0 / one - 1.0 / two), axis=2))
        evidence = np.logaddexp.reduce(ratios) - np.log(len(CHANGES))
        for i, j in zip(*np.nonzero(evidence > np.log(evidence.size / RATE)), strict=True):
            if evidence[i, j] == max(evidence[i].max(), evidence[:, j].max()):
                pair = str(names[first[i]]), str(names[second[j]])
                strength = round(float(evidence[i, j] / np.log(10.0)), 2)
                found.append(HiddenPair((str(sources[a]), str(sources[b])), pair, strength))
    return tuple(sorted(found, key=lambda pair: -pair.log10_evidence))
