"""Check whether new rows resemble the fitting rows of a map, and report the result in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MapError
from ..labels import encode_source, source_names
from .faults import find_faults
from .population import FEWEST_FOR_FAULTS, FEWEST_ROWS, RATE, Evidence, Population

Floats = NDArray[Any]

LEVELS = (0.01, 0.5, 0.99)
FAR = 0.95
MOST_FAR = 0.2  # drift if a larger share of rows is farther out than 95 % of the fitting rows
MOST_OUTSIDE = 0.01
LEAST_SPREAD = 0.01  # smallest standard deviation, in units of a feature's range; fitting rows have about .2
MOST_ODD = 0.05  # share of rows outside a feature's range, after widening the range by half on both sides
FEW_DEVICES = "With two devices in the fit, only large differences of a third device are detected."
CANNOT_TELL = "This map cannot recognise devices that were not in its fit: it has no population of devices."


@dataclass(frozen=True)
class FittedRange:
    """The ranges of the fitting rows.

    Attributes
    ----------
    features : (3, d)
        Quantiles .01, .5 and .99 of each feature.
    distance : (3,)
        Distances of rows from the medians, in units of the features' ranges: the .95 quantile, the maximum,
        and the number of rows used.
    """

    features: Floats
    distance: Floats

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) != 3 or self.distance.shape != (3,):
            raise MapError("The ranges of the fitting rows have unexpected shapes.")
        if not (np.isfinite(self.features).all() and np.isfinite(self.distance).all()):
            raise MapError("The ranges of the fitting rows hold NaN or infinite values.")

    @classmethod
    def from_rows(cls, rows: Floats) -> FittedRange:
        """Return the ranges of a sample of the fitting rows."""
        features = np.quantile(rows, LEVELS, axis=0)
        distance = row_distance(rows, features)
        return cls(features, np.array([np.quantile(distance, FAR), distance.max(), len(rows)]))

    def shares(self, rows: Floats) -> tuple[Floats, NDArray[np.bool_], float]:
        """Return the share of rows beyond each feature's range, a mask of outside rows, and the far share."""
        low, _, high = self.features
        margin = (high - low) / 2
        odd = ((low - margin > rows) | (high + margin < rows)).mean(axis=0)
        distance = row_distance(rows, self.features)
        return odd, distance > self.distance[1], float((distance > self.distance[0]).mean())


def row_distance(rows: Floats, features: Floats) -> Floats:
    """Return the root mean square of (row - median) / range over the features that vary."""
    low, middle, high = features
    varies = high > low
    scaled = (rows[:, varies] - middle[varies]) / (high - low)[varies]
    return np.asarray(np.sqrt(np.square(scaled).mean(axis=1))) if varies.any() else np.zeros(len(rows))


@dataclass(frozen=True)
class RowCheck:
    """The result of :meth:`mgpa.maps.CorrectionMap.check`; prints as sentences.

    ``n_outside`` is the number of rows farther from the medians than any sampled fitting row; ``far_share``
    is the share of rows farther out than 95 % of the fitting rows (.05 without drift). ``features`` are
    outside their fitted range in more than 5 % of the rows. ``unseen`` sources were not in the fit.
    ``problems`` has one sentence for each problem, ``not_checked`` names checks that were not possible, and
    ``caution`` names differences that may go unnoticed.

    ``devices`` has one entry for each named source, or one for all rows: the most similar fitted device
    (``nearest``), the distance to this device as a multiple of the distance between fitted devices
    (``distance``), the log10 likelihood ratio of an unknown device to the fitted devices
    (``log10_evidence``), the share of single rows that look unknown (``rows``), the share of rows that the
    map moves by its edit for unknown devices (``moved_as_unknown``), and whether there is an ``alarm``.
    Batches of new participants on a fitted device give an alarm in at most one of a thousand cases.
    ``broken`` lists the positions of dead, scaled or flipped features.
    """

    n_rows: int
    n_outside: int = 0
    far_share: float = 0.0
    features: dict[str, float] | None = None
    unseen: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    not_checked: str = ""
    devices: tuple[dict[str, Any], ...] = ()
    broken: dict[str, tuple[int, ...]] | None = None
    caution: str = ""

    @property
    def unknown_device(self) -> bool:
        """Whether rows come from a device outside the fit."""
        return any(entry["alarm"] for entry in self.devices)

    @property
    def ok(self) -> bool:
        """Whether the rows passed the check."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and ``ok``, ready for JSON."""
        return {"ok": self.ok, **asdict(self), "unseen": list(self.unseen), "problems": list(self.problems),
            "unknown_device": self.unknown_device, "devices": list(self.devices)}  # fmt: skip

    def __repr__(self) -> str:
        return f"<RowCheck: {self}>".replace("\n", " ")

    def __str__(self) -> str:
        sentence = "All rows lie within the fitted range."
        if self.n_outside:
            sentence = f"{self.n_outside} of {self.n_rows} rows lie outside the fitted range (normal)."
        sentences = self.problems or (sentence,)
        return "\n".join(filter(None, (*sentences, self.not_checked, self.caution)))


def check_rows(
    X: Floats,
    fitted: FittedRange | None,
    source: Any,
    info: Any,
    population: Population | None,
    as_unknown: Floats,
) -> RowCheck:
    """Compare rows with the fitting rows; see :meth:`mgpa.maps.CorrectionMap.check`.

    ``as_unknown`` has, for each row, the probability of an unknown device by which the map weights its edits.
    """
    given: NDArray[Any] | None = None
    unseen: tuple[str, ...] = ()
    problems: list[str] = []
    if source is not None:
        labels, codes = encode_source(source, len(X))
        names = source_names(labels)
        given, unseen = np.array(names)[codes], tuple(name for name in names if name not in info.source_names)
        problems = _unseen_sources(unseen, info)
    if fitted is None:
        reason = "This map has no ranges of its fitting rows, so rows cannot be checked. Fit it again."
        return RowCheck(len(X), unseen=unseen, problems=(*problems, reason))
    if not len(X):
        return RowCheck(0, unseen=unseen, problems=tuple(problems))
    known = info.feature_names or ()
    name = known.__getitem__ if len(known) == X.shape[1] else "feature {}".format
    devices: tuple[dict[str, Any], ...] = ()
    broken, words = None, list[str]()
    most = np.zeros(3)
    if population is not None:
        most = population.limits
        devices, words = check_devices(X, population, info.source_names, given, as_unknown)
        if len(X) >= FEWEST_FOR_FAULTS:
            faults = find_faults(population, X, _apart(X, population, given))
            words += faults.sentences(name)
            broken = {"dead": faults.dead, "scaled": faults.scaled, "flipped": faults.flipped}
    odd, outside, far = fitted.shares(X)
    features = {
        name(i): round(float(odd[i]), 4)
        for i in np.argsort(-odd, kind="stable").tolist()
        if odd[i] > max(MOST_ODD, most[2])
    }
    problems += [*words, *_drift(X, fitted, outside, far, most), *_outside_features(features)]
    not_checked, n_outside = "" if population is not None else CANNOT_TELL, int(outside.sum())
    is_quiet = not any(entry["alarm"] for entry in devices)
    caution = FEW_DEVICES if population is not None and population.are_few and is_quiet else ""
    return RowCheck(
        len(X), n_outside, far, features, unseen, tuple(problems), not_checked, devices, broken, caution
    )


def _unseen_sources(unseen: tuple[str, ...], info: Any) -> list[str]:
    """Return a sentence about sources that were not in the fit, or an empty list."""
    if not unseen:
        return []
    named = ", ".join(map(repr, unseen[:5])) + (", …" if len(unseen) > 5 else "")
    column, fitted_on = info.source_column or "source", ", ".join(info.source_names)
    return [f"{column} {named} was not in the fit ({fitted_on})."]


def _drift(
    X: Floats, fitted: FittedRange, outside: NDArray[np.bool_], far: float, most: Floats
) -> Iterator[str]:
    """Yield sentences about rows outside the fitted range; ``most`` has the largest normal shares."""
    if outside.sum() > len(X) * max(MOST_OUTSIDE, 3 / fitted.distance[2], most[0]):
        first = int(np.flatnonzero(outside)[0])
        share = f"{int(outside.sum())} of {len(X)} rows ({outside.mean():.1%})"
        yield f"{share} lie outside the fitted range (first: row {first})."
    if far > max(MOST_FAR + 2 * np.sqrt(MOST_FAR * (1 - MOST_FAR) / len(X)), most[1]):
        yield f"Drift: {far:.0%} of the rows are farther out than 95 % of the fitting rows."
    low, _, high = fitted.features
    varies = high > low
    spread = (high - low)[varies] * LEAST_SPREAD
    if len(X) >= 10 and len(spread) and (X[:, varies].std(axis=0) < spread).all():
        yield f"Drift: the {len(X)} rows hardly differ from one another."


def _outside_features(features: dict[str, float]) -> list[str]:
    """Return a sentence about features that leave their fitted range, or an empty list."""
    if not features:
        return []
    worst = ", ".join(f"{name} ({share:.0%} of the rows)" for name, share in list(features.items())[:3])
    more = f", and {len(features) - 3} more" if len(features) > 3 else ""
    return [f"Outside their fitted range: {worst}{more}."]


def _apart(X: Floats, population: Population, given: NDArray[Any] | None) -> Floats:
    """Return rows minus the mean of their device (the named device, or else the most similar one)."""
    W = population.read(X)
    labels = np.zeros(len(X)) if given is None else given
    if given is None and population.evidence(W, mixed=True).mixture:
        labels = np.argmin(np.linalg.norm(W[:, None] - population.means, axis=2), axis=1)
    apart = X.astype(np.float64)
    for label in np.unique(labels):
        apart[labels == label] -= apart[labels == label].mean(axis=0)
    return apart


def check_devices(
    X: Floats,
    population: Population,
    fitted: tuple[str, ...],
    given: NDArray[Any] | None,
    as_unknown: Floats,
    *,
    mixed: bool = True,
) -> tuple[tuple[dict[str, Any], ...], list[str]]:
    """Return the evidence on devices (one entry per source, if sources are given) and sentences about it.

    Without ``given``, rows may come from several devices (``mixed``).
    """
    W = population.read(X)
    groups = [("", np.arange(len(W)))]
    if given is not None:
        groups = [(str(label), np.flatnonzero(given == label)) for label in np.unique(given)]
    entries, words = [], []
    for label, rows in groups:
        if len(rows) < FEWEST_ROWS:
            continue
        any_device = population.evidence(W[rows], mixed=mixed and not label)
        own = fitted.index(label) if label in fitted else None
        evidence = any_device if own is None else population.evidence(W[rows], own)
        rate = RATE / len(groups)
        alarm, nearest = any_device.alarm(rate), fitted[any_device.nearest]
        entries.append(
            {
                "rows_named": label,
                "n_rows": len(rows),
                "nearest": nearest,
                "distance": round(any_device.distance / any_device.typical, 3),
                "log10_evidence": round(float(any_device.log_e / np.log(10.0)), 2),
                "rows": round(float(np.mean(population.row_evidence(W[rows]) > np.log(100.0))), 3),
                "moved_as_unknown": round(float(as_unknown[rows].mean()), 3),
                "alarm": alarm,
            }
        )
        if alarm:
            named = f" of {label!r}" if label else ""
            words.append(_unknown(named, any_device, nearest, population, float(as_unknown[rows].mean())))
        elif evidence.alarm(rate):
            words.append(
                f"Rows named {label!r} resemble the fitted rows of {nearest!r}, not those of {label!r}."
            )
    return tuple(entries), words


def _unknown(named: str, evidence: Evidence, nearest: str, population: Population, moved: float) -> str:
    """Return the sentence about rows that no fitted device explains.

    ``moved`` is the share of these rows that the map moves by its edit for unknown devices.
    """
    times = f"{evidence.distance / evidence.typical:.2g}"
    advice = "The correction may do harm: adapt the map to these rows, or use a model of uncorrected rows."
    if moved >= MOST_ODD:
        advice = (
            f"{moved:.0%} of them are moved by the map's edit for unknown devices. For a better correction, "
            "record pairs with a known device or adapt the map to these rows."
        )
    little = "With only two fitted devices, little is known about how a third may differ."
    caution = f" {little}" if population.are_few else ""
    return (
        f"Unknown device: no device of the fit explains the {evidence.n_rows} rows{named}. The nearest "
        f"fitted device is {nearest!r}, at {times} times the distance between fitted devices. "
        f"{advice}{caution}"
    )
