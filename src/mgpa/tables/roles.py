"""Roles: who a correction is fitted on, and who judges it. A participant has one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..pairs import encode_source


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
            "needs its own people."
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
    given = dict.fromkeys(roles, 0)
    chosen = np.empty(len(people), dtype=object)
    for i, person in enumerate(order):
        role = max(roles, key=lambda r: (given[r] == 0, shares[r] / total * (i + 1) - given[r]))
        chosen[person] = role
        given[role] += 1
    return np.asarray(chosen[codes], dtype=str)
