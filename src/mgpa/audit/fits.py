"""List, run and reload the fits of an audit."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ..baselines import make_method
from ..baselines.projections import Identity
from ..coordinates import Coordinates
from ..errors import MissingEvidence, TableError
from ..estimators.tokens import TokenEstimator, gate_of, needs_pairs, row_estimator
from ..labels import SINGLES
from ..maps import CorrectionMap, SequentialMap
from ..maps.io.mapfile import map_digest
from ..moments import Standardizer
from ..operating_point import movement_budget, relative_movement, stage_movement
from ..statistics import NO_PAIRS
from ..tables.fitting import fit_table
from ..tables.rows import require_correctable, require_encoder, vectors
from ..tables.table import Table
from .calibration import contrasts, coverage, has_pairs
from .store import Arrays, Store, array_digest, cell_key


@dataclass(frozen=True, eq=False)
class Fit:
    """One fit of a method: the given estimator or map, the fitted map, and facts about it."""

    method: str
    number: int
    model: Any
    map: Any = None
    facts: Arrays = field(default_factory=dict)

    @property
    def came_fitted(self) -> bool:
        """Whether a fitted map was passed."""
        return isinstance(self.model, CorrectionMap) or is_fitted(self.model)


def list_fits(methods: Iterable[str] | Mapping[str, Any], seeds: Sequence[int], device: str) -> Iterator[Fit]:
    """Yield all fits of all methods, the identity first; fitted estimators have their maps."""
    if isinstance(methods, str):
        raise TypeError(f"methods must be a list of names or a dict; got the single text {methods!r}.")
    named = dict(methods) if isinstance(methods, Mapping) else {name: name for name in methods}
    for name in named:
        if not isinstance(name, str):
            raise TypeError(f"methods has {name!r} without a name; pass {{'mine': {name!r}}}.")
    identity = named.pop("identity", "identity")
    if identity != "identity" and not isinstance(row_estimator(identity), Identity):
        raise ValueError("The name 'identity' is reserved for the uncorrected embedding; rename this method.")
    # Always a new identity, because a fitted one might have another width.
    for name, entry in {"identity": Identity(), **named}.items():
        entries = list(entry) if isinstance(entry, (list, tuple)) else [entry]
        fits: list[Any] = []
        for model in entries:
            fits += _fits_of(name, make_method(model) if isinstance(model, str) else model, seeds, device)
        if not fits:
            raise ValueError(f"{name} has nothing to fit; pass a method, and seeds if it needs them.")
        for i, model in enumerate(fits):
            m = model if isinstance(model, CorrectionMap) else None
            if m is None and not is_decoder(model) and is_fitted(model):
                m = model.to_map()
            yield Fit(name, i, model, m)


def is_decoder(model: Any) -> bool:
    """Return whether a method gives predictions instead of corrected rows."""
    return hasattr(model, "tags") and bool(model.tags.acts_on == "predictions")


def _fits_of(name: str, model: Any, seeds: Sequence[int], device: str) -> list[Any]:
    """Return a fitted method unchanged, and unfitted copies of other methods, one per seed."""
    if isinstance(model, CorrectionMap):
        return [model]
    if hasattr(model, "tags") and model.tags.acts_on == "signals":
        raise ValueError(f"{name} corrects signals: correct and embed them, then audit the embeddings.")
    wanted = ("get_params", "fit", "predict" if is_decoder(model) else "to_map")
    if isinstance(model, type) or not all(hasattr(model, a) for a in wanted):
        raise TypeError(
            f"{name} is {model!r}; expected a name, an estimator of this package, or a map. Pass it "
            "without a pipeline: estimators of this package standardise."
        )
    if is_fitted(model):
        return [model]
    if isinstance(model, TokenEstimator):
        inner = _fits_of(name, model.estimator, seeds, device)
        return [clone(model).set_params(estimator=estimator) for estimator in inner]
    model = clone(model)
    parameters = model.get_params()
    if parameters.get("device") == "auto":
        model.set_params(device=device)
    if parameters.get("random_state", 0) is None:
        return [clone(model).set_params(random_state=int(seed)) for seed in seeds]
    return [model]


def is_fitted(model: Any) -> bool:
    """Return whether a scikit-learn estimator is fitted."""
    with suppress(NotFittedError):
        check_is_fitted(model)
        return True
    return False


def common_coordinates(fits: list[Fit], table_coordinates: Coordinates | None) -> Coordinates | None:
    """Return the coordinates of the table or of the fitted maps; all must be the same."""
    where = [(fit.method, fit.map.coordinates) for fit in fits if fit.map is not None]
    where += [] if table_coordinates is None else [("the table", table_coordinates)]
    digests = [None if coordinates is None else coordinates.digest for _, coordinates in where]
    if len(set(digests)) > 1:
        listed = (f"{name} {digest or 'none'}" for (name, _), digest in zip(where, digests, strict=True))
        raise ValueError(
            f"The maps have different coordinates ({', '.join(listed)}); audit maps with the same "
            "coordinates together."
        )
    return where[0][1] if where else None


def require_applicable(fits: list[Fit], table: Table, width: int, pairs: Any) -> None:
    """Raise if a fitted map does not match the table's features, or a method lacks pairs."""
    for fit in fits:
        if fit.map is None:
            continue
        if fit.map.n_features != width:
            raise TableError(f"{fit.method} corrects {fit.map.n_features} features; the table has {width}.")
        encoder = {"encoder": fit.map.info.encoder}
        require_encoder(table.info, encoder, "The table", f"{fit.method} was fitted on")
        require_correctable(fit.map, table.info, table.source, "Audit the table that the map is meant for.")
    models = {fit.method: fit.model for fit in fits}
    named = set(pairs) if isinstance(pairs, Mapping) else set(models) if pairs is not None else set()
    needy = [name for name, model in models.items() if name not in named and needs_pairs(model)]
    if needy and not has_pairs(table.rows("FIT")):
        elsewhere = " Only other rows have pairs: give those participants the role FIT." * has_pairs(table)
        raise MissingEvidence(
            f"{', '.join(needy)}: {NO_PAIRS} In a table, pair_id has to join FIT rows.{elsewhere}"
        )


class FittingData:
    """The fitting data: FIT and VAL rows of a table, and pairs for all methods or for each method.

    Rows of a role are copied for use and not stored, because the table may be large. ``coordinates`` are
    those of the rows; maps store them.
    """

    def __init__(
        self, rows: Table, pairs: Any = None, standardize: bool = True, coordinates: Coordinates | None = None
    ) -> None:
        self.rows, self.pairs, self.standardize, self.coordinates = rows, pairs, standardize, coordinates
        # Mean and spread of the FIT rows, or of HEAD rows if only fitted maps are audited without FIT rows.
        # Each token counts as a row.
        X = rows.X[rows.role == ("FIT" if "FIT" in rows.role else "HEAD")].reshape(-1, rows.X.shape[-1])
        self.standardizer = Standardizer.from_rows(X, None, standardize)
        self._digests: dict[int | str, str] = {}

    @property
    def val(self) -> Table:
        """The VAL rows."""
        return self.rows.rows("VAL")

    def standardizer_for(self, m: CorrectionMap) -> Standardizer:
        """Return the standardizer for the features of a map (for joint tokens, of all tokens)."""
        s, n = self.standardizer, m.n_features // self.rows.X.shape[-1]
        if m.info.token_layout == "mean":
            return s
        return Standardizer(np.tile(s.center, n), np.tile(s.scale, n), np.tile(s.varies, n))

    def pairs_for(self, method: str) -> Any:
        """Return the calibration pairs of one method; None if they are among the rows."""
        return self.pairs.get(method) if isinstance(self.pairs, Mapping) else self.pairs

    def key(self, fit: Fit) -> str:
        """Return the storage key of a fit."""
        pairs = self.pairs_for(fit.method)
        if "rows" not in self._digests:
            self._digests["rows"] = " ".join(self.rows.rows(role).digest for role in ("FIT", "VAL"))
        if id(pairs) not in self._digests:  # computed once, because methods usually share pairs
            if isinstance(pairs, Table):
                self._digests[id(pairs)] = pairs.digest
            else:
                sides = () if pairs is None else tuple(np.asarray(side) for side in pairs)
                self._digests[id(pairs)] = array_digest(*sides)
        model = fit.model
        if fit.came_fitted:  # identify a fitted map by its content
            gate = gate_of(model)
            spectrum = None if gate is None else [gate.basis_, gate.cumulative_energy_]
            model = [map_digest(fit.map), asdict(fit.map.info), spectrum]
        encoder = dict(self.rows.info.get("encoder") or {})
        where = None if self.coordinates is None else self.coordinates.digest
        rows, paired = self._digests["rows"], self._digests[id(pairs)]
        return cell_key("fit", model, rows, paired, encoder, self.standardize, where)


@contextmanager
def explain(what: str, store: Store) -> Iterator[None]:
    """Add the name of the computation and the folder of finished cells to any error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This happened while {what}.")
        if store.folder is not None:
            error.add_note(f"Finished cells are kept in {store.folder}.")
        raise


def stored_fit(fit: Fit, store: Store, key: str) -> Fit | None:
    """Return a fit with its stored map and facts, or None."""
    stored = store.get_fit(key)
    return stored and replace(fit, map=stored[0], facts=stored[1])


def fit_one(fit: Fit, data: FittingData, store: Store, key: str) -> Fit:
    """Fit a method, unless it is already fitted, and store its map and facts."""
    with explain(f"fitting {fit.method}", store), warnings.catch_warnings():
        warnings.filterwarnings("ignore", SINGLES)  # the audit says so once
        model, m, missing = fit.model, fit.map, ""
        if m is None:
            pairs = data.pairs_for(fit.method)
            rows = data.rows
            if "FIT" not in rows.role:  # only fitted maps are audited; this is the identity
                rows = replace(rows.rows("HEAD"), role=None)
            try:
                model = fit_table(model, rows, pairs=pairs)
            except MissingEvidence as error:
                # Without evidence, a deployed method does not change rows. The audit does the same and
                # reports it.
                missing = str(error)
                names = [name for name in model.get_params() if name.rpartition("__")[2] == "on_missing"]
                model = clone(model).set_params(**dict.fromkeys(names, "warn"))
                model = fit_table(model, data.rows, pairs=pairs)
            m = model.to_map().with_coordinates(data.coordinates)
        gate = gate_of(model)
        del model  # frees its rows
        facts = _validation_facts(m, data)
        if missing:
            facts["missing_evidence"] = np.array(missing)
        if gate is not None and gate.rank_:
            facts |= _gate_facts(gate, m, data, data.pairs_for(fit.method))
    return replace(fit, map=m, facts=store.put(key, facts, m))


def cut_back(fit: Fit, budget: float, data: FittingData, store: Store, key: str) -> Fit:
    """Return a copy of a fit with a strength at which VAL rows move by the budget."""
    with explain(f"cutting {fit.method} back to a movement of {budget:g}", store):
        val, where = data.val, data.standardizer_for(fit.map)
        H = vectors(val, fit.map.info.token_layout)
        m = movement_budget(fit.map, H, budget, source=val.source, coordinates=where)
        facts = fit.facts | _validation_facts(m, data)
    return replace(fit, map=m, facts=store.put(key, facts, m))


def _validation_facts(m: CorrectionMap, data: FittingData) -> Arrays:
    """Return the movement of VAL rows by a map, in total and after every stage; empty without VAL rows."""
    val = data.val
    if not len(val):
        return {}
    # Common coordinates for all maps, whatever their own standardisation.
    H, where = vectors(val, m.info.token_layout), data.standardizer_for(m)
    moved = relative_movement(m, H, source=val.source, coordinates=where)
    facts = {"validation_movement": np.array(moved)}
    if isinstance(m, SequentialMap):
        facts["stage_movement"] = stage_movement(m, H, coordinates=where)
    return facts


def _gate_facts(gate: Any, m: CorrectionMap, data: FittingData, pairs: Any) -> Arrays:
    """Return the gate in FIT's coordinates, and its coverage of FIT and VAL contrasts."""
    facts = {
        "gate_basis": np.asarray(gate.basis_, dtype=np.float64),
        "gate_scale": np.asarray(m.scale, dtype=np.float64),
    }
    # Constant features have no scale, so gates cannot cover them.
    varies, layout = data.standardizer_for(m).varies, m.info.token_layout
    if pairs is None or isinstance(pairs, Table):
        fitted = contrasts(data.rows.rows("FIT") if pairs is None else pairs, layout, m.scale)
    else:
        fitted = np.subtract(pairs[1], pairs[0], dtype=np.float64).reshape(len(pairs[0]), -1, len(m.scale))
        fitted = fitted.mean(axis=1) / m.scale
    val = contrasts(data.val, layout, m.scale) if len(data.val) else fitted[:0]
    for name, differences in (("contrast_coverage", fitted), ("gate_coverage", val)):
        share = coverage(gate, differences * varies) if len(differences) else None
        if share is not None:
            facts[name] = np.array(share)
    return facts
