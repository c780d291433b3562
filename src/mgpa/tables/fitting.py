"""Fit any method to a table in memory, in a file of any size or on a cluster, with the same result.

Methods that need only moments reduce every batch to moments, for tables of any size. Other methods are fitted
on rows in memory; for a large file, on a random sample.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ..coordinates import Coordinates, fit_coordinates
from ..errors import TableError
from ..estimators.closed_form import MomentEstimator
from ..estimators.tokens import TokenEstimator, TokenMean, row_estimator
from ..labels import is_paired, source_names
from ..statistics import LabelledRows
from .columns import COLUMNS, Columns, check_columns, feature_names, in_units, require_columns
from .files import TableFile, open_table
from .rows import (
    Digests,
    encode_sample,
    in_coordinates,
    merge_samples,
    person_digest,
    require_encoder,
    require_features,
    row_digests,
)
from .scale import batches, reduce_parts
from .table import Table

Pairs = LabelledRows | tuple[Any, Any]


def fit_table(
    model: Any,
    table: Any,
    *,
    pairs: Any = None,
    components: int | None = None,
    coordinates: Coordinates | None = None,
    max_rows: int = 200_000,
    random_state: int = 0,
    everyone: bool = False,
    client: Any = None,
    verbose: bool = False,
) -> Any:
    """Fit a method to a table, with all columns that the method uses.

    Parameters
    ----------
    model : estimator
        A clone of the estimator is fitted. If the table contains tokens, it is fitted on token means
        (:class:`~mgpa.TokenMean`), unless it is a :class:`~mgpa.JointTokens`. Streaming methods (see
        :func:`mgpa.baselines.list_methods`) use all rows in bounded memory. Other methods are fitted on at
        most ``max_rows`` rows of a file (all paired rows, and a random sample of the others, balanced over
        sources), and their map records this.
    table : Table, or path
        With a role column, the method is fitted on FIT rows, and VAL rows (at most ``max_rows`` of a file)
        are used for early stopping. Without roles, it is fitted on all rows.
    pairs : Table, path, tuple (A, B), or None
        Paired rows from elsewhere; the pair ids of the table are then not used. Either a table with the same
        sources (only its FIT rows, if it has roles), or two aligned arrays, with A from the first source in
        sorted order.
    components : int or None
        Number of principal components of the features to correct. They are fitted on the FIT rows (in memory)
        and stored in the map.
    coordinates : Coordinates or None
        Coordinates for the correction, fitted before; instead of ``components``.
    max_rows, random_state : int
        Number of rows for methods that do not stream, and the seed of the sample.
    everyone : bool
        Fit on the rows of all roles: the last step, after an audit. The audit refers to fits on FIT rows.
        This map cannot be audited on held-out participants, because all participants were in its fit.
    client : dask.distributed.Client or None
        Dask client for work on a file; None works in this process.
    verbose : bool
        Show progress.

    Returns
    -------
    estimator
        The fitted estimator. ``to_map()`` returns the map, which stores its encoder, coordinates and
        participants.

    Examples
    --------
    >>> import mgpa
    >>> from mgpa.tables import fit_table, simulate_table
    >>> fit_table(mgpa.ClosedFormMGPA(), simulate_table(8)).to_map()
    <AffineMap: affine, 1 direction, 16 features>
    """
    rows = FitRows(table, everyone)
    if components is not None:
        if coordinates is not None:
            raise ValueError("Set components or coordinates, not both.")
        coordinates = fit_coordinates(rows.read(rows.positions("FIT")).X, n_components=components)
    calibration: Pairs | None = None
    pair_digests: Digests = merge_samples()
    if pairs is not None:
        calibration, pair_digests = read_pairs(pairs, rows, coordinates)
    model = clone(model)
    if rows.tokens and not isinstance(model, TokenEstimator):
        model = TokenMean(model)
    notes: list[str] = []
    if isinstance(row_estimator(model), MomentEstimator):
        settings = coordinates, calibration is None, everyone
        jobs = [partial(summarise, model, part, *settings) for part in rows.parts]
        on = None if isinstance(rows.table, Table) else client
        model, fitted = reduce_parts(jobs, merged, client=on, verbose=verbose)
        model = model if calibration is None else model.add_pairs(calibration)
    else:
        model, fitted, notes = _fit_rows(model, rows, calibration, coordinates, max_rows, random_state)
    if everyone:
        notes += ["fitted on the rows of every role; audits of the table scored fits on its FIT rows"]
    model.describe(
        **_about_table(rows.table.info, coordinates),
        people=_people_digests(rows, calibration),
        row_sample=encode_sample(merge_samples(fitted, pair_digests)),
        notes="; ".join(notes),
        coordinates=coordinates,
    )
    evidence = model.to_map().info.evidence  # solve now, so that problems are reported here
    return model.describe(evidence=in_units(evidence, rows.table.info))


def _about_table(info: Mapping[str, Any], coordinates: Coordinates | None) -> dict[str, Any]:
    """Return the parts of a table's ``info`` to store in a map."""
    names = feature_names(info)
    if names is not None and coordinates is not None and len(names) != coordinates.n_raw:
        names = None  # the coordinates have the names
    described = {name: dict(info.get(name) or {}) for name in ("encoder", "signals")}
    return described | {"feature_names": names, "source_column": str(info.get("source_column") or "")}


def _people_digests(rows: FitRows, calibration: Pairs | None) -> tuple[str, ...]:
    """Return hashes of the participants in the fit, including those of pairs from elsewhere."""
    people = set() if rows.people is None else {*rows.people.tolist()}
    if isinstance(calibration, LabelledRows) and calibration.participant is not None:
        people |= {*calibration.participant.tolist()}
    return tuple(sorted(map(person_digest, people)))


class FitRows:
    """The rows of a table in memory or in a file, by role; checked over the complete table."""

    def __init__(self, table: Any, everyone: bool = False) -> None:
        self.table: Table | TableFile = table if isinstance(table, (Table, TableFile)) else open_table(table)
        self.name = "The table" if isinstance(self.table, Table) else str(self.table.path)
        require_columns(["source"], self.table.columns, self.name)
        columns = self.table.columns if isinstance(self.table, Table) else self.table.survey()
        if not len(columns["source"]):
            raise TableError(f"{self.name} has no rows to fit on.")
        self.everyone = everyone
        fit = (columns.get("role", np.array("FIT")) == "FIT") | everyone
        if not fit.any():
            roles = ", ".join(np.unique(columns["role"]))
            raise TableError(f"{self.name} has no FIT rows; its roles are {roles}.")
        chosen = np.broadcast_to(fit, columns["source"].shape)
        self.sources = np.unique(columns["source"][chosen])
        self.people = np.unique(columns["participant"][chosen]) if "participant" in columns else None

    @property
    def tokens(self) -> bool:
        """Whether rows are sequences of tokens."""
        return len(self.table.X.shape[1:] if isinstance(self.table, Table) else self.table.shape) == 2

    @property
    def parts(self) -> Sequence[Table | TableFile]:
        """Parts that can be reduced to moments independently."""
        return [self.table] if isinstance(self.table, Table) else self.table.parts

    @cached_property
    def columns(self) -> Columns:
        """All columns of all rows."""
        names = [name for name in COLUMNS if name in self.table.columns]
        read = self.table.columns if isinstance(self.table, Table) else self.table.read_columns(*names)
        return check_columns(read, len(read["source"]))

    def positions(self, role: str) -> NDArray[np.intp]:
        """Return the positions of the rows of a role; all rows without roles or with ``everyone``."""
        if "role" in self.columns and not self.everyone:
            return np.flatnonzero(self.columns["role"] == role)
        return np.arange(len(self.columns["source"]) if role == "FIT" else 0)

    def read(self, rows: NDArray[np.intp]) -> Table:
        """Return the selected rows as a table in memory."""
        return self.table.take(rows) if isinstance(self.table, Table) else self.table.read(rows)


def read_pairs(pairs: Any, rows: FitRows, coordinates: Coordinates | None) -> tuple[Pairs, Digests]:
    """Return pairs from another table, with the source labels of ``rows``, and hashes of the paired rows.

    The pairs are in the coordinates of the fit; the hashes are those of the original rows.
    """
    if isinstance(pairs, (tuple, list)):
        seen = merge_samples(*map(row_digests, pairs))
        if coordinates is not None:
            pairs = tuple(coordinates.transform(side) for side in pairs)
        return tuple(pairs), seen
    file = pairs if isinstance(pairs, (Table, TableFile)) else open_table(pairs)
    table = file if isinstance(file, Table) else file.read()
    require_columns(["source", "pair_id"], table.columns, "The table of pairs")
    if table.X.ndim == 3 and not rows.tokens:
        raise TableError("The table of pairs holds tokens, and the table to fit vectors.")
    if table.role is not None and not rows.everyone:
        table = table.rows("FIT")  # other participants are held out
    require_encoder(table.info, rows.table.info, "The table of pairs", "the table")
    require_features(table.info, rows.table.info, "The table of pairs", "the table")
    table = table.take(is_paired(np.asarray(table.pair_id)))
    seen = row_digests(table.X)
    table = in_coordinates(coordinates, table)
    sources = rows.sources
    names, pair_sources = source_names(sources), source_names(table.sources) if len(table) else ()
    if not set(pair_sources) <= set(names):
        raise TableError(
            f"The table of pairs has sources {', '.join(pair_sources)}; the table to fit has "
            f"{', '.join(names)}. Use the same source names in both."
        )
    if len(np.unique(np.asarray(table.pair_id))) == len(table):
        raise TableError(
            "The table of pairs has no events recorded by two sources; check pair_id and source."
        )
    labels = sources[[names.index(name) for name in source_names(table.source)]]
    return LabelledRows(table.X, labels, np.asarray(table.pair_id), table.participant), seen


def summarise(
    model: Any,
    part: Table | TableFile,
    coordinates: Coordinates | None,
    own_pairs: bool = True,
    everyone: bool = False,
) -> tuple[Any, Digests] | None:
    """Return a clone of the model fed with the FIT rows of one part, and hashes of these rows, or None."""
    fresh, seen = clone(model), []
    for batch in [part] if isinstance(part, Table) else batches(part):
        fit = batch if batch.role is None or everyone else batch.rows("FIT")
        if len(fit):
            rows = in_coordinates(coordinates, fit)
            ids = rows.pair_id if own_pairs else None
            fresh.partial_fit(rows.X, rows.label, source=rows.source, pair_id=ids, groups=rows.participant)
            seen.append(row_digests(fit.X))
    return (fresh, merge_samples(*seen)) if seen else None


def merged(a: tuple[Any, Digests] | None, b: tuple[Any, Digests] | None) -> tuple[Any, Digests] | None:
    """Return the merged data of two partially fitted models, without changing them."""
    if a is None or b is None:
        return b if a is None else a
    return copy.copy(a[0]).merge(b[0]), merge_samples(a[1], b[1])


def _fit_rows(
    model: Any,
    rows: FitRows,
    calibration: Pairs | None,
    coordinates: Coordinates | None,
    max_rows: int,
    random_state: int,
) -> tuple[Any, Digests, list[str]]:
    """Return the fitted model, hashes of its fitting rows, and notes about them."""
    available, held = rows.positions("FIT"), rows.positions("VAL")
    chosen, held_out = available, held
    if isinstance(rows.table, TableFile):
        chosen = _draw_fit_rows(rows, available, calibration is None, max_rows, random_state)
        held_out = held[draw_rows(rows.columns["source"][held], max_rows, random_state)]
    raw = rows.read(chosen)
    fit = in_coordinates(coordinates, raw)
    evidence: dict[str, Any] = {"source": fit.source, "groups": fit.participant}
    if calibration is None:
        evidence["pair_id"] = fit.pair_id
    else:
        evidence["pairs"], evidence["pair_groups"] = calibration, None
        if isinstance(calibration, LabelledRows):  # convert to two aligned arrays, first source first
            first, second = calibration.matched()
            evidence["pairs"] = calibration.X[first], calibration.X[second]
            people = calibration.participant
            evidence["pair_groups"] = None if people is None else people[first]
    if len(held_out):
        val = in_coordinates(coordinates, rows.read(held_out))
        evidence |= {"X_val": val.X, "source_val": val.source}
    model = model.fit(fit.X, fit.label, **evidence)
    notes, how = [], f", drawn with seed {random_state}"
    if len(chosen) < len(available):
        notes += [f"fitted on {len(chosen)} of {len(available)} FIT rows{how}"]
    if len(held_out) < len(held):
        notes += [f"held-out rows are {len(held_out)} of {len(held)} VAL rows{how}"]
    return model, merge_samples(row_digests(raw.X)), notes


def _draw_fit_rows(
    rows: FitRows, available: NDArray[np.intp], own_pairs: bool, max_rows: int, random_state: int
) -> NDArray[np.intp]:
    # Keep all paired rows: they are few, and a row without its partner is not a pair.
    paired = np.zeros(len(available), bool)
    if own_pairs and "pair_id" in rows.columns:
        paired = is_paired(rows.columns["pair_id"])[available]
    loose = np.flatnonzero(~paired)
    room = max(max_rows - int(paired.sum()), 0)
    chosen = draw_rows(rows.columns["source"][available][loose], room, random_state)
    return np.asarray(available[np.sort(np.concatenate([np.flatnonzero(paired), loose[chosen]]))])


def draw_rows(source: Any, max_rows: int, random_state: int) -> NDArray[np.intp]:
    """Return at most ``max_rows`` sorted positions, balanced over sources.

    Examples
    --------
    >>> import numpy as np
    >>> source = np.array(["a"] * 10 + ["b"] * 2)
    >>> np.bincount(source[draw_rows(source, 6, 0)] == "b").tolist()
    [4, 2]
    """
    n = len(source)
    if n <= max_rows:
        return np.arange(n)
    order = np.random.default_rng(random_state).permutation(n)
    # Take rows from the sources in turn, in random order within each source.
    codes = np.unique(source, return_inverse=True)[1][order]
    place = np.empty(n, np.int64)
    for code in range(codes.max() + 1):
        place[codes == code] = np.arange((codes == code).sum())
    return np.sort(order[np.argsort(place, kind="stable")[:max_rows]])
