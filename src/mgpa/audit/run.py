"""One call: fit the methods, correct HEAD and EVAL, measure everything, keep what is finished."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from .. import __version__
from ..errors import TableError
from ..estimators.staged import torch_device
from ..maps.io.mapfile import map_digest
from ..moments import Standardizer
from ..tables.columns import GIVE_ROLES
from ..tables.rows import corrected_rows, person_digest
from ..tables.table import Table
from .diagnostics import confounding
from .fits import (
    CELL_VERSION,
    Fitted,
    FittingData,
    Job,
    at_budget,
    budget_key,
    fit_all,
    fit_key,
    list_jobs,
    require_pairs,
    saying,
    stored_fit,
    versions,
)
from .measure import Ground, measure, require_everyone, source_floor
from .method_result import MethodResult
from .readers import CHECKPOINTS, check_schedule
from .result import Audit
from .store import Arrays, Store, array_digest, key_of

DEFAULT_METHODS = ("identity", "leace", "closed_form_mgpa", "iterative_mgpa")


def run(
    table: Table,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    *,
    pairs: Any = None,
    seeds: Sequence[int] = (17, 29, 43),
    budget: float | Mapping[str, float] | None = None,
    head: Any = None,
    readers: Mapping[str, Any] | None = None,
    floor: bool = True,
    standardize: bool = True,
    cache: Any = None,
    n_jobs: int = 1,
    device: str = "auto",
    verbose: bool = True,
) -> Audit:
    """Measure what corrections do to source, task and movement, on people they were not fitted on.

    Parameters
    ----------
    table : Table
        With roles: methods are fitted on FIT (and VAL), readers and heads on HEAD, everything is scored on
        EVAL. Every EVAL participant needs rows of every source.
    methods : names, or dict of name to method
        Names as in :func:`mgpa.baselines.available`. A dict's values are names, estimators, fitted
        estimators, maps, or lists of them (several fits of one method). "identity" is always measured too.
    pairs : tuple (A, B), dict of name to tuple, or None
        Calibration pairs, if they are not rows of the table (then its ``pair_id`` in FIT is used). In a dict,
        those of each method; methods it leaves out use the rows.
    seeds : sequence of int
        Fits of every method that has a ``random_state`` of None; the others are fitted once.
    budget : float, dict of name to float, or None
        Compare at this relative movement of VAL instead of with complete maps: all methods, or those of the
        dict. A method that cannot move that far is an error.
    head : classifier or None
        Task head; None is the paper's balanced ridge head, or its network for tokens.
    readers : dict or None
        ``restarts`` and ``checkpoints``, for a smaller bank than the paper's.
    floor : bool
        Also read the source from what each gate preserves.
    standardize : bool
        Measure in features scaled to unit spread over the FIT rows. False measures in the table's own
        coordinates: where several tables share them, they are not to be made again from each.
    cache : path or None
        Folder for finished cells. Running again with the same data and settings reads them; a run that was
        killed goes on where it was. Code is not among the settings: after changing a class of your own,
        take another folder.
    n_jobs : int
        Cells at a time (joblib; ``joblib.parallel_config("dask")`` sends them to a cluster).
    device : str
        Where networks are trained, unless a method says so itself; "auto" is CUDA if torch sees it here.
    verbose : bool
        Say what is being done.

    Returns
    -------
    Audit

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa.tables import Table, assign_roles
    >>> rng = np.random.default_rng(0)
    >>> person, event = np.repeat(np.arange(16), 20), np.repeat(np.arange(160), 2)
    >>> source, y = np.tile(["dry", "wet"], 160), np.repeat(np.arange(160) % 2, 2)
    >>> X = rng.normal(size=(160, 5))[event] + (source == "wet")[:, None] + y[:, None] * [0, 2, 0, 0, 0]
    >>> table = Table(X, source=source, participant=person, label=y, pair_id=event, role=assign_roles(person))
    >>> audit = run(table, ["closed_form_mgpa"], readers={"restarts": 0}, verbose=False)
    >>> bool(audit["closed_form_mgpa"].estimate("S").value < audit["identity"].estimate("S").value)
    True
    """
    if not isinstance(table, Table):
        raise TypeError(f"table is a {type(table).__name__}; make a Table of it, as Table.from_frame does.")
    started = time.monotonic()
    table.require("source", "participant", "role")
    parts = {role: table.rows(role) for role in ("FIT", "VAL", "HEAD", "EVAL")}
    for role in ("FIT", "HEAD", "EVAL"):
        if not len(parts[role]):
            raise TableError(f"The table has no {role} rows; ", GIVE_ROLES, " can give roles.")
    # What cannot be measured is refused before anything is computed.
    _require_measurable(parts["HEAD"], parts["EVAL"])
    bank = _check_bank(**(readers or {}))
    device = resolve_device(device)
    jobs = list(list_jobs(methods, seeds, device))
    budgets = _budgets(budget, jobs)
    if isinstance(pairs, Mapping):
        _require_known(pairs, jobs, "pairs")
    require_pairs(jobs, parts["FIT"], pairs)
    if bank.get("restarts", 3):
        torch_device(device, "The bank of source readers")
    store, say = Store(cache), _speaker(verbose)
    data = FittingData(parts["FIT"], parts["VAL"], pairs, standardize)
    ground = Ground(parts["HEAD"], parts["EVAL"], data.standardizer, head, device, bank)
    maps = fit_all(jobs, ground, data, store, n_jobs, say)
    maps = at_budget(jobs, maps, data, store, budgets)
    cells = _measure_all(jobs, maps, ground, data, store, floor, n_jobs, say)
    say(f"done in {time.monotonic() - started:.0f} s")
    results = {}
    for name in dict.fromkeys(job.method for job in jobs):
        own = [(job, *cell) for job, cell in zip(jobs, cells, strict=True) if job.method == name]
        results[name] = MethodResult.collect(
            name,
            [maps[job] for job, *_ in own],
            [cell for _, cell, _ in own],
            [floor for *_, floor in own],
            fitted_elsewhere=any(job.fitted is not None for job, *_ in own),
            fitted_on=_known_people([maps[job].map for job, *_ in own], parts["HEAD"], parts["EVAL"]),
        )
    people = confounding(parts["FIT"].source, parts["FIT"].participant, parts["FIT"].label)
    return Audit(
        results,
        people,
        {
            "version": __version__,
            "seeds": list(seeds),
            "pairs": None if pairs is None else _count_pairs(pairs),
            "floor": floor,
            "standardize": standardize,
            "budget": dict(budget) if isinstance(budget, Mapping) else budget,
            "head": repr(head) if head is not None else "",
            "readers": dict(readers or {}),
            "device": device,
            "rows": {role: len(part) for role, part in parts.items()},
            "participants": {role: len(np.unique(part.participant)) for role, part in parts.items()},
            "sources": [str(s) for s in table.sources.tolist()],
            "features": list(table.X.shape[1:]),
            "data": table.digest[:16],
        },
        ground.evaluation.source[ground.picture[0]].astype(str),
    )


def plan(
    table: Table,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    *,
    pairs: Any = None,
    seeds: Sequence[int] = (17, 29, 43),
    budget: float | Mapping[str, float] | None = None,
    head: Any = None,
    readers: Mapping[str, Any] | None = None,
    floor: bool = True,
    standardize: bool = True,
    cache: Any = None,
    device: str = "auto",
) -> list[dict[str, Any]]:
    """Return the cells that :func:`run` would compute with the same arguments, and which of them are there.

    Returns
    -------
    list of dict
        For every fit: ``method``, ``fit``, whether it is ``fitted`` and ``measured``, and the ``seconds``
        left, by what finished cells of the same method took (None: none are finished).
    """
    device, store = resolve_device(device), as_it_is(cache)
    jobs = list(list_jobs(methods, seeds, device))
    data = FittingData(table.rows("FIT"), table.rows("VAL"), pairs, standardize)
    bank = _check_bank(**(readers or {}))
    ground = Ground(table.rows("HEAD"), table.rows("EVAL"), data.standardizer, head, device, bank)
    budgets, setting, took = _budgets(budget, jobs), _setting(ground), store.timings()
    cells, counted = [], set()
    for job in jobs:
        key = fit_key(job, data)
        whole = found = stored_fit(store, key)
        if job.method in budgets:
            found = stored_fit(store, budget_key(key, budgets[job.method]))
        measured = found is not None and all(
            store.get(cell) is not None for cell in _keys(setting, found, data, floor)
        )
        left: list[float | None] = []
        # Arms that differ in their operating point alone share a fit.
        if whole is None and key not in counted:
            left.append(took.get(f"fit {job.method}"))
            counted.add(key)
        if not measured:
            left.append(took.get("measure"))
        seconds = None if None in left else sum(t for t in left if t is not None)
        cells.append(
            {
                "method": job.method,
                "fit": job.fit,
                "fitted": whole is not None,
                "measured": measured,
                "seconds": seconds,
            }
        )
    return cells


def as_it_is(cache: Any) -> Store:
    """Return a cache to look into: a plan makes nothing, not even a folder."""
    return Store(cache if cache and Path(cache).is_dir() else None)


def _setting(ground: Ground) -> str:
    """Return what all measured cells depend on, besides their maps."""
    return key_of(
        "measure", CELL_VERSION, versions(), ground.head.digest, ground.evaluation.digest,
        array_digest(ground.standardizer.center, ground.standardizer.scale), ground.task_head, ground.bank,
        ground.device,
    )  # fmt: skip


def _known_people(maps: list[Any], *judged: Table) -> tuple[str, ...] | None:
    """Return who, of the people that maps are judged by, they were fitted on; None if a map does not say."""
    if not all(m.info.people for m in maps):
        return None
    fitted = {digest for m in maps for digest in m.info.people}
    names = {str(name) for table in judged for name in np.unique(table.participant)}
    return tuple(sorted(name for name in names if person_digest(name) in fitted))


def _require_measurable(head: Table, evaluation: Table) -> None:
    """Raise unless every EVAL participant has rows of everything that HEAD teaches readers and heads."""
    people = np.unique(evaluation.participant).tolist()
    if len(people) < 2:
        raise ValueError(
            f"EVAL has one participant ({people[0]!r}); how a result varies over people needs two or more."
        )
    for name, known, found in (
        ("sources", head.source, evaluation.source),
        ("labels", head.label, evaluation.label),
    ):
        if known is None or found is None:
            continue
        new = np.setdiff1d(found, known).tolist()
        if new:
            raise ValueError(f"EVAL has {name} that HEAD lacks: {new}; no reader or head could learn them.")
    for source in head.sources.tolist():
        mine = evaluation.source == source
        require_everyone(evaluation.participant[mine], evaluation, f"source {source!r}")
        if head.label is None or evaluation.label is None:
            continue
        for label in np.unique(head.label).tolist():
            rows = mine & (evaluation.label == label)
            what = f"source {source!r} with label {label!r}"
            require_everyone(evaluation.participant[rows], evaluation, what)


def _budgets(budget: float | Mapping[str, float] | None, jobs: list[Job]) -> dict[str, float]:
    """Return every method's budget, for those that have one; the identity never moves."""
    if isinstance(budget, Mapping):
        _require_known(budget, jobs, "budget")
        return {name: float(b) for name, b in budget.items() if name != "identity"}
    return {} if budget is None else {job.method: budget for job in jobs if job.method != "identity"}


def _require_known(given: Mapping[str, Any], jobs: list[Job], what: str) -> None:
    names = list(dict.fromkeys(job.method for job in jobs))
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ValueError(f"{what} names {', '.join(unknown)}; the methods are {', '.join(names)}.")


def _count_pairs(pairs: Any) -> Any:
    if isinstance(pairs, Mapping):
        return {name: len(own[0]) for name, own in pairs.items()}
    return len(pairs[0])


def _check_bank(restarts: int = 3, checkpoints: Sequence[int] = CHECKPOINTS, **other: Any) -> dict[str, Any]:
    if other:
        raise TypeError(f"readers has {sorted(other)}; it takes restarts and checkpoints.")
    return {"restarts": int(restarts), "checkpoints": check_schedule(restarts, checkpoints)}


def resolve_device(device: str) -> str:
    """Return the device that "auto" means, so that cells of different devices are different cells."""
    if device != "auto":
        return device
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _measure_all(
    jobs: list[Job],
    maps: dict[Job, Fitted],
    ground: Ground,
    data: FittingData,
    store: Store,
    floor: bool,
    n_jobs: int,
    say: Any,
) -> list[tuple[Arrays, Arrays | None]]:
    """Return each job's measurements and, for gated methods, the source floor of its gate."""
    setting = _setting(ground)
    wanted: dict[str, tuple[str, Any]] = {}
    keys: list[list[str]] = []
    for job in jobs:
        keys.append(_keys(setting, maps[job], data, floor))
        wanted[keys[-1][0]] = (job.method, maps[job])
        for floor_key in keys[-1][1:]:
            basis = _in_coordinates_of(data.standardizer, maps[job].facts)
            wanted[floor_key] = (f"{job.method}, what its gate preserves", basis)
    found = {key: store.get(key) for key in wanted}
    missing = [key for key in wanted if found[key] is None]
    say(f"{len(wanted)} cells to measure, {len(wanted) - len(missing)} of them finished before")
    if missing:
        ground.prepare()
    calls = (delayed(_measure_one)(key, *wanted[key], ground, store) for key in missing)
    for i, (key, arrays) in enumerate(
        zip(missing, Parallel(n_jobs=n_jobs, return_as="generator")(calls), strict=True), start=1
    ):
        found[key] = arrays
        say(f"measured {i}/{len(missing)}: {wanted[key][0]}")
    return [(found[cell], found[rest[0]] if rest else None) for cell, *rest in keys]  # type: ignore[misc]


def _keys(setting: str, fitted: Fitted, data: FittingData, floor: bool) -> list[str]:
    """Return the names of a fit's measurements and, if it is wanted and there is one, of its source floor."""
    keys = [key_of(setting, map_digest(fitted.map))]
    if floor and "gate_basis" in fitted.facts:
        basis = _in_coordinates_of(data.standardizer, fitted.facts)
        keys.append(key_of(setting, "floor", array_digest(basis)))
    return keys


def _in_coordinates_of(standardizer: Standardizer, facts: Arrays) -> NDArray[Any]:
    """Return an orthonormal basis of the gate where readers see it; its own scaling may differ."""
    basis = facts["gate_basis"]
    if np.array_equal(facts["gate_scale"], standardizer.scale):
        return basis
    return np.linalg.qr(basis * (facts["gate_scale"] / standardizer.scale)[:, None])[0]


def _measure_one(key: str, name: str, what: Any, ground: Ground, store: Store) -> Arrays:
    with saying(f"measuring {name}", store), store.timed("measure"):
        if isinstance(what, Fitted):
            arrays = measure(
                ground, corrected_rows(what.map, ground.head), corrected_rows(what.map, ground.evaluation)
            )
        else:
            arrays = source_floor(ground, what)
    return store.put(key, arrays)


def _speaker(verbose: bool) -> Any:
    def say(text: str) -> None:
        if verbose:
            sys.stderr.write(f"audit: {text}\n")
            sys.stderr.flush()

    return say
