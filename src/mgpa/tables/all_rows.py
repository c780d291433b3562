"""All rows of a table that is larger than memory, as an iterative fit needs them.

Its critics are trained on a draw. What is a mean over rows is taken over all of them: standardisation and
anchored points from one pass over the table, and regressions of scores from one more a stage, in which every
row goes through the stages so far and leaves the sums of its scores with its original coordinates behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.arrays import cast, double
from ..anchor import ScoreMoments
from ..coordinates import Coordinates
from ..moments import Moments, Standardizer
from ..stages import Critics, Recipe, Stage, Start, all_scores, follow
from .files import Part, TableFile
from .rows import in_coordinates, vectors
from .scale import added, fit_batches, reduce_parts
from .table import Table

Array = Any  # numpy array or torch tensor


class FileRows:
    """The FIT rows of a table in a file; of tokens, their means or all of them together.

    Parameters
    ----------
    file : TableFile
        With a source column.
    client : dask.distributed.Client or None
        Where to work; None is here.
    coordinates : Coordinates or None
        Where the fit is made, if not in the file's features.
    token_layout : {"mean", "joint"}
        Which rows tokens become.
    """

    def __init__(
        self,
        file: TableFile,
        client: Any = None,
        coordinates: Coordinates | None = None,
        token_layout: str = "mean",
    ) -> None:
        self.file, self.client = file, client
        self.coordinates, self.token_layout = coordinates, token_layout

    @property
    def read(self) -> Callable[[Table], NDArray[Any]]:
        """What turns rows of the file into vectors of the fit; it can be sent to other machines."""
        return partial(fitted_vectors, self.coordinates, self.token_layout)

    @cached_property
    def summary(self) -> Moments:
        """Moments of the rows, in their own units: one pass."""
        jobs = [partial(summarise_part, self.read, part) for part in self.file.parts]
        total: Moments = reduce_parts(jobs, added, client=self.client)
        return total

    def standardizer(self, standardize: bool) -> Standardizer:
        """Return the standardisation of all rows."""
        m = self.summary
        return Standardizer.from_spread(m.mean, m.variance, m.n_rows, standardize)

    def standardized(self, standardizer: Standardizer) -> StandardizedRows:
        """Return the rows in standardised coordinates."""
        return StandardizedRows(self, standardizer)


@dataclass(frozen=True)
class StandardizedRows:
    """The FIT rows of a file, standardised: what :class:`mgpa.stages.AllRows` asks for."""

    rows: FileRows
    standardizer: Standardizer

    @property
    def moments(self) -> Moments:
        """Moments of the original rows by source."""
        s = self.standardizer
        scale = np.where(s.varies, s.scale, np.inf)  # what never varied takes no part
        return Moments(
            {
                label: replace(part, mean=(part.mean - s.center) / scale, spread=part.spread.scaled(scale))
                for label, part in self.rows.summary.parts.items()
            }
        )

    def scores(self, recipe: Recipe, stages: Sequence[Stage | Start], critics: Critics) -> ScoreMoments:
        """Return the moments of the critics' scores after these stages: one pass."""
        client, what = self.rows.client, (recipe, tuple(stages), critics)
        if client is not None:
            what = _on_cpu(what)  # other machines need not have our device
        job = partial(sum_scores, self.standardizer, self.rows.read, *what)
        jobs = [partial(job, part) for part in self.rows.file.parts]
        total: ScoreSums = reduce_parts(jobs, added, client=client)
        mean = total.scores / total.n_rows
        cross = total.products - total.rows[:, None] * mean
        return ScoreMoments(cast(mean, recipe.basis, mean.dtype), cast(cross, recipe.basis, cross.dtype))


@dataclass(frozen=True)
class ScoreSums:
    """Sums over rows: of the original rows (d,), of their scores (J,), and of the products (d, J)."""

    n_rows: int
    rows: Array
    scores: Array
    products: Array

    def __add__(self, other: ScoreSums) -> ScoreSums:
        return ScoreSums(
            self.n_rows + other.n_rows,
            self.rows + other.rows,
            self.scores + other.scores,
            self.products + other.products,
        )


def fitted_vectors(coordinates: Coordinates | None, token_layout: str, rows: Table) -> NDArray[Any]:
    """Return the vectors, in a fit's coordinates, of some rows of a table."""
    return vectors(in_coordinates(coordinates, rows), token_layout)


def summarise_part(read: Callable[[Table], NDArray[Any]], part: Part) -> Moments | None:
    """Return the moments of one part's FIT rows, or None if there are none."""
    total: Moments | None = None
    for rows in fit_batches(part):
        total = added(total, Moments.from_rows(read(rows), rows.source))
    return total


def sum_scores(
    standardizer: Standardizer,
    read: Callable[[Table], NDArray[Any]],
    recipe: Recipe,
    stages: Sequence[Stage | Start],
    critics: Critics,
    part: Part,
) -> ScoreSums | None:
    """Send one part's FIT rows through the stages and sum up the critics' scores of them."""
    total: ScoreSums | None = None
    for rows in fit_batches(part):
        original = cast(standardizer.apply(read(rows)), recipe.basis)
        scores = double(all_scores(critics, follow(recipe, stages, original)))
        wide = double(original)
        total = added(total, ScoreSums(len(wide), wide.sum(0), scores.sum(0), wide.T @ scores))
    return total


def _on_cpu(value: Any) -> Any:
    """Return stages, critics or a recipe with all tensors in ordinary memory."""
    if isinstance(value, tuple):
        return tuple(map(_on_cpu, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _on_cpu(getattr(value, f.name)) for f in fields(value)})
    return value.cpu() if hasattr(value, "cpu") else value
