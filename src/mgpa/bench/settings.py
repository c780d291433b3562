"""Events that several devices recorded, and the rounds of participants of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Share of a class's events that its favourite device records, above an even share of the rest: .9 and .1.
ASSOCIATION = 0.8
#: Folds of participants: one is scored, the next trains readers and decoders, the others fit corrections.
FOLDS = 4


@dataclass(frozen=True)
class Events:
    """Events, each with one recording per device.

    Attributes
    ----------
    views : (devices, events, features) array
        NaN where a device did not record an event.
    devices : tuple of str
        Their names, sorted.
    label, participant : (events,) arrays
        The task label and participant of each event; people are used either for fitting or for scoring.
    group : (events,) array or None
        Independent groups in a fit, if not participants: for example blocks of samples.
    """

    views: Floats
    devices: tuple[str, ...]
    label: NDArray[Any]
    participant: NDArray[Any]
    group: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Whether each device recorded each event, (devices, events)."""
        return np.asarray(np.isfinite(self.views).all(axis=2))

    def take(self, events: NDArray[Any]) -> Events:
        """Return some of the events."""
        return replace(
            self,
            views=self.views[:, events],
            label=self.label[events],
            participant=self.participant[events],
            group=None if self.group is None else self.group[events],
        )

    @property
    def independent(self) -> NDArray[Any]:
        """The group of every event, or else its participant."""
        return self.participant if self.group is None else self.group

    def without(self, device: int) -> Events:
        """Return the events with the recordings of the other devices."""
        keep = [k for k in range(len(self.devices)) if k != device]
        return replace(self, views=self.views[keep], devices=tuple(self.devices[k] for k in keep))

    def rows(self) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Return all recordings as rows, with the device and the event of each."""
        device, event = np.nonzero(self.seen)
        return self.views[device, event], device, event


@dataclass(frozen=True)
class Calibration:
    """The fitting data of a method: rows of single devices, and paired events.

    Attributes
    ----------
    X, source, label, group : arrays
        Rows in standardised coordinates; ``source`` is the position of the device, ``group`` the participant
        or whatever else is independent.
    event : (n,) array
        Equal for rows of one paired event, -1 for others. All are -1 where ``X`` has no paired rows.
    pairs : Events
        The paired events.
    """

    X: Floats
    source: NDArray[np.int64]
    label: NDArray[Any]
    group: NDArray[Any]
    event: NDArray[np.int64]
    pairs: Events

    @property
    def n_devices(self) -> int:
        """The number of devices."""
        return len(self.pairs.devices)

    def evidence(self) -> dict[str, Any]:
        """Return all possible arguments of a method's ``fit`` besides X, by the names of this package."""
        rows: dict[str, Any] = {"y": self.label, "source": self.source, "groups": self.group}
        if self.n_devices > 2:
            return rows | {"pair_id": self.event}
        both = self.pairs.seen.all(axis=0)
        views = self.pairs.views[:, both]
        return rows | {"pairs": (views[0], views[1]), "pair_groups": self.pairs.independent[both]}


@dataclass(frozen=True)
class Round:
    """One split of people for fitting (single recordings, paired events), training readers, and scoring.

    ``singles`` has one recording of each event and NaN for the other devices.
    """

    singles: Events
    pairs: Events
    head: Events
    evaluation: Events

    def without(self, device: int) -> Round:
        """Return the round without fitting data of a device; people are scored on all devices."""
        singles, pairs = self.singles.without(device), self.pairs.without(device)
        singles = singles.take(np.flatnonzero(singles.seen.any(axis=0)))
        return replace(self, singles=singles, pairs=pairs.take(np.flatnonzero(pairs.seen.sum(axis=0) > 1)))


@dataclass(frozen=True)
class Setting:
    """Rounds with a name; ``data`` names the data set, ``make(quick)`` yields the same rounds every time."""

    data: str
    name: str
    make: Callable[[bool], Iterator[Round]] = field(repr=False)
    token: str = field(default_factory=lambda: token_hex(8), repr=False)  # tells settings apart in workers

    def rounds(self, quick: bool = False) -> Iterator[Round]:
        """Yield the rounds; ``quick`` yields the first alone."""
        for number, part in enumerate(self.make(quick)):
            if quick and number:
                return
            yield part


def record_once(events: Events, rng: np.random.Generator, association: float = ASSOCIATION) -> Events:
    """Return the events with one recording each, mostly by the device of their class."""
    K = len(events.devices)
    classes, codes = np.unique(events.label, return_inverse=True)
    favourite = (codes * K // len(classes)) if len(classes) >= K else codes
    recorder = np.where(rng.random(len(events)) < association, favourite, rng.integers(0, K, len(events)))
    views = np.where(recorder[None, :, None] == np.arange(K)[:, None, None], events.views, np.nan)
    return replace(events, views=views)


def rotate(
    events: Events, *, paired: float = 0.5, fade: float | None = None, folds: int = FOLDS, seed: int = 0
) -> Iterator[Round]:
    """Yield rounds in which every participant is scored once.

    Parameters
    ----------
    events : Events
        All events.
    paired : float
        Share of the events to fit on that all devices recorded; of the others, one device did. With 1, every
        event is paired.
    fade : float or None
        Rows, but not pairs, keep this share of the difference between two devices: a weak effect with
        known pairs.
    folds, seed : int
        Folds of participants, and the seed of everything drawn.
    """
    people = np.random.default_rng(seed).permutation(np.unique(events.participant))
    recorded = events
    if fade is not None:
        middle = events.views.mean(axis=0)
        recorded = replace(events, views=middle + fade * (events.views - middle))
    parts = np.array_split(people, folds)
    for k in range(folds):
        rng = np.random.default_rng([seed, k])
        scored, trains = (np.isin(events.participant, parts[(k + step) % folds]) for step in (0, 1))
        fit = np.flatnonzero(~scored & ~trains)
        both = np.isin(np.arange(len(fit)), rng.permutation(len(fit))[: round(paired * len(fit))])
        yield Round(
            record_once(recorded.take(fit[~both]), rng),
            events.take(fit[both]),
            recorded.take(np.flatnonzero(trains)),
            recorded.take(np.flatnonzero(scored)),
        )


def standardised(events: Events, center: Floats, scale: Floats) -> Events:
    """Return the events in other units."""
    return replace(events, views=(events.views - center) / scale)


def calibration(part: Round, center: Floats, scale: Floats) -> Calibration:
    """Return the fitting data of a round in standardised coordinates.

    With two devices and single recordings, X are those, and pairs come apart; else X are all rows.
    """
    singles, pairs = (standardised(events, center, scale) for events in (part.singles, part.pairs))
    together = len(pairs.devices) > 2 or not len(singles)
    tables: Sequence[Events] = (singles, pairs) if together else (singles,)
    columns: tuple[list[NDArray[Any]], ...] = ([], [], [], [], [])
    for number, events in enumerate(tables):
        rows, device, of = events.rows()
        paired = of if number else np.full(len(of), -1)
        for column, values in zip(
            columns, (rows, device, events.label[of], events.independent[of], paired), strict=True
        ):
            column.append(values)
    X, source, label, group, event = map(np.concatenate, columns)
    return Calibration(X, source, label, group, event, pairs)
