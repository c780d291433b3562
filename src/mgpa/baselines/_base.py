"""What the baselines share: from formulas in standardised coordinates to stored maps in the user's units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .._common.checks import as_float_matrix, require_finite, require_memory
from ..errors import MapError, MissingEvidence, ParameterError, UsageError, first_few
from ..estimators.base import MethodTags
from ..estimators.closed_form import MomentEstimator
from ..labels import encode_source, source_names, to_numpy
from ..maps import AffineMap, MapInfo, RoutedMap
from ..moments import Moments, Standardizer
from ..pairs import Pairs

Floats = NDArray[np.float64]

#: One source's affine correction h ↦ (h - start) A + end; None leaves the source unchanged. A vector is a
#: diagonal A.
Transport = tuple[Floats, Floats, Floats] | None


def blind_map(
    standardizer: Standardizer, mean: Floats, readout: Floats, direction: Floats, info: MapInfo
) -> AffineMap:
    """Return h ↦ h - ((h - mean) readout) directionᵀ, given in standardised coordinates, as a stored map.

    ``mean`` is in the input's units. Features that never varied take no part.
    """
    center, scale = standardizer.center, standardizer.scale
    varies = standardizer.varies[:, None]
    readout = np.where(varies, readout / scale[:, None], 0.0)
    return AffineMap(
        center=center,
        scale=scale,
        readout=readout,
        direction=np.where(varies, direction * scale[:, None], 0.0),
        offset=(center - mean) @ readout,
        info=info,
    )


def projector_map(standardizer: Standardizer, mean: Floats, removed: Floats, info: MapInfo) -> AffineMap:
    """Return μ + (I - RRᵀ)(h - μ) for an orthonormal basis R of what is removed."""
    return blind_map(standardizer, mean, removed, removed, info)


def routed_map(standardizer: Standardizer, transports: Sequence[Transport], info: MapInfo) -> RoutedMap:
    """Return one affine correction per source, given in standardised coordinates, as a stored map."""
    scale, varies, d = standardizer.scale, standardizer.varies, len(standardizer.scale)
    diagonal = all(t is None or t[0].ndim == 1 for t in transports)
    readout = np.zeros((len(transports), d) if diagonal else (len(transports), d, d))
    offset = np.zeros((len(transports), d))
    for i, transport in enumerate(transports):
        if transport is None:
            continue
        A, start, end = transport
        if diagonal:
            G = np.where(varies, 1.0 - A, 0.0)
            readout[i], constant = G, -start * G
        else:
            G = (np.eye(d) - A) * varies * varies[:, None]
            readout[i], constant = G * (scale / scale[:, None]), -start @ G
        offset[i] = np.where(varies, (constant + start - end) * scale, 0.0)
    return RoutedMap(center=standardizer.center, scale=scale, readout=readout, offset=offset, info=info)


def reference_index(reference: Any, sources: NDArray[Any]) -> int:
    """Return the position of the reference: of None the first source, of a label its place, of an int itself.

    Labels are also compared as text, because a command line and a file know them so.
    """
    labels = sources.tolist()
    if reference is None:
        return 0
    if reference in labels:
        return int(labels.index(reference))
    if isinstance(reference, str) and reference in (names := source_names(sources)):
        return names.index(reference)
    position = isinstance(reference, (int, np.integer)) and not isinstance(reference, bool)
    if position and 0 <= reference < len(labels):
        return int(reference)
    raise ParameterError("reference", reference, f"one of the sources {labels}, or a position among them")


def direction_words(target: int, sources: NDArray[Any]) -> str:
    """Return which sources a map moves where, such as ``'mp5' and 'mp6' → 'm5'``."""
    names = [repr(name) for name in source_names(sources)]
    reference = names.pop(target)
    moved = first_few(names, 4) if len(names) > 2 else " and ".join(names)
    return f"{moved} → {reference}"


def views_of(
    pairs: Pairs, sources: NDArray[Any], first: int, second: int
) -> tuple[Floats, Floats, NDArray[Any] | None]:
    """Return the views of all pairs of two sources, and whose events they are if that is known."""
    low, high = sorted((first, second))
    some = pairs.take(np.flatnonzero((pairs.first == low) & (pairs.second == high)))
    if not len(some):
        one, other = sources[[first, second]].tolist()
        raise MissingEvidence(f"No pair joins {one!r} and {other!r}.")
    views = (some.a, some.b) if first == low else (some.b, some.a)
    return *views, some.participants


def require_variance(moments: Moments) -> None:
    """Raise unless every source has more than one row, or a total weight above 1."""
    few = [label for label, part in moments.parts.items() if part.weight <= 1]
    if few:
        raise ValueError(
            f"Sources {few} have one row (or a total weight of 1), so no variance. Use more rows; a "
            "weight of 1 counts as one row."
        )


def require_matrices(number: int, d: int, method: str) -> None:
    """Raise if ``number`` matrices of d × d exceed the memory.

    For methods that are such matrices: with fewer rows than features they have no smaller form.
    """
    require_memory(
        8.0 * number * d**2,
        f"{method}'s {number} matrices of {d} x {d}",
        "Fit it to fewer features, for instance to principal components (fit_table(components=512)), or take "
        "LEACE, SPLINCE, NCM, ComBat or closed-form MGPA, which need memory for the rows alone.",
    )


class Decoder(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of end-to-end comparators: classes from scores, which a subclass computes in ``_scores``."""

    classes_: NDArray[Any]

    def _scores(self, X: Any) -> NDArray[Any]:
        """Return scores (n, n_classes); of two classes, the second's may stand alone (n,)."""
        raise NotImplementedError

    def decision_function(self, X: Any, *, source: Any = None) -> NDArray[Any]:
        """Return scores (n, n_classes); of two classes (n,), that of the second."""
        check_is_fitted(self, "classes_")
        return self._scores(X)

    def predict(self, X: Any, *, source: Any = None) -> NDArray[Any]:
        """Return the most likely class of each row."""
        scores = self.decision_function(X)
        likely = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[likely])


def two_as_one(logits: NDArray[Any]) -> NDArray[Any]:
    """Return logits (n, n_classes); of two classes (n,), the second's against the first's."""
    return np.asarray(logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits)


def finite_rows(X: Any, name: str = "X", n_features: int | None = None) -> NDArray[Any]:
    """Return embeddings as a float array, (n, d); raise unless they are finite, and as wide as expected."""
    rows = as_float_matrix(to_numpy(X), name=name, n_features=n_features)
    require_finite(rows, name)
    return rows


def one_per_row(values: Any, n: int, name: str) -> NDArray[Any]:
    """Return values as an array; raise unless there is one for each of n rows."""
    array = np.asarray(values)
    if array.shape[:1] != (n,):
        raise UsageError(f"{name} has shape {array.shape} for {n} rows; pass one value for each row.")
    return array


def task_classes(y: Any, n: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the task's classes, sorted, and each row's position among them; raise if there is one."""
    classes, task = encode_source(y, n, "y")
    if len(classes) < 2:
        raise UsageError(f"y has 1 distinct value ({classes[0].item()!r}); a decoder needs two.")
    return classes, task


class InMemory:
    """Mixin of maps that can be applied, weakened and pickled, but have no file, torch or ONNX form."""

    kind: ClassVar[str] = "in memory"  # of no entry in the list of stored kinds
    no_export: ClassVar[str] = "This comparator's correction lives in memory, without torch or ONNX form."

    def save(self, path: Any, *, overwrite: bool = True) -> Any:
        """Raise: it lives in memory alone."""
        method = self.info.method  # type: ignore[attr-defined]
        raise MapError(f"{method} is a comparator whose correction lives in memory; it cannot be saved.")


class SourceAware(MomentEstimator):
    """Base of source-aware methods, which need the source of every row to correct."""

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False)
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"source": True}

    def transform(self, X: Any, *, source: Any = None, strength: float | None = None, out: Any = None) -> Any:
        """Correct embeddings whose sources are known: one label per row, or one for all rows.

        Missing or unseen labels are errors; the other parameters are those of every ``transform``.
        """
        return self._transform(X, self.map_, source=source, strength=strength, out=out)

    def fit_transform(self, X: Any, y: Any = None, *, source: Any = None, **evidence: Any) -> Any:
        """Fit, then correct the same rows."""
        return self.fit(X, y, source=source, **evidence).transform(X, source=source)


class ReferencedMethod(SourceAware):
    """Base of methods that leave one source as it is, the reference, and map the others to it."""

    reference: Any

    @property
    def reference_(self) -> Any:
        """The label of the reference."""
        sources = self.sources_
        return sources[reference_index(self.reference, sources)].item()


class MaybeReferencedMethod(ReferencedMethod):
    """Base of methods that map all sources to what they have in common, unless they are given a reference."""

    @property
    def reference_(self) -> Any:
        """The label of the reference; None if all sources move to what they have in common."""
        return None if self.reference is None else super().reference_

    def _target(self, sources: NDArray[Any]) -> int | None:
        """Return the position of the reference."""
        return None if self.reference is None else reference_index(self.reference, sources)
