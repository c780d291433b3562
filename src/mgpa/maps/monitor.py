"""Detect unknown devices and broken features in a stream of rows from one device."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.checks import as_float_matrix, require_finite
from ..errors import MapError
from .check import CANNOT_TELL, check_devices
from .faults import find_faults
from .population import FEWEST_FOR_FAULTS, FEWEST_ROWS, RATE

if TYPE_CHECKING:
    from .base import CorrectionMap

Floats = NDArray[Any]


@dataclass(frozen=True)
class MonitorState:
    """The result for all rows so far; prints as sentences.

    ``nearest`` is the most similar fitted device, ``log10_evidence`` the log10 likelihood ratio of an unknown
    device to the fitted devices, and ``first_alarm`` the number of rows at the first alarm.
    """

    n_rows: int
    nearest: str = ""
    log10_evidence: float = 0.0
    first_alarm: int | None = None
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no problem has been found so far."""
        return not self.problems and self.first_alarm is None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and ``ok``, ready for JSON."""
        return {"ok": self.ok, **asdict(self), "problems": list(self.problems)}

    def __str__(self) -> str:
        if self.problems:
            return "\n".join(self.problems)
        before = "" if self.first_alarm is None else f" There was an alarm at row {self.first_alarm}."
        return f"{self.n_rows} rows, most like {self.nearest!r}: nothing unusual.{before}"


class Monitor:
    """Monitor for the rows of one device, created by :meth:`mgpa.maps.CorrectionMap.monitor`.

    The monitor compares the last ``window`` rows and the last ten windows with the fitted devices, and the
    spread of the last window with the usual spread for new participants. For new participants on a fitted
    device, at most a share ``rate`` of windows gives an alarm.
    """

    def __init__(self, m: CorrectionMap, *, window: int = 200, rate: float = RATE) -> None:
        if m.population is None:
            raise MapError(f"{CANNOT_TELL} Fit it again with this version.")
        if window < FEWEST_FOR_FAULTS:
            raise ValueError(f"window is {window}; expected at least {FEWEST_FOR_FAULTS} rows.")
        self.map, self.window, self.rate = m, window, rate
        self.reset()

    def reset(self) -> None:
        """Discard all rows, for example for another device or participant."""
        self._rows: Floats = np.zeros((0, self.map.n_features))
        self._n = 0
        self._first: int | None = None

    def update(self, X: Any) -> MonitorState:
        """Add rows (n, d) in the order of recording, and return the result for all rows."""
        rows = as_float_matrix(X, n_features=self.map.n_features)
        require_finite(rows, "X")
        self._rows = np.concatenate([self._rows, rows])[-10 * self.window :]
        self._n += len(rows)
        population, names = self.map.population, self.map.info.source_names
        assert population is not None  # checked in __init__
        if len(self._rows) < FEWEST_ROWS:
            return MonitorState(self._n, first_alarm=self._first)
        last = self._rows[-self.window :]
        parts = [last, self._rows] if len(self._rows) > len(last) else [last]
        problems: list[str] = []
        evidences = [population.evidence(population.read(part)) for part in parts]
        strongest = max(evidences, key=lambda e: e.log_e)
        if strongest.alarm(self.rate / 2.0):
            rows = parts[evidences.index(strongest)]
            unknown = self.map.unseen(rows)
            _, problems = check_devices(rows, population, names, None, unknown, mixed=False)
        features = self.map.info.feature_names or ()
        if len(last) >= FEWEST_FOR_FAULTS:
            named = len(features) == self.map.n_features
            faults = find_faults(population, last.astype(np.float64))
            problems += faults.sentences(lambda i: features[i] if named else f"feature {i}")
        if problems and self._first is None:
            self._first = self._n
        evidence = round(float(strongest.log_e / np.log(10.0)), 2)
        return MonitorState(self._n, names[strongest.nearest], evidence, self._first, tuple(problems))
