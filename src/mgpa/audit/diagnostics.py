"""Diagnostics before a correction: evidence in pairs, and the association of source and label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats.contingency import crosstab

from .._common.markup import facts_html
from ..effect import Effect
from ..errors import MissingEvidence, first_few
from ..estimators.mgpa import MGPA
from ..estimators.tokens import token_rows
from ..gate import held_out_coverage
from ..labels import is_paired, source_names
from ..pair_checks import PairExamination, doubt, examine_pairs
from ..reading.spread import FEWEST_UNITS, SpreadEvidence
from ..statistics import LabelledRows
from ..tables import fit_table
from ..tables.columns import in_units, require_columns
from ..tables.fitting import FitRows, read_pairs
from ..tables.rows import vectors

if TYPE_CHECKING:
    from .hidden_pairs import HiddenPair

Floats = NDArray[np.float64]

#: Cramér's V below which source and task are said to show no association.
UNASSOCIATED = 0.1
MAX_ROWS = 20_000  # maximum number of paired rows to examine
FOLDS, SHUFFLES = 5, 20  # number of folds of pairs, and of permutations of views between events


@dataclass(frozen=True)
class PairCheck:
    """The evidence in pairs, and whether rows show the same effect.

    Attributes
    ----------
    sources : dict of str to int
        Number of pairs for every two sources.
    n_people : int or None
        Number of participants with pairs; None if unknown.
    rank : int
        Number of directions that held-out pairs support.
    coverage : (k,) array
        Share of the directional energy of held-out contrasts inside gates of rank 1, 2, …
    shuffled : (n, k) array
        Coverage of permuted pairs (views exchanged between events), n times.
    closeness : float
        Spread of the contrasts about their mean, relative to mismatched pairs. 1 means that the ids do not
        show which views belong together.
    n_features, spread_directions : int
        Number of features, and number of directions in which MGPA() corrects the spread: the span of the
        contrasts, or 0.
    effect : Effect or None
        The share of the mean contrast in the difference between rows of the sources; None if pairs show no
        shift.
    spread : SpreadEvidence or None
        The evidence of pairs for more than a shift: gain, rotation, noise.
    units : str
        The table's word for participants.
    examined : PairExamination or None
        The test of whether pairs join views of one event, with wrong pairs and copies.
    hidden : tuple of HiddenPair
        Participants of different sources who may be one person under two names; never used as pairs.
    own_energy : float or None
        Share of the directional energy of the pairs themselves inside the gate, which fits print.
    outliers : str
        A sentence on outlying pairs, which fits leave out.
    """

    sources: dict[str, int]
    n_people: int | None
    rank: int
    coverage: Floats
    shuffled: Floats
    closeness: float
    n_features: int
    spread_directions: int
    effect: Effect | None
    spread: SpreadEvidence | None = None
    units: str = "participants"
    examined: PairExamination | None = None
    hidden: tuple[HiddenPair, ...] = ()
    own_energy: float | None = None
    outliers: str = ""

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return sum(self.sources.values())

    @property
    def shows_something(self) -> bool:
        """Whether held-out pairs confirm the effect."""
        return self.effect is not None or (self.spread is not None and self.spread.is_shown)

    @property
    def verdict(self) -> str:
        """The result as a sentence; doubts about the pairs come first."""
        return " ".join(filter(None, (self.doubt, self._shown)))

    @property
    def doubt(self) -> str:
        """Doubts about the pairs, or wrong pairs; empty without doubts."""
        return "" if self.examined is None else doubt(self.examined)

    @property
    def _shown(self) -> str:
        """The evidence of correct pairs, and of rows."""
        if self.effect is None and self.spread is not None and self.spread.is_shown:
            return f"The pairs show no common shift, but {self.spread}."
        if self.effect is None:
            return (
                f"These {self.n_pairs} pairs show no common difference. Check that ids join views of the "
                "same event, or add pairs."
            )
        text = f"The pairs show a shift (held-out pairs support a gate of rank {self.rank})"
        if self.effect.lies_with:
            return f"{text}. {self.effect.doubt} A fit leaves the rows unchanged."
        if not self.effect.exists:
            return (
                f"{text}, but the rows do not clearly show it ({self.effect}): there is nothing to "
                "remove, or too few rows to tell. A fit leaves the rows unchanged."
            )
        few = ""
        if self.n_people is not None and self.n_people < FEWEST_UNITS:
            who = self.units.removesuffix("s") if self.n_people == 1 else self.units
            few = (
                f" The pairs come from only {self.n_people} {who}: effects of sessions cannot be separated "
                "from the device's shift."
            )
        return f"{text}, and {self.effect}.{few}"

    @property
    def facts(self) -> dict[str, str]:
        """The numbers behind the verdict, by short names."""
        k, of = min(max(self.rank, 1), len(self.coverage)) - 1, f"of {self.n_features} directions"
        shifts = self.effect is not None and self.effect.exists
        acts = f"the shift is corrected in the gate, {self.rank} {of}" if shifts else "no shift is corrected"
        if self.spread_directions:
            acts += f"; a correction of spread, in {self.spread_directions} {of}"
        who = self.units.removesuffix("s") if self.n_people == 1 else self.units
        people = "" if self.n_people is None else f" of {self.n_people} {who}"
        between = ", ".join(f"{names} {count}" for names, count in self.sources.items())
        own = f" (of the fit's own pairs: {self.own_energy:.1%})" if self.own_energy else ""
        left_out = f"; {self.outliers}" if self.outliers else ""
        return {
            "pairs": f"{self.n_pairs}{people} ({between}){left_out}",
            "held out": f"rank {k + 1} covers {self.coverage[k]:.1%} of the contrast energy of held-out pairs"
            f"{own}; of permuted pairs {np.median(self.shuffled[:, k]):.1%}",
            "matched": f"distance within pairs is {self.closeness:.2f} of that in mismatched pairs"
            + self._copies,
            "spread": str(self.spread) if self.spread else "not tested",
            "MGPA()": acts,
        } | self._candidates

    @property
    def _candidates(self) -> dict[str, str]:
        if not self.hidden:
            return {}
        some = first_few(list(map(str, self.hidden)), 4)
        return {"hidden": f"{some} look like one person under two names: not used; ask who recorded them"}

    @property
    def _copies(self) -> str:
        copies = 0 if self.examined is None else len(self.examined.repeats)
        return f"; {copies} pairs are copies of others and count once" if copies else ""

    def __repr__(self) -> str:
        return f"<PairCheck: {self.verdict}>"

    def _repr_html_(self) -> str:
        return facts_html(self.verdict, self.facts)

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(f"  {name:<10}{text}" for name, text in self.facts.items())])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and text."""
        facts = asdict(self) | {"coverage": self.coverage.tolist(), "shuffled": self.shuffled.tolist()}
        if self.examined is not None:
            facts["examined"] |= {"pairing": self.examined.pairing.value}
        return {"verdict": self.verdict, "shows_something": self.shows_something, **facts}


def check_pairs(table: Any, pairs: Any = None, *, hidden: bool = True) -> PairCheck:
    """Test whether pairs show a measurement effect, and whether the rows show it too.

    Parameters
    ----------
    table : Table, TableFile or path
        Rows with their sources. Of a table with roles, only FIT rows are used. Tokens are replaced by their
        mean.
    pairs : Table, TableFile, path or None
        Pairs that are not rows of the table; None uses the pairs of the table (``pair_id``).
    hidden : bool
        Whether to look for participants of different sources who may be one person under two names.

    Examples
    --------
    >>> from mgpa.tables import simulate_table
    >>> check = check_pairs(simulate_table(40))
    >>> check.rank, check.shows_something, check.closeness < 0.5
    (1, True, True)
    """
    rows = FitRows(table)
    pair_rows = rows if pairs is None else FitRows(pairs)
    if (n := len(_paired_rows(rows, pair_rows).matched()[0])) < FOLDS:
        raise MissingEvidence(f"{n} pairs are too few to hold some out; {FOLDS} are needed.")
    both = fit_table(MGPA(), table, pairs=pairs)
    m, model = both.to_map(), getattr(both, "estimator_", both)
    effect, spread, gate, shift_gate = model.effect_, model.spread_, model.gate_, model.shift_gate_
    del both, model  # frees the pairs, which are read again later, while fits need memory
    paired = _paired_rows(rows, pair_rows)
    first, second = paired.matched()
    people = None if paired.participant is None else paired.participant[first]
    names = (source_names(paired.source[side]) for side in (first, second))
    kind = np.array([f"{a}/{b}" for a, b in zip(*names, strict=True)])
    views = np.asarray(token_rows(paired.X, "mean") if paired.X.ndim == 3 else paired.X)
    A, B = (views[side].astype(np.float64) / m.scale for side in (first, second))
    coverage, shuffled, closeness = _held_out(A, B, people, kind)
    info = rows.table.info
    return PairCheck(
        sources={str(name): int(np.sum(kind == name)) for name in np.unique(kind)},
        n_people=None if people is None else len(np.unique(people)),
        rank=shift_gate.rank_,
        coverage=coverage,
        shuffled=shuffled,
        closeness=closeness,
        n_features=len(m.scale),
        spread_directions=0 if gate is shift_gate else gate.rank_,
        effect=effect and replace(effect, units=in_units(effect.units, info)),
        spread=spread and replace(spread, unit=in_units(spread.unit, info)),
        units=in_units("participants", info),
        examined=examine_pairs(A, B, people, kind),
        hidden=_hidden(rows, m) if hidden else (),
        own_energy=shift_gate.retained_energy,
        outliers=next((part for part in m.info.evidence.split("; ") if "are outliers" in part), ""),
    )


def _paired_rows(rows: FitRows, pair_rows: FitRows) -> LabelledRows:
    """Return the paired rows of a table, up to the maximum number."""
    require_columns(["pair_id"], pair_rows.table.columns, pair_rows.name)
    ids, chosen = pair_rows.columns["pair_id"], pair_rows.positions("FIT")
    chosen = chosen[is_paired(ids[chosen])]
    chosen = chosen[np.argsort(ids[chosen], kind="stable")][:MAX_ROWS]  # whole pairs, except the last
    paired, _ = read_pairs(pair_rows.read(np.sort(chosen)), rows, None)
    assert isinstance(paired, LabelledRows)  # always true for tables
    return paired


def _held_out(
    A: Floats, B: Floats, people: NDArray[Any] | None, kind: NDArray[Any]
) -> tuple[Floats, Floats, float]:
    """Return the coverage of held-out pairs, of permuted pairs, and the closeness of views.

    Views are permuted between events of one participant, or between all events if participants are unknown or
    have one event each.
    """
    blocks = kind
    if people is not None:
        by_person = np.char.add(np.char.add(kind, "/"), people.astype(str))
        _, block, size = np.unique(by_person, return_inverse=True, return_counts=True)
        blocks = np.where(size[block] > 1, by_person, kind)
    rng = np.random.default_rng(0)
    by = people if people is not None and len(np.unique(people)) >= FOLDS else None
    curves, spreads = [], []
    for shuffle in range(1 + SHUFFLES):  # one permutation at a time, to save memory
        contrasts = (B if shuffle == 0 else B[_exchanged(blocks, rng)]) - A
        curves.append(held_out_coverage(contrasts, groups=by, n_splits=FOLDS))
        spreads.append(_spread(contrasts, kind))
    k, (matched, *exchanged) = min(map(len, curves)), spreads
    return curves[0][:k], np.stack([curve[:k] for curve in curves[1:]]), matched / float(np.mean(exchanged))


def _hidden(rows: FitRows, m: Any) -> tuple[HiddenPair, ...]:
    """Return participants of different sources who may be one person, using a limited number of rows."""
    if rows.people is None:
        return ()
    from .hidden_pairs import find_hidden_pairs

    chosen = rows.positions("FIT")
    chosen = chosen[:: -(-len(chosen) // MAX_ROWS)]
    table = rows.read(chosen)
    return find_hidden_pairs(m.transform(vectors(table)), table.source, table.participant)


def _exchanged(blocks: NDArray[Any], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return positions that are randomly permuted within blocks."""
    places = np.arange(len(blocks))
    for block in np.unique(blocks):
        members = np.flatnonzero(blocks == block)
        places[members] = rng.permutation(members)
    return places


def _spread(contrasts: Floats, kind: NDArray[Any]) -> float:
    """Return the root mean square length of contrasts around the mean of their kind."""
    centred = contrasts.copy()
    for name in np.unique(kind):
        centred[kind == name] -= contrasts[kind == name].mean(axis=0)
    return float(np.sqrt(np.mean(np.sum(centred**2, axis=1))))


def count_rows(source: Any, label: Any) -> dict[str, dict[str, int]]:
    """Return the number of rows of each source (keys) and label (inner keys)."""
    (sources, labels), table = crosstab(np.asarray(source).astype(str), np.asarray(label).astype(str))
    return {
        name: dict(zip(labels.tolist(), line.tolist(), strict=True))
        for name, line in zip(sources.tolist(), table, strict=True)
    }


def cramers_v(counts: Mapping[str, Mapping[str, int]]) -> float:
    """Return the association of source and label: 0 is none, 1 means that one determines the other.

    This is Cramér's V, corrected for chance (Bergsma 2013).

    Examples
    --------
    >>> cramers_v({"dry": {"left": 10, "right": 0}, "wet": {"left": 0, "right": 10}})
    1.0
    """
    table = np.array([list(line.values()) for line in counts.values()], dtype=np.float64)
    n = table.sum()
    if min(table.shape) == 1 or n < 2:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    df = np.array(table.shape) - 1
    chance = df.prod() / (n - 1)
    excess = (np.square(table - expected) / expected).sum() / n - chance
    largest = (df - df**2 / (n - 1)).min()
    return float(np.sqrt(np.clip(excess / largest, 0.0, 1.0))) if largest > 0 else 0.0
