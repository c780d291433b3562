"""One call: fit the methods, correct HEAD and EVAL, measure everything, keep what is finished."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._base import NO_PAIRS
from .._version import __version__
from ..baselines import make
from ..baselines.identity import Identity
from ..endpoint import movement_budget, relative_movement, stage_movement
from ..mapfile import map_digest
from ..maps import CorrectionMap, SequentialMap
from ..moments import Standardizer
from ..pairs import is_paired
from ..sequential import torch_device
from ..tables import Table
from ..tokens import TokenMean, token_mean, transform_tokens
from .diagnostics import confounding
from .measure import Ground, measure, require_everyone, source_floor
from .movement import complement_drift
from .readers import CHECKPOINTS, check_schedule
from .result import Audit, MethodResult
from .store import Arrays, Store, array_digest, key_of

DEFAULT_METHODS = ("identity", "leace", "closed_form_mgpa", "iterative_mgpa")
# Raised when a cell's content changes meaning, so that old caches are not mistaken for new ones.
CELL_VERSION = 2


@dataclass(frozen=True)
class Job:
    """One fit of one method: an estimator to fit, or a fitted one, or a map."""

    method: str
    fit: int
    model: Any

    @property
    def fitted(self) -> CorrectionMap | None:
        """The map, if there is nothing left to fit."""
        if isinstance(self.model, CorrectionMap):
            return self.model
        return self.model.to_map() if _is_fitted(self.model) else None


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
            raise ValueError(f"The table has no {role} rows; mgpa.tables.assign_roles can give roles.")
    # What cannot be measured is refused before anything is computed.
    _require_measurable(parts["HEAD"], parts["EVAL"])
    bank = _check_bank(**(readers or {}))
    device = _here(device)
    jobs = list(_jobs(methods, seeds, device))
    _require_pairs(jobs, parts["FIT"], pairs)
    if bank.get("restarts", 3):
        torch_device(device, "The bank of source readers")
    store, say = Store(cache), _speaker(verbose)
    evidence = Evidence(parts["FIT"], parts["VAL"], pairs)
    ground = Ground(parts["HEAD"], parts["EVAL"], evidence.standardizer, head, device, bank)
    maps = _fit_all(jobs, ground, evidence, store, budget, n_jobs, say)
    cells = _measure_all(jobs, maps, ground, evidence, store, floor, n_jobs, say)
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


def _require_pairs(jobs: list[Job], fit: Table, pairs: Any) -> None:
    """Raise if a method will need pairs and there are none, before the others are fitted."""
    models = {job.method: getattr(job.model, "estimator", job.model) for job in jobs}
    needy = [
        name for name, model in models.items() if getattr(model, "tags", None) and model.tags.needs_pairs
    ]
    if pairs is not None or not needy:
        return
    ids: Any = [] if fit.pair_id is None else fit.pair_id[is_paired(fit.pair_id)]
    if not len(ids) or np.unique(ids, return_counts=True)[1].max() < 2:
        raise ValueError(f"{', '.join(needy)}: {NO_PAIRS} In a table, pair_id has to join FIT rows.")


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


def _check_bank(restarts: int = 3, checkpoints: Sequence[int] = CHECKPOINTS, **other: Any) -> dict[str, Any]:
    if other:
        raise TypeError(f"readers has {sorted(other)}; it takes restarts and checkpoints.")
    return {"restarts": int(restarts), "checkpoints": check_schedule(restarts, checkpoints)}


def _here(device: str) -> str:
    """Return the device that "auto" means, so that cells of different devices are different cells."""
    if device != "auto":
        return device
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _jobs(methods: Iterable[str] | Mapping[str, Any], seeds: Sequence[int], device: str) -> Iterable[Job]:
    """Yield every fit of every method, the identity first."""
    if isinstance(methods, str):
        raise TypeError(f"methods must be a list of names or a dict; got the single text {methods!r}.")
    named = dict(methods) if isinstance(methods, Mapping) else {name: name for name in methods}
    for name in named:
        if not isinstance(name, str):
            raise TypeError(f"methods has {name!r} in place of a name; give it one: {{'mine': {name!r}}}.")
    named = {"identity": named.pop("identity", "identity"), **named}
    if named["identity"] != "identity" and not isinstance(named["identity"], Identity):
        raise ValueError("'identity' is the uncorrected embedding, with which all others are compared.")
    for name, entry in named.items():
        entries = list(entry) if isinstance(entry, (list, tuple)) else [entry]
        fits: list[Any] = []
        for model in entries:
            fits += _fits_of(name, make(model) if isinstance(model, str) else model, seeds, device)
        if not fits:
            raise ValueError(f"{name} has nothing to fit; pass a method, and seeds for those that need them.")
        yield from (Job(name, i, model) for i, model in enumerate(fits))


def _fits_of(name: str, model: Any, seeds: Sequence[int], device: str) -> list[Any]:
    """Return a fitted method as it is, and of any other unfitted copies, one for every seed it needs."""
    if isinstance(model, CorrectionMap):
        return [model]
    if hasattr(model, "tags") and model.tags.acts_on != "embeddings":
        raise ValueError(
            f"{name} corrects signals, not embeddings: correct and embed them first, then audit the "
            "embeddings with 'identity'."
        )
    if isinstance(model, type) or not all(hasattr(model, a) for a in ("get_params", "fit", "to_map")):
        raise TypeError(
            f"{name} is {model!r}; expected a name, an estimator of this package, or a map. Standardisation "
            "is part of every estimator here, so no pipeline is needed around one."
        )
    if _is_fitted(model):
        return [model]
    if isinstance(model, TokenMean):  # tokens are recognised by their shape
        return _fits_of(name, model.estimator, seeds, device)
    model = clone(model)
    parameters = model.get_params()
    if parameters.get("device") == "auto":
        model.set_params(device=device)
    if parameters.get("random_state", 0) is None:
        return [clone(model).set_params(random_state=int(seed)) for seed in seeds]
    return [model]


def _is_fitted(model: Any) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


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
    ground: Ground,
    evidence: Evidence,
    store: Store,
    budget: float | None,
    n_jobs: int,
    say: Any,
) -> dict[Job, Fitted]:
    data = evidence.digest
    keys = {job: key_of("fit", CELL_VERSION, _versions(), data, budget, _identity_of(job)) for job in jobs}
    found = {job: _stored_fit(store, keys[job]) for job in jobs}
    missing = [job for job in jobs if found[job] is None]
    say(f"{len(jobs)} fits, {len(jobs) - len(missing)} of them finished before")
    if missing:
        ground.prepare()  # first, because a head that cannot be fitted is better known before the maps are
    calls = (delayed(_fit_one)(job, keys[job], evidence, store, budget) for job in missing)
    for i, (job, fitted) in enumerate(
        zip(missing, Parallel(n_jobs=n_jobs, return_as="generator")(calls), strict=True), start=1
    ):
        found[job] = fitted
        say(f"fitted {i}/{len(missing)}: {job.method}")
    return {job: fitted for job, fitted in found.items() if fitted is not None}


def _versions() -> dict[str, str | None]:
    """Return the libraries whose rounding, or more, is in the numbers."""
    return {"mgpa": __version__} | {
        name: _version(name) for name in ("numpy", "scipy", "scikit-learn", "torch")
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _identity_of(job: Job) -> Any:
    """Return what tells this fit from others: a map and its gate, or an estimator and its parameters."""
    m, gate = job.fitted, _gate_of(job.model)
    if m is None:
        return job.model
    return [map_digest(m), asdict(m.info), None if gate is None else [gate.basis_, gate.cumulative_energy_]]


def _gate_of(model: Any) -> Any:
    """Return the gate of a fitted estimator, if it has one that lets anything through."""
    gate = getattr(getattr(model, "estimator_", model), "gate_", None)
    return gate if gate is not None and gate.rank_ else None


def _stored_fit(store: Store, key: str) -> Fitted | None:
    facts = store.get(key)
    m = None if facts is None else store.get_map(key)
    return None if facts is None or m is None else Fitted(m, facts)


@contextmanager
def _saying(what: str, store: Store) -> Iterator[None]:
    """Say, with any error, what was being done and what is left of the rest."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This happened while {what}.")
        if store.folder is not None:
            error.add_note(f"What was finished before is kept in {store.folder}.")
        raise


def _fit_one(job: Job, key: str, evidence: Evidence, store: Store, budget: float | None) -> Fitted:
    with _saying(f"fitting {job.method}", store):
        model, m = job.model, job.fitted
        if m is None:
            model = evidence.fit_model(model)
            m = model.to_map()
        rows = evidence.val if len(evidence.val) else evidence.fit
        H = token_mean(rows.X) if rows.X.ndim == 3 else rows.X
        where = evidence.standardizer  # the same for all methods, whatever each standardised by
        if budget is not None and job.method != "identity":
            m = movement_budget(m, H, budget, source=rows.source, coordinates=where).map
        moved = relative_movement(m, H, source=rows.source, coordinates=where)
        facts: Arrays = {"validation_movement": np.array(moved)}
        if isinstance(m, SequentialMap):
            facts["stage_movement"] = stage_movement(m, H, coordinates=where)
        gate = _gate_of(model)
        if gate is not None:
            facts |= _gate_facts(gate, m, evidence, H)
    return Fitted(m, store.put(key, facts, m))


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
        "measure", CELL_VERSION, _versions(), ground.head.digest, ground.evaluation.digest,
        array_digest(ground.standardizer.center, ground.standardizer.scale), ground.task_head, ground.bank,
        ground.device,
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
    calls = (delayed(_measure_one)(key, *wanted[key], ground, store) for key in missing)
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


def _measure_one(key: str, name: str, what: Any, ground: Ground, store: Store) -> Arrays:
    with _saying(f"measuring {name}", store):
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
