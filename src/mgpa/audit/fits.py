"""The fits of an audit: which there are to make, what they are made from, and those made before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..baselines import make
from ..baselines.identity import Identity
from ..endpoint import movement_budget, relative_movement, stage_movement
from ..errors import MissingEvidence
from ..estimators.base import NO_PAIRS
from ..maps import CorrectionMap, SequentialMap
from ..maps.io.mapfile import map_digest
from ..moments import Standardizer
from ..pairs import is_paired
from ..tables.fitting import fit_table
from ..tables.rows import vectors
from ..tables.table import Table
from ..tokens import TokenMean
from .measure import Ground
from .movement import complement_drift
from .store import Arrays, Store, array_digest, key_of

# Raised when a cell's content changes meaning, so that old caches are not mistaken for new ones.
CELL_VERSION = 3


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


def list_jobs(methods: Iterable[str] | Mapping[str, Any], seeds: Sequence[int], device: str) -> Iterable[Job]:
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


class FittingData:
    """The rows that all methods are fitted from, and the pairs of each: the same, or by method."""

    def __init__(self, fit: Table, val: Table, pairs: Any, standardize: bool = True) -> None:
        self.fit, self.val, self.pairs = fit, val, pairs
        rows = fit.X.reshape(-1, fit.X.shape[-1])
        self.standardizer = Standardizer.from_rows(rows, None, standardize)

    def pairs_for(self, method: str) -> Any:
        """Return the calibration pairs of one method; None: those among the rows."""
        return self.pairs.get(method) if isinstance(self.pairs, Mapping) else self.pairs

    @cached_property
    def _rows_digest(self) -> str:
        return key_of(self.fit.digest, self.val.digest)

    @cached_property
    def _pair_digests(self) -> dict[int, str]:
        return {}

    def digest_for(self, method: str) -> str:
        """Return a checksum of everything a method's fit depends on, besides its settings."""
        pairs = self.pairs_for(method)
        if id(pairs) not in self._pair_digests:  # several methods mostly share their pairs
            sides = () if pairs is None else tuple(np.asarray(side) for side in pairs)
            self._pair_digests[id(pairs)] = array_digest(*sides)
        return key_of(self._rows_digest, self._pair_digests[id(pairs)])


@dataclass(frozen=True)
class Fitted:
    """A map, and what is known about it that is not in the map."""

    map: CorrectionMap
    facts: Arrays


def fit_all(
    jobs: list[Job],
    ground: Ground,
    data: FittingData,
    store: Store,
    n_jobs: int,
    say: Any,
) -> dict[Job, Fitted]:
    """Return the map of every job, fitted now or stored before."""
    keys = {job: fit_key(job, data) for job in jobs}
    # Arms that differ in their operating point alone share a fit.
    distinct = {key: job for job, key in reversed(keys.items())}
    found = {key: stored_fit(store, key) for key in distinct}
    missing = [key for key in dict.fromkeys(keys.values()) if found[key] is None]
    say(f"{len(distinct)} fits, {len(distinct) - len(missing)} of them finished before")
    if missing:
        ground.prepare()  # first, because a head that cannot be fitted is better known before the maps are
    calls = (delayed(_fit_one)(distinct[key], key, data, store) for key in missing)
    for i, (key, fitted) in enumerate(
        zip(missing, Parallel(n_jobs=n_jobs, return_as="generator")(calls), strict=True), start=1
    ):
        found[key] = fitted
        say(f"fitted {i}/{len(missing)}: {distinct[key].method}")
    return {job: fitted for job, key in keys.items() if (fitted := found[key]) is not None}


def fit_key(job: Job, data: FittingData) -> str:
    """Return the name of a job's fit: equal for equal data, pairs, method and library versions."""
    return key_of("fit", CELL_VERSION, versions(), data.digest_for(job.method), _identity_of(job))


def budget_key(fit: str, budget: float) -> str:
    """Return the name of a fit cut back to a budget."""
    return key_of("budget", fit, budget)


def versions() -> dict[str, str | None]:
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


def stored_fit(store: Store, key: str) -> Fitted | None:
    """Return a fit that was made before, or None."""
    facts = store.get(key)
    m = None if facts is None else store.get_map(key)
    return None if facts is None or m is None else Fitted(m, facts)


@contextmanager
def saying(what: str, store: Store) -> Iterator[None]:
    """Say, with any error, what was being done and what is left of the rest."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This happened while {what}.")
        if store.folder is not None:
            error.add_note(f"What was finished before is kept in {store.folder}.")
        raise


def at_budget(
    jobs: list[Job], fitted: dict[Job, Fitted], data: FittingData, store: Store, budgets: Mapping[str, float]
) -> dict[Job, Fitted]:
    """Return the fits, cut back to the movement that each method is allowed; the fits stay as they are."""
    result = dict(fitted)
    for job in jobs:
        budget = budgets.get(job.method)
        if budget is None:
            continue
        key = budget_key(fit_key(job, data), budget)
        found = stored_fit(store, key)
        if found is None:
            with saying(f"cutting {job.method} back to a movement of {budget:g}", store):
                rows = data.val if len(data.val) else data.fit
                H, full = vectors(rows), fitted[job]
                point = movement_budget(
                    full.map, H, budget, source=rows.source, coordinates=data.standardizer
                )
                moved = relative_movement(point.map, H, source=rows.source, coordinates=data.standardizer)
                facts = full.facts | {"validation_movement": np.array(moved)}
                if isinstance(point.map, SequentialMap):
                    facts["stage_movement"] = stage_movement(point.map, H, coordinates=data.standardizer)
                found = Fitted(point.map, store.put(key, facts, point.map))
        result[job] = found
    return result


def _fit_one(job: Job, key: str, data: FittingData, store: Store) -> Fitted:
    with saying(f"fitting {job.method}", store), store.timed(f"fit {job.method}"):
        model, m = job.model, job.fitted
        if m is None:
            rows = Table.concatenate([data.fit, data.val])
            model = fit_table(model, rows, pairs=data.pairs_for(job.method))
            m = model.to_map()
        rows = data.val if len(data.val) else data.fit
        H = vectors(rows)
        where = data.standardizer  # the same for all methods, whatever each standardised by
        moved = relative_movement(m, H, source=rows.source, coordinates=where)
        facts: Arrays = {"validation_movement": np.array(moved)}
        if isinstance(m, SequentialMap):
            facts["stage_movement"] = stage_movement(m, H, coordinates=where)
        gate = _gate_of(model)
        if gate is not None:
            facts |= _gate_facts(gate, m, data, H)
    return Fitted(m, store.put(key, facts, m))


def _gate_facts(gate: Any, m: CorrectionMap, data: FittingData, H: NDArray[Any]) -> Arrays:
    """Return the gate in FIT's coordinates, its spectrum, and how much of held-out contrasts it covers."""
    basis = np.asarray(gate.basis_, dtype=np.float64)
    facts = {
        "gate_basis": basis,
        "gate_scale": np.asarray(m.scale, dtype=np.float64),
        "gate_energy": np.asarray(gate.cumulative_energy_, dtype=np.float64),
        "complement_drift": np.array(complement_drift(m.displacement(H), basis)),
    }
    views = data.val.paired_views() if len(data.val) else None
    if views is not None:
        rows = vectors(data.val)
        contrasts = (rows[views[1]].astype(np.float64) - rows[views[0]]) / m.scale
        facts["gate_coverage"] = np.array(gate.coverage(contrasts))
    return facts


def require_pairs(jobs: list[Job], fit: Table, pairs: Any) -> None:
    """Raise if a method will need pairs and there are none, before the others are fitted."""
    models = {job.method: getattr(job.model, "estimator", job.model) for job in jobs}
    given = set(pairs) if isinstance(pairs, Mapping) else set(models) if pairs is not None else set()
    needy = [
        name
        for name, model in models.items()
        if name not in given and getattr(model, "tags", None) and model.tags.needs_pairs
    ]
    if not needy:
        return
    ids: Any = [] if fit.pair_id is None else fit.pair_id[is_paired(fit.pair_id)]
    if not len(ids) or np.unique(ids, return_counts=True)[1].max() < 2:
        raise MissingEvidence(
            f"{', '.join(needy)}: ", *NO_PAIRS, " In a table, pair_id has to join FIT rows."
        )
