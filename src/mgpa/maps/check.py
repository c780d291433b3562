"""Whether new rows are like those a map was fitted on: a few stored quantiles, and a result in sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MapError
from ..labels import encode_source, source_names

Floats = NDArray[Any]

LEVELS = (0.01, 0.5, 0.99)
FAR = 0.95
MOST_FAR = 0.2  # share of rows beyond the distance of 95 % of the fitting rows that is not drift yet
MOST_OUTSIDE = 0.01
LEAST_SPREAD = 0.01  # standard deviation, in units of a feature's range; about .2 in the fitting rows
MOST_ODD = 0.05  # share of rows outside a feature's range, widened by half of it on both sides


@dataclass(frozen=True)
class FittedRange:
    """The ranges of the fitting rows.

    Attributes
    ----------
    features : (3, d)
        Quantiles .01, .5 and .99 of every feature.
    distance : (3,)
        Of the rows' distances from the medians, in units of the features' ranges: the quantile .95, the
        largest, and the number of rows these were computed from.
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


def row_distance(rows: Floats, features: Floats) -> Floats:
    """Return the root mean square over features of (row - median) / range; constant features do not count."""
    low, middle, high = features
    varies = high > low
    scaled = (rows[:, varies] - middle[varies]) / (high - low)[varies]
    return np.asarray(np.sqrt(np.square(scaled).mean(axis=1))) if varies.any() else np.zeros(len(rows))


@dataclass(frozen=True)
class RowCheck:
    """The result of :meth:`mgpa.CorrectionMap.check`; prints as sentences.

    ``n_outside`` rows are farther from the medians than any fitting row sampled; ``far_share`` of them are
    beyond 95 % of the fitting rows (.05 without drift); ``features`` leave their fitted range in more than
    5 % of the rows; sources ``unseen`` were not fitted; ``problems`` has a sentence for each of these, and
    ``not_checked`` says what could not be compared. Each row is compared with the fitting rows; of the batch,
    only whether its rows differ at all: the mean of one person or source is rarely that of the fit.
    """

    n_rows: int
    n_outside: int = 0
    far_share: float = 0.0
    features: dict[str, float] | None = None
    unseen: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    not_checked: str = ""

    @property
    def ok(self) -> bool:
        """Whether the rows passed the check."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and ``ok``, ready for JSON."""
        return {"ok": self.ok, **asdict(self), "unseen": list(self.unseen), "problems": list(self.problems)}

    def __str__(self) -> str:
        sentence = "No row lies outside what the map was fitted on."
        if self.n_outside:
            sentence = (
                f"No more rows than usual ({self.n_outside} of {self.n_rows}) lie outside what was fitted."
            )
        sentences = self.problems or (sentence,)
        return "\n".join(filter(None, (*sentences, self.not_checked)))


def check_rows(X: Floats, fitted: FittedRange | None, source: Any, info: Any) -> RowCheck:
    """Compare rows with the fitting rows; see :meth:`mgpa.CorrectionMap.check`."""
    problems: list[str] = []
    unseen: tuple[str, ...] = ()
    if source is not None:
        present = source_names(encode_source(source, len(X))[0])
        unseen = tuple(name for name in present if name not in info.source_names)
        if unseen:
            strangers = ", ".join(map(repr, unseen[:5])) + (", …" if len(unseen) > 5 else "")
            column, fitted_on = info.source_column or "source", ", ".join(info.source_names)
            problems.append(f"{column} {strangers} was never seen in the fit ({fitted_on}).")
    if fitted is None:
        reason = "This map holds no ranges of its fitting rows, so rows cannot be checked. Fit it again."
        return RowCheck(len(X), unseen=unseen, problems=(*problems, reason))
    if not len(X):
        return RowCheck(0, unseen=unseen, problems=tuple(problems))
    names = info.feature_names or ()
    low, _, high = fitted.features
    margin = (high - low) / 2
    odd = ((low - margin > X) | (high + margin < X)).mean(axis=0)
    distance = row_distance(X, fitted.features)
    outside, far = distance > fitted.distance[1], float((distance > fitted.distance[0]).mean())
    features = {
        names[i] if len(names) == X.shape[1] else f"feature {i}": round(float(odd[i]), 4)
        for i in np.argsort(-odd, kind="stable")
        if odd[i] > MOST_ODD
    }
    if outside.sum() > len(X) * max(MOST_OUTSIDE, 3 / fitted.distance[2]):
        first = int(np.flatnonzero(outside)[0])
        share = f"{int(outside.sum())} of {len(X)} rows ({outside.mean():.1%})"
        problems.append(f"{share} lie outside what the map was fitted on (first: row {first}).")
    if far > MOST_FAR + 2 * np.sqrt(MOST_FAR * (1 - MOST_FAR) / len(X)):
        problems.append(f"Drift: {far:.0%} of the rows are farther out than 95 % of the fitting rows.")
    spread = (high - low)[high > low] * LEAST_SPREAD
    if len(X) >= 10 and len(spread) and (X[:, high > low].std(axis=0) < spread).all():
        problems.append(f"Drift: the {len(X)} rows hardly differ from one another.")
    if features:
        worst = ", ".join(f"{name} ({share:.0%} of the rows)" for name, share in list(features.items())[:3])
        more = f", and {len(features) - 3} more" if len(features) > 3 else ""
        problems.append(f"Outside their fitted range: {worst}{more}.")
    return RowCheck(len(X), int(outside.sum()), far, features, unseen, tuple(problems))
