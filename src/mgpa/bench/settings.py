"""Events recorded by several devices, and the rounds of participants in a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Association of class and device in single recordings: a class's main device records .9 of its events.
ASSOCIATION = 0.8
#: Folds of participants: one for scoring, the next for readers and decoders, the rest for corrections.
FOLDS = 4


@dataclass(frozen=True)
class Events:
    """Events, each with one recording per device.

    Attributes
    ----------
    views : (devices, events, features) array
        Recordings; NaN if a device did not record an event.
    devices : tuple of str
        Sorted names of the devices.
    label, participant : (events,) arrays
        The task label and participant of each event; each participant is used for either fitting or scoring.
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
        """Return the selected events."""
        return replace(
            self,
            views=self.views[:, events],
            label=self.label[events],
            participant=self.participant[events],
            group=None if self.group is None else self.group[events],
        )

    @property
    def independent(self) -> NDArray[Any]:
        """The group of each event or, without groups, its participant."""
        return self.participant if self.group is None else self.group

    def without(self, device: int) -> Events:
        """Return the events with only the recordings of the other devices."""
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
        or another independent unit.
    event : (n,) array
        Event number, equal for rows of one paired event; -1 for unpaired rows.
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
    """One split of participants for fitting (single recordings, paired events), readers and scoring.

    ``singles`` has one recording of each event and NaN for the other devices.
    """

    singles: Events
    pairs: Events
    head: Events
    evaluation: Events

    def without(self, device: int) -> Round:
        """Return the round without the fitting data of a device; scoring data keep all devices."""
        singles, pairs = self.singles.without(device), self.pairs.without(device)
        singles = singles.take(np.flatnonzero(singles.seen.any(axis=0)))
        return replace(self, singles=singles, pairs=pairs.take(np.flatnonzero(pairs.seen.sum(axis=0) > 1)))


@dataclass(frozen=True)
class Setting:
    """A named series of rounds of a data set (``data``); ``make(quick)`` always yields the same rounds."""

    data: str
    name: str
    make: Callable[[bool], Iterator[Round]] = field(repr=False)
    token: str = field(default_factory=lambda: token_hex(8), repr=False)  # identifies the setting in workers

    def rounds(self, quick: bool = False) -> Iterator[Round]:
        """Yield the rounds; with ``quick``, only the first."""
        for number, part in enumerate(self.make(quick)):
            if quick and number:
                return
            yield part


def record_once(events: Events, rng: np.random.Generator, association: float = ASSOCIATION) -> Events:
    """Return the events with one recording each, mostly by the device associated with their class."""
    K = len(events.devices)
    classes, codes = np.unique(events.label, return_inverse=True)
    favourite = (codes * K // len(classes)) if len(classes) >= K else codes
    recorder = np.where(rng.random(len(events)) < association, favourite, rng.integers(0, K, len(events)))
    views = np.where(recorder[None, :, None] == np.arange(K)[:, None, None], events.views, np.nan)
    return replace(events, views=views)


def rotate(
    events: Events, *, paired: float = 0.5, fade: float | None = None, folds: int = FOLDS, seed: int = 0
) -> Iterator[Round]:
    """Yield the rounds of a benchmark, which together score each participant once.

    Parameters
    ----------
    events : Events
        All events.
    paired : float
        Share of fitting events recorded by all devices; each other fitting event is recorded by one device.
        With 1, all events are paired.
    fade : float or None
        Reduce the difference between two devices to this share in rows, but not in pairs, to simulate a weak
        effect with known pairs.
    folds, seed : int
        Number of folds of participants, and the seed.
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
    """Return the events standardised by ``center`` and ``scale``."""
    return replace(events, views=(events.views - center) / scale)


def calibration(part: Round, center: Floats, scale: Floats) -> Calibration:
    """Return the fitting data of a round in standardised coordinates.

    With two devices and single recordings, X has the single recordings only, and pairs are separate;
    otherwise X has all rows.
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
