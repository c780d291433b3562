"""One call: fit the methods, correct HEAD and EVAL, measure everything, keep what is finished."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from .._version import __version__
from ..baselines import make
from ..endpoint import movement_budget, relative_movement
from ..mapfile import map_digest
from ..maps import CorrectionMap, SequentialMap, load_map
from ..moments import Standardizer
from ..tables import Table
from ..tokens import TokenMean, token_mean, transform_tokens
from .diagnostics import confounding
from .measure import Ground, measure, source_floor
from .movement import complement_drift
from .result import Audit, MethodResult
from .store import Arrays, Store, array_digest, key_of

DEFAULT_METHODS = ("identity", "leace", "closed_form_mgpa", "iterative_mgpa")
# Raised when a cell's content changes meaning, so that old caches are not mistaken for new ones.
CELL_VERSION = 1


@dataclass(frozen=True)
class Job:
    """One fit of one method: an estimator to fit, or a map that exists already."""

    method: str
    fit: int
    model: Any

    @property
    def fitted(self) -> CorrectionMap | None:
        """The map, if there is nothing left to fit."""
        return self.model if isinstance(self.model, CorrectionMap) else None


def run(
    table: Table,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    *,
    pairs: Any = None,
    seeds: Sequence[int] = (17, 29, 43),
    budget: float | None = None,
    head: Any = None,
    readers: Mapping[str, Any] | None = None,
    floor: bool = True,
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
    pairs : tuple (A, B) or None
        Calibration pairs, if they are not rows of the table (then its ``pair_id`` in FIT is used).
    seeds : sequence of int
        Fits of every method that has a ``random_state`` of None; the others are fitted once.
    budget : float or None
        Compare at this relative movement of VAL instead of with complete maps. A method that cannot
        move that far is an error.
    head : classifier or None
        Task head; None is the paper's balanced ridge head, or its network for tokens.
    readers : dict or None
        ``restarts`` and ``checkpoints``, for a smaller bank than the paper's.
    floor : bool
        Also read the source from what each gate preserves.
    cache : path or None
        Folder for finished cells. Running again with the same data and settings reads them; a run that was
        killed goes on where it was.
    n_jobs : int
        Cells at a time (joblib; ``joblib.parallel_config("dask")`` sends them to a cluster).
    device : str
        Where networks are trained.
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
    started = time.monotonic()
    parts = {role: table.rows(role) for role in ("FIT", "VAL", "HEAD", "EVAL")}
    for role in ("FIT", "HEAD", "EVAL"):
        if not len(parts[role]):
            raise ValueError(f"The table has no {role} rows; mgpa.tables.assign_roles can give roles.")
    store, say = Store(cache), _speaker(verbose)
    evidence = Evidence(parts["FIT"], parts["VAL"], pairs)
    jobs = list(_jobs(methods, seeds))
    ground = Ground(parts["HEAD"], parts["EVAL"], evidence.standardizer, head, device, dict(readers or {}))
    maps = _fit_all(jobs, evidence, store, budget, device, n_jobs, say)
    cells = _measure_all(jobs, maps, ground, evidence, store, floor, n_jobs, say)
    say(f"done in {time.monotonic() - started:.0f} s")
    results = {}
    for name in dict.fromkeys(job.method for job in jobs):
        own = [(job, *cell) for job, cell in zip(jobs, cells, strict=True) if job.method == name]
        results[name] = MethodResult.collect(
            name, [maps[job] for job, *_ in own], [cell for _, cell, _ in own], [floor for *_, floor in own]
        )
    people = confounding(parts["FIT"].source, parts["FIT"].participant, parts["FIT"].label)
    return Audit(
        results,
        people,
        {
            "version": __version__,
            "seeds": list(seeds),
            "pairs": None if pairs is None else len(pairs[0]),
            "floor": floor,
            "budget": budget,
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


def _jobs(methods: Iterable[str] | Mapping[str, Any], seeds: Sequence[int]) -> Iterable[Job]:
    """Yield every fit of every method, the identity first."""
    if isinstance(methods, str):
        raise TypeError(f"methods must be a list of names or a dict; got the single text {methods!r}.")
    named = dict(methods) if isinstance(methods, Mapping) else {name: name for name in methods}
    named = {"identity": named.pop("identity", "identity"), **named}
    for name, entry in named.items():
        entries = list(entry) if isinstance(entry, (list, tuple)) else [entry]
        fits = []
        for model in entries:
            model = make(model) if isinstance(model, str) else model
            if hasattr(model, "tags") and model.tags.acts_on != "embeddings":
                raise ValueError(
                    f"{name} corrects signals, not embeddings: correct and embed them first, then audit the "
                    "embeddings with 'identity'."
                )
            if isinstance(model, CorrectionMap) or _is_fitted(model):
                fits.append(model if isinstance(model, CorrectionMap) else model.to_map())
            elif "random_state" in model.get_params() and model.get_params()["random_state"] is None:
                fits += [clone(model).set_params(random_state=int(seed)) for seed in seeds]
            else:
                fits.append(clone(model))
        yield from (Job(name, i, model) for i, model in enumerate(fits))


def _is_fitted(model: Any) -> bool:
    return bool(getattr(model, "__sklearn_is_fitted__", lambda: False)())


class Evidence:
    """What methods are fitted from."""

    def __init__(self, fit: Table, val: Table, pairs: Any) -> None:
        self.fit, self.val, self.pairs = fit, val, pairs
        rows = fit.X.reshape(-1, fit.X.shape[-1])
        self.standardizer = Standardizer.from_rows(rows, None, True)

    @property
    def digest(self) -> str:
        """A checksum of everything a fit depends on, besides its settings."""
        sides = () if self.pairs is None else tuple(np.asarray(side) for side in self.pairs)
        return key_of(self.fit.digest, self.val.digest, array_digest(*sides))

    def fit_model(self, model: Any) -> Any:
        """Fit a clone of a method."""
        model = TokenMean(clone(model)) if self.fit.X.ndim == 3 else clone(model)
        target = model.estimator if isinstance(model, TokenMean) else model
        known: dict[str, Any] = {"source": self.fit.source, "pairs": self.pairs}
        if self.pairs is None:
            known["pair_id"] = self.fit.pair_id
        if len(self.val):
            known |= {"X_val": self.val.X, "source_val": self.val.source}
        if has_fit_parameter(target, "groups"):
            known["groups"] = self.fit.participant
        return model.fit(self.fit.X, self.fit.label, **known)


@dataclass(frozen=True)
class Fitted:
    """A map, and what is known about it that is not in the map."""

    map: CorrectionMap
    facts: Arrays

    def correct(self, table: Table) -> NDArray[Any]:
        """Return a table's rows, corrected."""
        known: dict[str, Any] = {} if self.map.source_blind else {"source": table.source}
        if table.X.ndim == 3:
            return np.asarray(transform_tokens(self.map, table.X, **known))
        return np.asarray(self.map.transform(table.X, **known))


def _fit_all(
    jobs: list[Job],
    evidence: Evidence,
    store: Store,
    budget: float | None,
    device: str,
    n_jobs: int,
    say: Any,
) -> dict[Job, Fitted]:
    data = evidence.digest
    keys = {job: key_of("fit", CELL_VERSION, __version__, data, budget, _identity_of(job)) for job in jobs}
    found = {job: _stored_fit(store, keys[job]) for job in jobs}
    missing = [job for job in jobs if found[job] is None]
    say(f"{len(jobs)} fits, {len(jobs) - len(missing)} of them finished before")
    calls = (delayed(_fit_one)(job, keys[job], evidence, store, budget, device) for job in missing)
    for i, (job, fitted) in enumerate(
        zip(missing, Parallel(n_jobs=n_jobs, return_as="generator")(calls), strict=True), start=1
    ):
        found[job] = fitted
        say(f"fitted {i}/{len(missing)}: {job.method}")
    return {job: fitted for job, fitted in found.items() if fitted is not None}


def _identity_of(job: Job) -> Any:
    """Return what tells this fit from others: a map's content, or an estimator and its parameters."""
    return map_digest(job.fitted) if job.fitted is not None else job.model


def _stored_fit(store: Store, key: str) -> Fitted | None:
    facts, path = store.get(key), store.path(key)
    if facts is None or path is None:
        return None
    return Fitted(load_map(path.with_suffix(".safetensors")), facts)


def _fit_one(
    job: Job, key: str, evidence: Evidence, store: Store, budget: float | None, device: str
) -> Fitted:
    model, m = job.model, job.fitted
    if m is None:
        if "device" in model.get_params():
            model = clone(model).set_params(device=device)
        model = evidence.fit_model(model)
        m = model.to_map()
    rows = evidence.val if len(evidence.val) else evidence.fit
    H = token_mean(rows.X) if rows.X.ndim == 3 else rows.X
    if budget is not None and job.method != "identity":
        m = movement_budget(m, H, budget, source=rows.source).map
    facts: Arrays = {"validation_movement": np.array(relative_movement(m, H, source=rows.source))}
    if isinstance(m, SequentialMap):
        size = np.linalg.norm((H.astype(np.float64) - m.center) / m.scale)
        facts["stage_movement"] = m.stage_movement(H) / size
    gate = getattr(getattr(model, "estimator_", model), "gate_", None)
    if gate is not None and gate.rank_:
        facts |= _gate_facts(gate, m, evidence, H)
    path = store.path(key)
    if path is not None:
        # The map first: the cell's own file says that both are complete.
        m.save(path.with_suffix(".safetensors"))
    store.put(key, facts)
    return Fitted(m, facts)


def _gate_facts(gate: Any, m: CorrectionMap, evidence: Evidence, H: NDArray[Any]) -> Arrays:
    """Return the gate in FIT's coordinates, its spectrum, and how much of held-out contrasts it covers."""
    basis = np.asarray(gate.basis_, dtype=np.float64)
    facts = {
        "gate_basis": basis,
        "gate_scale": np.asarray(m.scale, dtype=np.float64),
        "gate_energy": np.asarray(gate.cumulative_energy_, dtype=np.float64),
        "complement_drift": np.array(complement_drift(m.displacement(H), basis)),
    }
    views = evidence.val.paired_views() if len(evidence.val) else None
    if views is not None:
        rows = token_mean(evidence.val.X) if evidence.val.X.ndim == 3 else evidence.val.X
        contrasts = (rows[views[1]].astype(np.float64) - rows[views[0]]) / m.scale
        facts["gate_coverage"] = np.array(gate.coverage(contrasts))
    return facts


def _measure_all(
    jobs: list[Job],
    maps: dict[Job, Fitted],
    ground: Ground,
    evidence: Evidence,
    store: Store,
    floor: bool,
    n_jobs: int,
    say: Any,
) -> list[tuple[Arrays, Arrays | None]]:
    """Return each job's measurements and, for gated methods, the source floor of its gate."""
    setting = key_of(
        "measure", CELL_VERSION, __version__, ground.head.digest, ground.evaluation.digest,
        array_digest(ground.standardizer.center, ground.standardizer.scale), ground.task_head, ground.bank,
    )  # fmt: skip
    wanted: dict[str, tuple[str, Any]] = {}
    keys: list[tuple[str, str | None]] = []
    for job in jobs:
        cell, floor_key = key_of(setting, map_digest(maps[job].map)), None
        wanted[cell] = (job.method, maps[job])
        if floor and "gate_basis" in maps[job].facts:
            basis = _in_coordinates_of(evidence.standardizer, maps[job].facts)
            floor_key = key_of(setting, "floor", array_digest(basis))
            wanted[floor_key] = (f"{job.method}, what its gate preserves", basis)
        keys.append((cell, floor_key))
    found = {key: store.get(key) for key in wanted}
    missing = [key for key in wanted if found[key] is None]
    say(f"{len(wanted)} cells to measure, {len(wanted) - len(missing)} of them finished before")
    if missing:
        ground.prepare()
    calls = (delayed(_measure_one)(key, wanted[key][1], ground, store) for key in missing)
    for i, (key, arrays) in enumerate(
        zip(missing, Parallel(n_jobs=n_jobs, return_as="generator")(calls), strict=True), start=1
    ):
        found[key] = arrays
        say(f"measured {i}/{len(missing)}: {wanted[key][0]}")
    return [(found[a], None if b is None else found[b]) for a, b in keys]  # type: ignore[misc]


def _in_coordinates_of(standardizer: Standardizer, facts: Arrays) -> NDArray[Any]:
    """Return an orthonormal basis of the gate where readers see it; its own scaling may differ."""
    basis = facts["gate_basis"]
    if np.array_equal(facts["gate_scale"], standardizer.scale):
        return basis
    return np.linalg.qr(basis * (facts["gate_scale"] / standardizer.scale)[:, None])[0]


def _measure_one(key: str, what: Any, ground: Ground, store: Store) -> Arrays:
    if isinstance(what, Fitted):
        arrays = measure(ground, what.correct(ground.head), what.correct(ground.evaluation))
    else:
        arrays = source_floor(ground, what)
    return store.put(key, arrays)


def _speaker(verbose: bool) -> Any:
    def say(text: str) -> None:
        if verbose:
            sys.stderr.write(f"audit: {text}\n")
            sys.stderr.flush()

    return say
