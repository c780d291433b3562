"""Roles: who a correction is fitted on, and who judges it. A participant has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TableError
from ..pairs import encode_source
from .table import Table


def assign_roles(
    participant: Any, shares: dict[str, float] | None = None, *, stratify: Any = None, random_state: int = 0
) -> NDArray[Any]:
    """Return a role for every row such that no participant has two.

    Parameters
    ----------
    participant : (n,) array
        Who was measured.
    shares : dict of role to share of participants
        None is 40 % FIT and 20 % each VAL, HEAD and EVAL, as in the paper's controlled study.
    stratify : (n,) array or None
        A property of participants (age group, session order) to spread evenly over the roles.
    random_state : int
        Seed.

    Examples
    --------
    >>> import numpy as np
    >>> person = np.repeat([f"s{i}" for i in range(10)], 3)
    >>> role = assign_roles(person, random_state=1)
    >>> {r: len(set(person[role == r])) for r in ("FIT", "VAL", "HEAD", "EVAL")}
    {'FIT': 4, 'VAL': 2, 'HEAD': 2, 'EVAL': 2}
    """
    shares = {"FIT": 0.4, "VAL": 0.2, "HEAD": 0.2, "EVAL": 0.2} if shares is None else shares
    if not shares or min(shares.values()) < 0 or not sum(shares.values()) > 0:
        raise ValueError(f"shares must be non-negative and not all zero; got {shares}.")
    people, codes = encode_source(participant, len(participant), "participant")
    roles = [role for role, share in shares.items() if share > 0]
    if len(people) < len(roles):
        raise ValueError(
            f"{len(people)} participants cannot fill the {len(roles)} roles {', '.join(roles)}; every role "
            "needs its own people. Leave roles out: an audit lets three people or more take turns in them."
        )
    order = np.random.default_rng(random_state).permutation(len(people))
    if stratify is not None:
        _, strata = encode_source(stratify, len(codes), "stratify")
        if len(np.unique(np.stack([codes, strata]), axis=1).T) != len(people):
            raise ValueError("stratify must be constant within a participant.")
        stratum = np.zeros(len(people), np.int64)
        stratum[codes] = strata
        order = order[np.argsort(stratum[order], kind="stable")]
    # Deal people out in turn, each to the role furthest behind its share.
    total = sum(shares.values())
    counts = dict.fromkeys(roles, 0)
    chosen = np.empty(len(people), dtype=object)
    for i, person in enumerate(order):
        role = max(roles, key=lambda r: (counts[r] == 0, shares[r] / total * (i + 1) - counts[r]))
        chosen[person] = role
        counts[role] += 1
    return np.asarray(chosen[codes], dtype=str)


def with_roles(table: Table, roles: Mapping[str, str]) -> Table:
    """Return the rows of the participants that have a role, with it."""
    table = table.take(np.isin(table.participant, list(roles)))
    return replace(table, role=np.array([roles[person] for person in table.participant], dtype=str))


def rotated(strata: Mapping[str, str], rotation: int, n: int = 5, random_state: int = 0) -> dict[str, str]:
    """Return roles by folds: fold ``rotation`` is EVAL, the next HEAD, then VAL, and the others FIT.

    Parameters
    ----------
    strata : dict of participant to stratum
        Spread evenly over the folds.
    rotation, n : int
        Which of n folds is EVAL.
    random_state : int
        Of the folds; all rotations share them.

    Examples
    --------
    >>> roles = rotated({f"s{i}": "" for i in range(10)}, rotation=1)
    >>> sorted(roles.values())
    ['EVAL', 'EVAL', 'FIT', 'FIT', 'FIT', 'FIT', 'HEAD', 'HEAD', 'VAL', 'VAL']
    """
    from sklearn.model_selection import StratifiedKFold

    if n < 4 or not 0 <= rotation < n:
        raise TableError(f"Rotation {rotation} of {n} folds; there must be at least 4, and this one of them.")
    people = sorted(strata)
    labels = [strata[person] for person in people]
    if max(labels.count(label) for label in set(labels)) < n:
        raise TableError(f"{len(people)} participants in {len(set(labels))} strata do not fill {n} folds.")
    turn = ("EVAL", "HEAD", "VAL", *["FIT"] * (n - 3))
    folds = StratifiedKFold(n, shuffle=True, random_state=random_state).split(people, labels)
    return {people[row]: turn[(fold - rotation) % n] for fold, (_, rows) in enumerate(folds) for row in rows}
