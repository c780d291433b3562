"""One split of a study: the role of each participant, the rows used, their coordinates, and the pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..._common.parameters import Constraint
from ...audit.association import choose_directions
from ...coordinates import Coordinates, fit_coordinates
from ...errors import StudyError
from ...gate import FixedGate, MeasurementGate
from ...tables.columns import assign_roles, rotated, with_roles
from ...tables.rows import in_coordinates
from ...tables.table import Table
from .config import CoordinatesSection, EndpointsSection, GateSection, RolesSection, Study
from .recordings import Recordings

Pairs = tuple[Any, Any]
#: Number of each role in the seed of :func:`associate`.
ROLE_SEEDS = {"FIT": 1, "VAL": 2, "HEAD": 3, "EVAL": 4}


@dataclass(frozen=True)
class Split:
    """The rows on which methods are fitted and scored, for one assignment of roles.

    ``table`` has roles and is in the study's ``coordinates``. ``contrasts`` are the calibration pairs of FIT
    participants (None: the pairs among the rows). ``endpoints`` are the evaluated views of the same events if
    they differ from ``contrasts``. ``gate`` is the measurement gate if it is made of token contrasts.
    """

    table: Table
    coordinates: Coordinates
    contrasts: Pairs | None = None
    endpoints: Pairs | None = None
    gate: FixedGate | None = None


def split_names(study: Study) -> dict[str, int | None]:
    """Return the rotation of each split of a study, by split name."""
    if study.roles.rotations:
        return {f"rotation {r}": r for r in study.roles.rotations}
    return {"all": None}


def make_split(study: Study, recordings: Recordings, rotation: int | None = None) -> Split:
    """Return one split: rows in the study's coordinates, with roles and pairs."""
    raw = recordings.table(study.data.named_tasks[0])
    roles = roles_of(raw, study.roles, rotation)
    raw = with_roles(raw, roles)
    evaluated, plan = raw, study.endpoints
    if plan.gamma != 1.0:
        from ...eeg.views import scale_table

        evaluated = scale_table(raw, plan.gamma)
    seen = associate(evaluated, roles, plan, 0 if rotation is None else rotation)
    observed = evaluated.take(seen | np.isin(evaluated.role, ("HEAD", "EVAL")))
    coordinates = coordinates_of(observed.rows("FIT"), study.coordinates)
    contrasts = endpoints = None
    if study.views.transport is not None:
        contrasts = pairs_of(in_coordinates(coordinates, recordings.virtual_pairs(roles)))
    elif plan.gamma != 1.0 or plan.association is not None:
        contrasts = pairs_of(in_coordinates(coordinates, raw.rows("FIT")))
        endpoints = pairs_of(in_coordinates(coordinates, evaluated.rows("FIT")))
    if plan.association is not None:
        observed = alone(observed)
    table = in_coordinates(coordinates, observed)
    if study.gate.pairs is not None:
        contrasts = some_pairs(study.gate, pairs_of(table.rows("FIT")) if contrasts is None else contrasts)
    gate = _token_gate(study, contrasts, table) if study.gate.tokens else None
    return Split(table, coordinates, contrasts, endpoints, gate)


def coordinates_of(fit: Table, plan: CoordinatesSection) -> Coordinates:
    """Return the coordinates of a plan, fitted on all given rows or on those of the plan's source."""
    if plan.source is not None:
        if plan.source not in fit.sources:
            raise StudyError(
                f"coordinates.source is {plan.source!r}; the sources are {', '.join(map(str, fit.sources))}."
            )
        fit = fit.take(fit.source == plan.source)
    return fit_coordinates(fit.X, n_components=plan.components, floor=plan.floor, dtype=plan.dtype)


def pairs_of(table: Table) -> Pairs:
    """Return both views of each event of a table, the view of the first source first."""
    views = table.paired_views()
    if views is None:
        raise StudyError("The FIT rows have no events with two views; the gate needs such pairs.")
    return table.X[views[0]], table.X[views[1]]


def some_pairs(plan: GateSection, pairs: Pairs) -> Pairs:
    """Return a plan's random selection of pairs; with one seed, smaller selections are nested in larger."""
    order = np.random.default_rng(plan.pairs_seed).permutation(len(pairs[0]))
    chosen = np.sort(order[: plan.pairs])
    return pairs[0][chosen], pairs[1][chosen]


def alone(table: Table) -> Table:
    """Return the table with FIT and VAL rows unpaired."""
    ids = np.asarray(table.columns["pair_id"])
    held = np.isin(table.role, ("HEAD", "EVAL"))
    return replace(table, pair_id=np.where(held, ids, -1 if ids.dtype.kind in "iu" else ""))


class TokenGate(FixedGate):
    """A gate fitted to the contrasts of all tokens, with the energy share of its first directions."""

    _parameter_constraints: ClassVar[dict[str, Constraint]] = FixedGate._parameter_constraints | {
        "energy": Constraint("an array (d,)", lambda value: np.ndim(value) == 1)
    }

    def __init__(self, basis: Any, energy: Any) -> None:
        super().__init__(basis)
        self.energy = energy

    @property
    def retained_energy(self) -> float:
        """Share of the token contrasts' energy inside the gate."""
        return float(self.cumulative_energy_[self.rank_ - 1]) if self.rank_ else 0.0

    def fit(self, X: Any, y: Any = None) -> Self:
        """Set the given basis and its energy, whatever the data."""
        super().fit(X)
        return self._set_basis(self.basis_, np.asarray(self.energy), self.mean_contrast_)


def _token_gate(study: Study, contrasts: Pairs | None, table: Table) -> TokenGate:
    """Return the gate of all tokens' contrasts: directions of single tokens may shift the mean."""
    if table.X.ndim != 3:
        raise StudyError("gate.tokens is for embeddings of tokens; these are vectors.")
    first, second = contrasts if contrasts is not None else pairs_of(table.rows("FIT"))
    moved = (second.astype(np.float64) - first).reshape(-1, table.X.shape[-1])
    fitted = planned_gate(study).fit(moved)
    return TokenGate(fitted.basis_, fitted.cumulative_energy_)


def planned_gate(study: Study) -> MeasurementGate:
    """Return the study's unfitted measurement gate."""
    plan = study.gate
    return MeasurementGate(plan.rank, norm_quantile=plan.norm_quantile, max_contrasts=plan.max_contrasts)


def roles_of(table: Table, plan: RolesSection, rotation: int | None) -> dict[str, str]:
    """Return the role of each participant, from the plan's lists or folds, or else from the table.

    Fold ``rotation`` is EVAL, the next fold HEAD, the one after that VAL, and all other folds FIT.
    """
    people = np.unique(table.participant).tolist()
    if plan.people:
        roles: dict[str, str] = {person: role for role, listed in plan.people.items() for person in listed}
        twice = [p for role, listed in plan.people.items() for p in listed if roles[p] != role]
        if twice:
            raise StudyError(f"roles.people gives {twice[0]} two roles; each participant has one.")
        missing = sorted(set(roles) - set(people))
        if missing:
            raise StudyError(f"roles.people names participants without rows: {', '.join(missing)}.")
        return roles
    if table.role is not None and rotation is None:
        return dict(zip(table.participant.tolist(), table.role.tolist(), strict=True))
    strata = _strata(table, plan.stratify)
    if rotation is not None:
        return rotated({person: strata[person] for person in people}, rotation, plan.folds, plan.seed)
    stratify = [strata[person] for person in people] if plan.stratify else None
    assigned = assign_roles(np.array(people), stratify=stratify, random_state=plan.seed)
    return dict(zip(people, assigned.tolist(), strict=True))


def shortcut(table: Table) -> tuple[Any, Any] | None:
    """Return the associated source and label (the second of each), or None without a shortcut to measure."""
    head, evaluation = table.rows("HEAD"), table.rows("EVAL")
    if head.label is None or len(head.sources) != 2 or len(np.unique(head.label)) != 2:
        return None
    stated = head.sources[1], np.unique(head.label)[1]
    return stated if choose_directions(stated, table.rows("FIT"), head, evaluation)[0] else None


def _strata(table: Table, columns: Sequence[str]) -> dict[str, str]:
    """Return the values of the given columns for each participant, joined as text."""
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise StudyError(f"roles.stratify names {missing[0]!r}; the columns are {', '.join(table.columns)}.")
    strata: dict[str, str] = {}
    values = (table.columns[name].tolist() for name in columns)
    for person, *entries in zip(table.participant.tolist(), *values, strict=True):
        stratum = "|".join(map(str, entries))
        if strata.setdefault(person, stratum) != stratum:
            raise StudyError(f"roles.stratify: {', '.join(columns)} of {person} varies; expected one value.")
    return strata


def associate(
    table: Table, roles: Mapping[str, str], plan: EndpointsSection, rotation: int
) -> NDArray[np.bool_]:
    """Return one view (row) of each event, chosen so that source and label are associated.

    In each cell (a participant and its values of the ``cells`` columns), the second view is taken for the
    given share of events with the second label, and for one minus this share of events with the first label.
    In HEAD and EVAL both shares are one half. Each role has its own generator, seeded with ``rotation``, and
    cells are drawn in ascending order: the result does not depend on the order of rows.
    """
    if plan.association is None:
        return np.ones(len(table), bool)
    views = table.require("label").paired_views()
    if views is None or 2 * len(views[0]) != len(table):
        raise StudyError("endpoints.association needs both views of every event, of two sources.")
    label = table.columns["label"][views[0]]
    labels = np.unique(label)
    if len(labels) != 2:
        raise StudyError(f"endpoints.association needs two labels; there are {len(labels)}.")
    columns = [table.participant[views[0]], *(table.columns[name][views[0]] for name in plan.cells)]
    order = np.lexsort([table.columns["pair_id"][views[0]], *reversed(columns)])
    names = list(zip(*(column.tolist() for column in (*columns, label)), strict=True))
    cells: dict[Any, list[int]] = {}
    for event in order.tolist():
        cells.setdefault(names[event], []).append(event)
    base = plan.seed + 100_000 * rotation + 1000 * 4
    rng = {role: np.random.default_rng(base + part) for role, part in ROLE_SEEDS.items()}
    seen = np.zeros(len(table), bool)
    for (person, *_, value), events in cells.items():
        role = roles[person]
        share = plan.association if role in ("FIT", "VAL") else 0.5
        share = share if value == labels[1] else 1 - share
        order_drawn = rng[role].permutation(events)
        n = round(len(events) * share)
        seen[views[1][order_drawn[:n]]] = True
        seen[views[0][order_drawn[n:]]] = True
    return seen
