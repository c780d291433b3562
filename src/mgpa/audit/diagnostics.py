"""Before a correction: what pairs show, and how source, task and participants are associated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats.contingency import crosstab

from .._common.progress import progress
from ..closed_form import ClosedFormMGPA
from ..errors import MissingEvidence
from ..estimators.streamed import LabelledPairs
from ..front import MGPA
from ..gate import held_out_coverage
from ..pairs import is_paired, source_names
from ..spread import SpreadEvidence
from ..tables import fit_table
from ..tables.columns import require_columns
from ..tables.fitting import FitRows, draw_rows, read_pairs
from ..tokens import gate_of, token_rows
from ..within import Effect

Floats = NDArray[np.float64]

#: Cramér's V below which source and task are said to show no association.
UNASSOCIATED = 0.1
MAX_ROWS = 20_000  # paired rows are few; should they be many, these will do
FOLDS, SHUFFLES = 5, 20  # of pairs; exchanges of views between events
# Mismatched pairs this close to matched ones say that ids join no views of one event.
NO_CLOSER = 0.95


@dataclass(frozen=True)
class PairCheck:
    """What pairs show, and whether rows differ by it.

    Attributes
    ----------
    sources : dict of str to int
        Pairs between each two sources.
    n_people : int or None
        Participants among the pairs; None if they are not known.
    rank : int
        Directions that held-out pairs support; 0 if none.
    coverage : (k,) array
        Share of held-out contrasts' directions inside gates of rank 1, 2, …
    shuffled : (n, k) array
        Coverage of permuted pairs, whose views were exchanged between events, n times.
    closeness : float
        Spread of the contrasts about their mean, relative to that of mismatched pairs; 1: the ids say
        nothing about which views belong together.
    size : float
        Length of the mean contrast, relative to the typical distance of two rows of a source.
    effect : Effect or None
        How much of the mean contrast the rows of different sources differ by; None if the pairs show none.
    inside : float
        Share of the difference between the sources' means that lies inside the gate.
    spread : SpreadEvidence or None
        What pairs show beyond a shift: gain, rotation, noise.
    """

    sources: dict[str, int]
    n_people: int | None
    rank: int
    coverage: Floats
    shuffled: Floats
    closeness: float
    size: float
    effect: Effect | None
    inside: float
    spread: SpreadEvidence | None = None

    @property
    def n_pairs(self) -> int:
        """How many pairs there are."""
        return sum(self.sources.values())

    @property
    def shows_something(self) -> bool:
        """Whether held-out pairs support what the others show."""
        return self.effect is not None or (self.spread is not None and self.spread.is_shown)

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        if self.effect is None and self.shows_something:
            return f"The pairs show no common shift, but {self.spread}. MGPA() corrects that."
        if self.effect is None:
            return (
                f"These {self.n_pairs} pairs show nothing: what some of them differ by is not found in the "
                "others. Check that ids join views of the same event, and add pairs."
            )
        text = f"The pairs show a difference ({self.rank} direction{'s' * (self.rank > 1)})"
        if not self.effect.exists:
            return (
                f"{text}, but the rows do not clearly differ by it ({self.effect}): there is nothing to "
                "remove, or rows are too few to tell. A fit leaves them as they are."
            )
        text += f", and the rows differ by it: {self.effect}."
        if self.closeness > NO_CLOSER:
            text += (
                " But views of one event are as far apart as views of different events: their mean can be "
                "trusted, the ids cannot."
            )
        return text

    @property
    def facts(self) -> dict[str, str]:
        """What the verdict rests on, by short names."""
        k = min(max(self.rank, 1), len(self.coverage)) - 1
        people = "" if self.n_people is None else f" of {self.n_people} participants"
        between = ", ".join(f"{names} {count}" for names, count in self.sources.items())
        return {
            "pairs": f"{self.n_pairs}{people} ({between})",
            "held out": f"{self.coverage[k]:.1%} of other pairs' directions inside rank {k + 1}; pairs with "
            f"views exchanged {np.median(self.shuffled[:, k]):.1%}",
            "matched": f"{self.closeness:.2f} of the spread that mismatched pairs have",
            "size": f"the mean contrast is {self.size:.2f} of the distance between two rows of a source",
            "rows": f"{self.inside:.1%} of the difference between the sources' means lies inside the gate",
            "spread": str(self.spread),
        }

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(f"  {name:<10}{text}" for name, text in self.facts.items())])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and text."""
        facts = asdict(self) | {"coverage": self.coverage.tolist(), "shuffled": self.shuffled.tolist()}
        return {"verdict": self.verdict, "shows_something": self.shows_something, **facts}


def check_pairs(table: Any, pairs: Any = None, *, random_state: int = 0, verbose: bool = False) -> PairCheck:
    """Say whether pairs show anything, and whether it is what differs in the rows.

    Parameters
    ----------
    table : Table, TableFile or path
        Rows with their sources; of a table with roles, the FIT rows. Tokens count by their mean.
    pairs : Table, TableFile, path or None
        Pairs that are not rows of the table; None: the table's own (``pair_id``).
    random_state : int
        Seed of the permutations.
    verbose : bool
        Show how far it is.

    Examples
    --------
    >>> from mgpa.tables import simulate_table
    >>> check = check_pairs(simulate_table(40))
    >>> check.rank, check.shows_something, check.closeness < 0.5
    (1, True, True)
    """
    rows = FitRows(table)
    pair_rows = rows if pairs is None else FitRows(pairs)
    require_columns(["pair_id"], pair_rows.columns, pair_rows.name)
    ids, chosen = pair_rows.columns["pair_id"], pair_rows.positions("FIT")
    chosen = chosen[is_paired(ids[chosen])]
    chosen = chosen[np.argsort(ids[chosen], kind="stable")][:MAX_ROWS]  # whole pairs, but for the last
    paired, _ = read_pairs(pair_rows.read(np.sort(chosen)), rows, None)
    assert isinstance(paired, LabelledPairs)  # as it is of a table
    first, second = paired.matched()
    if len(first) < FOLDS:
        raise MissingEvidence(f"{len(first)} pairs are too few to hold some out; {FOLDS} are needed.")
    people = None if paired.participant is None else paired.participant[first]
    chosen = rows.positions("FIT")
    some = rows.read(np.sort(chosen[draw_rows(rows.columns["source"][chosen], MAX_ROWS, 0)]))
    X, source = _vectors(some.X), np.asarray(some.source)
    try:
        model = fit_table(ClosedFormMGPA(do_no_harm=False), table, pairs=pairs)
        row_model = getattr(model, "estimator_", model)
        effect, gate, scale = row_model.effect_, gate_of(model), model.to_map().scale
    except MissingEvidence:
        effect, gate = None, None
        scale = np.where((spread := X.std(axis=0)) > 0, spread, 1.0)
    both = fit_table(MGPA(), table, pairs=pairs)
    A, B = (_vectors(paired.X)[side] / scale for side in (first, second))
    names = (source_names(paired.source[side]) for side in (first, second))
    kind = np.array([f"{a}/{b}" for a, b in zip(*names, strict=True)])
    # Views are exchanged between a participant's events; without participants, and between those that have
    # one event each, between any two.
    blocks = kind
    if people is not None:
        by_person = np.char.add(np.char.add(kind, "/"), people.astype(str))
        _, block, size = np.unique(by_person, return_inverse=True, return_counts=True)
        blocks = np.where(size[block] > 1, by_person, kind)
    rng = np.random.default_rng(random_state)
    contrasts = [B - A, *(B[_exchanged(blocks, rng)] - A for _ in range(SHUFFLES))]
    by = people if people is not None and len(np.unique(people)) >= FOLDS else None
    curves = [
        held_out_coverage(contrasts[i], groups=by, n_splits=FOLDS)
        for i in progress(range(len(contrasts)), "checking pairs", verbose)
    ]
    k = min(map(len, curves))
    by_source = [X[source == label] / scale for label in np.unique(source)]
    gaps = np.stack([part.mean(axis=0) for part in by_source])
    gaps -= gaps.mean(axis=0)
    # Root mean square distance of two rows of a source, and mean length of the kinds' mean contrasts.
    distance = np.sqrt(2.0 * np.mean([part.var(axis=0).sum() for part in by_source]))
    length = np.mean([np.linalg.norm((B - A)[kind == name].mean(axis=0)) for name in np.unique(kind)])
    matched, *exchanged = (_spread(c, kind) for c in contrasts)
    return PairCheck(
        sources={str(name): int(np.sum(kind == name)) for name in np.unique(kind)},
        n_people=None if people is None else len(np.unique(people)),
        rank=0 if gate is None else gate.rank_,
        coverage=curves[0][:k],
        shuffled=np.stack([curve[:k] for curve in curves[1:]]),
        closeness=matched / float(np.mean(exchanged)),
        size=float(length / distance),
        effect=effect,
        inside=0.0 if gate is None else float(np.sum((gaps @ gate.basis_) ** 2) / np.sum(gaps**2)),
        spread=getattr(both, "estimator_", both).spread_,
    )


def _vectors(X: Any) -> Floats:
    """Return rows in double precision, tokens by their mean."""
    return np.asarray(token_rows(X, "mean") if X.ndim == 3 else X, dtype=np.float64)


def _exchanged(blocks: NDArray[Any], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return positions in which members of a block have changed places, at random."""
    places = np.arange(len(blocks))
    for block in np.unique(blocks):
        members = np.flatnonzero(blocks == block)
        places[members] = rng.permutation(members)
    return places


def _spread(contrasts: Floats, kind: NDArray[Any]) -> float:
    """Return the root mean square length of contrasts about the mean of their kind."""
    centred = contrasts.copy()
    for name in np.unique(kind):
        centred[kind == name] -= contrasts[kind == name].mean(axis=0)
    return float(np.sqrt(np.mean(np.sum(centred**2, axis=1))))


@dataclass(frozen=True)
class Confounding:
    """How far the source goes together with the task and with the people in the fitting rows.

    Attributes
    ----------
    source_label : float or None
        Cramér's V of source and task, corrected for chance: 0 independent, 1 one determines the other.
    nested_participants : int
        Participants seen by one source only: their differences cannot be told from the device's.
    n_participants : int
        All of them.
    counts : dict
        Rows of each source (keys) and label (inner keys).
    """

    source_label: float | None
    nested_participants: int
    n_participants: int
    counts: dict[str, dict[str, int]]

    def sentences(self) -> list[str]:
        """Return what follows, in words."""
        lines, v = [], self.source_label
        if v is not None:
            strength = "no" if v < UNASSOCIATED else "some" if v < 0.4 else "strong"
            text = f"Source and task show {strength} association in the fitting rows (Cramér's V {v:.2f})"
            if v >= UNASSOCIATED:
                text += ": methods that erase whatever predicts the source remove task with it"
            lines.append(f"{text}.")
        if self.nested_participants:
            lines.append(
                f"{self.nested_participants} of {self.n_participants} fitting participants were seen by one "
                "source only: without pairs, who they are cannot be told from how they were measured."
            )
        return lines


def confounding(source: Any, participant: Any, label: Any = None) -> Confounding:
    """Return how source, task and people go together.

    Examples
    --------
    >>> confounding(["a", "a", "b", "b"], ["p", "q", "p", "q"], [0, 1, 0, 1]).source_label
    0.0
    """
    source, participant = np.asarray(source).astype(str), np.asarray(participant).astype(str)
    counts: dict[str, dict[str, int]] = {}
    v = None
    if label is not None:
        (sources, labels), table = crosstab(source, np.asarray(label).astype(str))
        counts = {name: dict(zip(labels.tolist(), line.tolist(), strict=True))
                  for name, line in zip(sources.tolist(), table, strict=True)}  # fmt: skip
        v = cramers_v(table.astype(np.float64))
    people = crosstab(source, participant).count
    nested = int(((people > 0).sum(axis=0) == 1).sum())
    return Confounding(v, nested, people.shape[1], counts)


def cramers_v(table: Floats) -> float:
    """Return Cramér's V of a contingency table, with what chance alone gives taken off (Bergsma 2013)."""
    n = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    if min(table.shape) == 1 or n < 2:
        return 0.0
    df = np.array(table.shape) - 1
    chance = df.prod() / (n - 1)
    excess = (np.square(table - expected) / expected).sum() / n - chance
    largest = (df - df**2 / (n - 1)).min()
    return float(np.sqrt(np.clip(excess / largest, 0.0, 1.0))) if largest > 0 else 0.0
