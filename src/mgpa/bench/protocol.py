"""The protocol for all methods: fit and score on different participants, with each device as reference.

Readers, decoders, accuracies and intervals are those of :mod:`mgpa.audit`. The decoder of a device is trained
on uncorrected rows of this device from other participants; ``home`` and ``away`` are its balanced accuracies
on corrected rows of the same device and of other devices.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib import delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .. import __version__
from .._common.files import write_atomically
from .._common.progress import in_processes, progress
from ..audit.bootstrap import estimate
from ..audit.design import find_design
from ..audit.ground import Ground
from ..audit.heads import ridge_head
from ..audit.measure import (
    association,
    movement_by_group,
    source_accessibility,
    task_utility,
    unseen_utility,
)
from ..moments import Standardizer
from ..tables.table import Table
from .methods import Inapplicable, Method, refit
from .settings import Calibration, Floats, Round, Setting, calibration, standardised

#: The audit's full set of readers, with each network trained once for 12 epochs.
BANK = {"bank": "full", "restarts": 1, "checkpoints": (12,)}
#: A quick benchmark trains no networks.
QUICK_BANK = {"bank": "full", "restarts": 0}
#: Measures in table order; all except S and seconds have values for each participant.
MEASURES = ("S", "home", "away", "T_f", "T_r", "worst", "unseen", "M", "seconds")
FORMAT = 3
DRAWS = 4000


@dataclass(frozen=True)
class Prepared:
    """A round with its decoders, shared by all methods of a setting."""

    part: Round
    data: Calibration
    ground: Ground
    device: NDArray[np.int64]  # device of each HEAD and EVAL row, in the order of ``ground``
    scaling: tuple[Floats, Floats]

    def rows(self, role: str) -> tuple[Floats, NDArray[np.int64]]:
        """Return the uncorrected rows of HEAD or EVAL, and the device of each."""
        return self.ground.read(role), self.device[self.ground.positions[role]]


def prepare(part: Round, bank: dict[str, Any]) -> Prepared:
    """Standardise a round by its fitting rows, and prepare the other rows for an audit."""
    d = part.pairs.views.shape[2]
    X = calibration(part, np.zeros(d), np.ones(d)).X
    units = Standardizer.from_rows(X, None, True)
    held = [standardised(events, units.center, units.scale) for events in (part.head, part.evaluation)]
    columns: list[list[Any]] = [[] for _ in range(6)]
    for role, events in zip(("HEAD", "EVAL"), held, strict=True):
        rows, device, event = events.rows()
        ids = np.char.add(role, event.astype(str))
        values = (rows, device, events.label[event].astype(str), events.participant[event].astype(str))
        for column, value in zip(columns, (*values, np.full(len(rows), role), ids), strict=True):
            column.append(value)
    rows, device, label, participant, roles, ids = map(np.concatenate, columns)
    names = np.array(part.pairs.devices)
    table = Table(rows, source=names[device], label=label, participant=participant, role=roles, pair_id=ids)
    two = len(names) == 2 and len(np.unique(label)) == 2
    directions = ((names[1].item(), np.unique(label)[1].item()),) if two else ()
    design = find_design(table, "classification")
    same = Standardizer(np.zeros(d), np.ones(d), units.varies)
    ground = Ground(table, same, design, None, "cpu", bank, directions)
    scaling = units.center, units.scale
    return Prepared(part, calibration(part, *scaling), ground, device, scaling)


def corrected(prepared: Prepared, correct: Any, role: str) -> Floats:
    """Return the corrected rows of HEAD or EVAL, for all devices."""
    rows, device = prepared.rows(role)
    out = np.array(rows, dtype=np.float64)
    for k in np.unique(device):
        out[device == k] = np.asarray(correct(rows[device == k], int(k)), dtype=np.float64)
    if not np.isfinite(out).all():
        raise Inapplicable("corrected rows are not finite")
    return out


def measure_round(prepared: Prepared, method: Method, turn: int) -> dict[str, NDArray[Any]]:
    """Return the measures of a method in a round: one value per participant, averaged over references.

    Readers take most of the time, so they only use rows corrected to one reference, chosen by ``turn``.
    """
    ground, devices = prepared.ground, prepared.part.pairs.devices
    references: list[int | None] = [*range(len(devices))] if method.reference else [None]
    parts: list[dict[str, NDArray[Any]]] = []
    readers: dict[str, NDArray[Any]] = {}
    for number, reference in enumerate(references):
        start = time.process_time()
        correct = method.fit(prepared.data, reference)
        C_head, C_eval = (corrected(prepared, correct, role) for role in ("HEAD", "EVAL"))
        part = {"seconds": np.array([time.process_time() - start])}
        if method.fit is refit:
            parts.append(part | refitted_decoders(prepared, reference))
            continue
        if number == turn % len(references):
            readers["readers"] = read_source(ground, C_head, C_eval)
        part |= decoders(task_utility(ground, C_head, C_eval), devices, reference)
        curves = association(ground, C_eval)
        if "shortcut" in curves:
            part["worst"] = curves["shortcut"]
        people, varies = ground.evaluation.participant, ground.standardizer.varies
        part["M"] = movement_by_group(ground.read("EVAL"), C_eval, people, varies)[1]
        parts.append(part)
    result = {name: _mean([part[name] for part in parts]) for name in parts[0]} | readers
    if not method.told and len(devices) > 2:
        result["unseen"] = unseen_devices(prepared, method)
    return result


_READ: dict[str, NDArray[Any]] = {}


def read_source(ground: Ground, C_head: Floats, C_eval: Floats) -> NDArray[Any]:
    """Return the AUROC of each reader for each participant; readers run once on identical rows.

    Rows are identical for methods that do not change rows or have the same map, and for settings that differ
    only in the task.
    """
    held = ground.evaluation
    key = str(joblib.hash((C_head, ground.head.source, C_eval, held.source, held.participant, ground.bank)))
    if key not in _READ:
        _READ[key] = source_accessibility(ground, C_head, C_eval)["source_auroc"]
    return _READ[key]


def decoders(task: dict[str, Any], devices: Sequence[str], reference: int | None) -> dict[str, NDArray[Any]]:
    """Return accuracies and AUROC of the reference's decoder or, without a reference, means over devices."""
    owners = devices if reference is None else (devices[reference],)
    away = [i for i, name in enumerate(task.get("directions", ())) if name.split(" → ")[0] in owners]
    home = [i for i, name in enumerate(task.get("homes", ())) if name in owners]
    if not away:
        raise Inapplicable("fewer than two devices have rows of every class")
    columns = {"away": ("frozen_accuracy", away), "home": ("home_accuracy", home),
               "T_f": ("frozen", away), "T_r": ("refitted", away)}  # fmt: skip
    return {short: _mean(task[name][:, chosen].T) for short, (name, chosen) in columns.items()}


def refitted_decoders(prepared: Prepared, reference: int | None) -> dict[str, NDArray[Any]]:
    """Return the accuracies of decoders trained on the few calibration rows of each other device."""
    ground, devices, pairs = prepared.ground, prepared.part.pairs.devices, prepared.data.pairs
    rows, device, event = pairs.rows()
    heads = {}
    for k in range(len(devices)):
        label = pairs.label[event[device == k]].astype(str)
        if len(np.unique(label)) == len(ground.design.classes):
            heads[k] = ridge_head().fit(rows[device == k], label)
    owner = devices[reference or 0]
    H = ground.read("HEAD"), ground.read("EVAL")
    result = decoders(task_utility(ground, *H), devices, reference)
    original, away = ground.frozen_heads, []
    for k in sorted(heads.keys() - {reference or 0}):
        ground.__dict__["frozen_heads"] = original | {owner: heads[k]}  # replaces the reference's decoder
        task = task_utility(ground, *H)
        at = task["directions"].tolist().index(f"{owner} → {devices[k]}")
        away.append((task["frozen_accuracy"][:, at], task["frozen"][:, at]))
    ground.__dict__["frozen_heads"] = original
    if not away:
        raise Inapplicable("no device has calibration rows of every class")
    accuracy, auroc = (_mean(values) for values in zip(*away, strict=True))
    return {"home": result["home"], "away": accuracy, "T_f": auroc}


def unseen_devices(prepared: Prepared, method: Method) -> NDArray[Any]:
    """Return the accuracy on each device of a decoder and a correction fitted without this device."""
    ground, devices, scaling = prepared.ground, prepared.part.pairs.devices, prepared.scaling

    def without(name: Any) -> tuple[Floats, Floats] | None:
        rest = calibration(prepared.part.without(devices.index(str(name))), *scaling)
        try:
            correct = method.fit(rest, 0 if method.reference else None)
        except ValueError:  # too few pairs between the other devices
            return None
        head, held = (np.asarray(correct(ground.read(role), 0), np.float64) for role in ("HEAD", "EVAL"))
        return head, held

    return _mean(unseen_utility(ground, without)["unseen_accuracy"].T)


def _mean(values: Any) -> NDArray[Any]:
    """Return the mean over the first axis, ignoring NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(np.stack(list(values)), axis=0))


def summarise(rounds: Sequence[dict[str, NDArray[Any]]]) -> dict[str, Any]:
    """Return the measures of a cell as [value, low, high], and the accuracy away of each participant."""
    cell: dict[str, Any] = {}
    for name in ("readers", "home", "away", "T_f", "T_r", "worst", "unseen", "M"):
        if any(name not in part for part in rounds):
            continue
        values = np.concatenate([part[name] for part in rounds])
        scored = values[np.isfinite(values.reshape(len(values), -1)).all(axis=1)]
        if len(scored) < 2:
            continue
        statistic = {"readers": "best", "worst": "worst"}.get(name, "mean")
        e = estimate(scored, statistic, widen=True, n_draws=DRAWS)
        cell["S" if name == "readers" else name] = [round(float(x), 4) for x in (e.value, e.low, e.high)]
        if name == "away":
            cell["away_of_each"] = [None if np.isnan(x) else round(float(x), 4) for x in values]
    seconds = np.mean([part["seconds"] for part in rounds])
    return cell | {"seconds": float(f"{seconds:.2g}")}


_LAST: dict[tuple[str, bool], list[Prepared]] = {}  # prepared rounds of this process's current setting


def measure_cell(setting: Setting, method: Method, quick: bool) -> dict[str, Any]:
    """Return all measures of one method in one setting, or the reason why there are none."""
    key = setting.token, quick
    # Matrices are small, so that more threads would be slower.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        if key not in _LAST:
            _LAST.clear()
            _LAST[key] = [prepare(part, QUICK_BANK if quick else BANK) for part in setting.rounds(quick)]
        try:
            cell = summarise([measure_round(p, method, turn) for turn, p in enumerate(_LAST[key])])
            return {"told": method.told} | cell
        except ImportError as error:
            return {"refused": f"not installed: {error.name or error}"}
        except Exception as error:  # methods of other packages may raise any error
            return {"refused": f"{type(error).__name__}: {error}".splitlines()[0][:160]}


def run(
    settings: Iterable[Setting],
    methods: Sequence[Method],
    out: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    again: bool = False,
    commit: str = "",
    verbose: bool = True,
) -> dict[str, Any]:
    """Measure every method in every setting; by default, existing cells in ``out`` are not measured again.

    Parameters
    ----------
    settings, methods
        The settings and methods to measure.
    out : Path
        Folder of the results, with one JSON file per data set.
    quick : bool
        One round of each setting, and no networks among the readers.
    jobs : int
        Number of parallel cells.
    again : bool
        Also measure and replace existing cells.
    commit : str
        Commit to store with each cell, beside the date.
    verbose : bool
        Show progress.

    Returns
    -------
    dict
        The content of the files, by data set.
    """
    out.mkdir(parents=True, exist_ok=True)
    settings = list(settings)
    results = {data: _read(out / f"{data}.json", data, quick) for data in {s.data for s in settings}}
    for setting in settings:
        results[setting.data]["settings"].setdefault(setting.name, {})
    todo = [
        (setting, method)
        for setting in settings
        for method in methods
        if again or method.name not in results[setting.data]["settings"][setting.name]
    ]
    calls = (delayed(measure_cell)(setting, method, quick) for setting, method in todo)
    cells = in_processes(calls, jobs)
    version_of_this = f"commit {commit}" if commit else f"mgpa {__version__}"
    for step in progress(range(len(todo)), "bench", verbose and bool(todo)):
        setting, method = todo[step]
        result = results[setting.data]
        measured = f"{version_of_this}, {datetime.now(UTC).date().isoformat()}"
        result["settings"][setting.name][method.name] = {"measured": measured} | next(cells)
        result["packages"] |= packages(method)
        write_atomically(out / f"{setting.data}.json", (json.dumps(result, indent=1) + "\n").encode())
    return results


def packages(method: Method) -> dict[str, str]:
    """Return the versions of the method's package and of the packages that readers use."""
    versions = {}
    for name in filter(None, ("numpy", "scikit-learn", method.package)):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _read(path: Path, data: str, quick: bool) -> dict[str, Any]:
    """Return the results of an earlier run with the same settings, or an empty dictionary of results."""
    empty: dict[str, Any] = {"format": FORMAT, "data": data, "quick": quick, "packages": {}, "settings": {}}
    if not path.exists():
        return empty
    result: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if any(result.get(name) != empty[name] for name in ("format", "data", "quick")):
        raise ValueError(
            f"{path} holds results of other settings (quick: {result.get('quick')}). Use another --out."
        )
    return result
