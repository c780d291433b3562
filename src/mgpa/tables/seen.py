"""Which rows a map was fitted on: a sample of content digests, known again whatever the rows are called.

Which rows are in the sample is decided by a number that is quick to compute; only those are digested.
A digest says nothing about a row to whoever does not have the row. A map keeps those of eight rows of every
person: 64 bytes each, however many rows there were. Somebody who comes back under another name is recognised
for certain if all their rows do, and with 99.6 % if half of them do.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

#: Digests kept of every person, of rows that are nobody's in particular, and in all.
PER_PERSON = 8
OF_NOBODY = 4096
AT_MOST = 2**16


def row_digests(X: Any) -> Digests:
    """Return a digest of each row: BLAKE2b, of 8 bytes, of its values as little-endian float32.

    Single precision, so that a table is the same one in either precision; zero has no sign.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    >>> bool((row_digests(X) == row_digests(X.astype(np.float64))).all())
    True
    """
    digests = np.empty(len(X), np.uint64)
    for rows, flat in _single(X):
        content = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in flat)
        digests[rows] = np.frombuffer(b"".join(content), "<u8")
    return digests


def row_places(X: Any) -> Digests:
    """Return where each row's content puts it in an order that has nothing to do with it: 64 random bits.

    A random linear form of the bits, mixed: a thirtieth of a digest's time, and enough to draw a sample by.
    """
    places = np.empty(len(X), np.uint64)
    for rows, flat in _single(X):
        words = flat if flat.shape[1] % 2 == 0 else np.pad(flat, ((0, 0), (0, 1)))
        words = np.ascontiguousarray(words).view("<u8")
        factors = np.random.default_rng(0).integers(2**63, size=words.shape[1], dtype=np.uint64) * 2 + 1
        sums = np.einsum("ij,j->i", words, factors)
        sums ^= sums >> np.uint64(32)  # the low bits of a product know only the low bits of its factors
        sums *= np.uint64(0x9E3779B97F4A7C15)
        places[rows] = sums ^ (sums >> np.uint64(29))
    return places


def _single(X: Any) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield rows, flat and as little-endian float32, a block at a time."""
    X = np.asarray(X)
    for start in range(0, len(X), 4096):
        with np.errstate(over="ignore"):  # beyond single precision is infinite, which is a value too
            rows = X[start : start + 4096].astype("<f4") + np.float32(0)
        yield slice(start, start + len(rows)), rows.reshape(len(rows), -1)


@dataclass(frozen=True)
class SeenRows:
    """Digests of some of every person's rows. ``a + b`` merges, in any order and batching.

    Attributes
    ----------
    parts : dict of str to (2, m) array
        Places, sorted, and digests of the rows that come first, by participant; of rows without one under the
        empty text.
    """

    parts: dict[str, Digests]

    @classmethod
    def from_rows(cls, X: Any, participants: Any = None) -> SeenRows:
        """Take note of rows, and of whose they are."""
        return cls({}).with_rows(X, participants)

    def with_rows(self, X: Any, participants: Any = None) -> SeenRows:
        """Return what was seen before and these rows; only those that come first need be digested."""
        X, places = np.asarray(X), row_places(X)
        names, codes = np.array([""]), np.zeros(len(X), np.intp)
        if participants is not None:
            names, codes = np.unique(participants, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        parts = dict(self.parts)
        for i, rows in enumerate(np.split(order, np.cumsum(np.bincount(codes, minlength=len(names)))[:-1])):
            name = str(names[i])
            before = parts.get(name, np.empty((2, 0), np.uint64))
            if before.shape[1] == _most(name):
                rows = rows[places[rows] < before[0, -1]]
            first, index = np.unique(places[rows], return_index=True)
            chosen = rows[index[: _most(name)]]
            fresh = np.stack([first[: _most(name)], row_digests(X[chosen])])
            parts[name] = _first(before, fresh, name)
        return SeenRows(parts)

    def __add__(self, other: SeenRows) -> SeenRows:
        parts = dict(self.parts)
        for name, sample in other.parts.items():
            parts[name] = _first(parts[name], sample, name) if name in parts else sample
        return SeenRows(parts)

    def encode(self) -> str:
        """Return the digests as text, sorted and without saying whose they are: base64 of little-endian."""
        people = [name for name in self.parts if name]
        each = PER_PERSON if len(people) * PER_PERSON <= AT_MOST else max(1, AT_MOST // len(people))
        kept = [sample[1] if not name else sample[1, :each] for name, sample in self.parts.items()]
        smallest = np.unique(np.concatenate([np.empty(0, np.uint64), *kept]))[:AT_MOST]
        return base64.b64encode(smallest.astype("<u8").tobytes()).decode()


def _most(name: str) -> int:
    return PER_PERSON if name else OF_NOBODY


def _first(a: Digests, b: Digests, name: str) -> Digests:
    both = np.concatenate([a, b], axis=1)
    index = np.unique(both[0], return_index=True)[1]
    return both[:, index[: _most(name)]]


def seen_people(seen: str, digests: Digests, participants: NDArray[Any]) -> tuple[str, ...]:
    """Return those participants of whom a map has seen rows.

    Parameters
    ----------
    seen : str
        From :meth:`SeenRows.encode`.
    digests, participants : (n,) arrays
        Of the rows in question. A row that several people have, as a row of zeros, tells nobody.
    """
    sample = np.frombuffer(base64.b64decode(seen), "<u8")
    names, codes = np.unique(participants, return_inverse=True)
    whose = np.unique(np.stack([digests, codes.astype(np.uint64)]), axis=1)
    rows, counts = np.unique(whose[0], return_counts=True)
    telling = np.intersect1d(rows[counts == 1], sample)
    return tuple(names[np.unique(codes[np.isin(digests, telling)])].tolist())
