"""Embedding tables: rows of embeddings or tokens, and what is known about each row.

One schema serves fitting, auditing and studies: an embedding (n, d) or tokens (n, t, d), and for every row
its source, participant, task label, pair id and role. A participant has one role: what is fitted on some
people is judged on others.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ._checks import as_float_matrix, require_finite
from .pairs import check_pair_id, encode_source, is_paired, require_distinct, to_numpy

ROLES = ("FIT", "VAL", "HEAD", "EVAL")


@dataclass(frozen=True)
class Table:
    """Embeddings and what is known about each of them.

    Parameters
    ----------
    X : (n, d) or (n, t, d) array
        Embeddings, or tokens.
    source : (n,) array
        Acquisition condition.
    participant : (n,) array
        Who was measured; compared as text.
    label : (n,) array or None
        The task.
    pair_id : (n,) array or None
        Rows that share an id are views of one event; negative or empty: unpaired.
    role : (n,) array
        FIT, VAL, HEAD or EVAL.
    info : dict
        Anything worth keeping about where the table comes from.

    Examples
    --------
    >>> import numpy as np
    >>> role = ["FIT", "FIT", "EVAL", "EVAL"]
    >>> table = Table(np.zeros((4, 3)), source=["a", "b", "a", "b"], participant=[1, 1, 2, 2], role=role)
    >>> table.rows("EVAL").participant.tolist()
    ['2', '2']
    """

    X: NDArray[Any]
    source: NDArray[Any]
    participant: NDArray[Any]
    role: NDArray[Any]
    label: NDArray[Any] | None = None
    pair_id: NDArray[Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        X = to_numpy(self.X)
        if X.ndim not in (2, 3) or 0 in X.shape[1:]:
            raise ValueError(f"X has shape {X.shape}; expected embeddings (n, d) or tokens (n, t, d).")
        X = as_float_matrix(X.reshape(len(X), int(np.prod(X.shape[1:])))).reshape(X.shape)
        require_finite(X, "X")
        n = len(X)
        columns: dict[str, Any] = {"X": X}
        for name in ("source", "participant", "role", "label"):
            values = getattr(self, name)
            if values is not None:
                labels, codes = encode_source(values, n, name)
                columns[name] = labels[codes]
        columns["participant"] = columns["participant"].astype(str)
        columns["role"] = np.char.upper(columns["role"].astype(str))
        unknown = sorted(set(columns["role"].tolist()) - set(ROLES))
        if unknown:
            raise ValueError(f"role has {unknown}; expected {', '.join(ROLES)}.")
        if self.pair_id is not None:
            columns["pair_id"] = check_pair_id(self.pair_id, n)
            codes = np.unique(columns["source"], return_inverse=True)[1]
            require_distinct(codes.astype(np.int64), columns["pair_id"])
        for name, values in columns.items():
            object.__setattr__(self, name, values)
        self._require_one_role_each()

    def _require_one_role_each(self) -> None:
        seen = sorted(set(zip(self.participant.tolist(), self.role.tolist(), strict=True)))
        for (person, first), (other, second) in itertools.pairwise(seen):
            if person == other:
                raise ValueError(
                    f"Participant {person!r} has rows in {first} and in {second}; people a correction or a "
                    "reader is fitted on cannot judge it. Give every participant one role "
                    "(mgpa.tables.assign_roles does)."
                )

    def __len__(self) -> int:
        return len(self.X)

    @property
    def sources(self) -> NDArray[Any]:
        """Source labels, sorted."""
        return np.unique(self.source)

    def rows(self, *roles: str) -> Self:
        """Return the rows of some roles, in their order."""
        return self.take(np.isin(self.role, roles))

    def take(self, rows: Any) -> Self:
        """Return some rows."""
        known = {
            name: getattr(self, name)[rows]
            for name in ("X", "source", "participant", "role", "label", "pair_id")
            if getattr(self, name) is not None
        }
        return replace(self, **known)

    def paired_views(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return the rows, first and second source, of the events both have; None without such events."""
        if self.pair_id is None or len(self.sources) != 2:
            return None
        rows = [np.flatnonzero(is_paired(self.pair_id) & (self.source == s)) for s in self.sources]
        _, a, b = np.intersect1d(self.pair_id[rows[0]], self.pair_id[rows[1]], return_indices=True)
        return (rows[0][a], rows[1][b]) if len(a) else None

    @property
    def digest(self) -> str:
        """A checksum of everything in the table that can change a result."""
        digest = hashlib.sha256()
        for name in ("X", "source", "participant", "role", "label", "pair_id"):
            values = getattr(self, name)
            if values is None:
                continue
            digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


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
