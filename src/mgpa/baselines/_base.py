"""Base classes of baselines, and conversion of their formulas in standardised coordinates to stored maps."""

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

#: (start, A, end) of one source's correction h ↦ (h - start) A + end. A vector stands for a diagonal A; None
#: leaves the source unchanged.
Transport = tuple[Floats, Floats, Floats] | None


def blind_map(
    standardizer: Standardizer, mean: Floats, readout: Floats, direction: Floats, info: MapInfo
) -> AffineMap:
    """Return the stored map of h ↦ h - ((h - mean) readout) directionᵀ in standardised coordinates.

    ``mean`` is in the units of the input. Features that never varied are not used or changed.
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
    """Return the map μ + (I - RRᵀ)(h - μ) for an orthonormal basis R of the directions to remove."""
    return blind_map(standardizer, mean, removed, removed, info)


def routed_map(standardizer: Standardizer, transports: Sequence[Transport], info: MapInfo) -> RoutedMap:
    """Return the stored map of one affine correction per source, given in standardised coordinates."""
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
    """Return the position of the reference source, given as a label, a position, or None for the first.

    Labels are also compared as text, because files and command lines store them as text.
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
    """Return the direction of a map in words, such as ``'mp5' and 'mp6' → 'm5'``."""
    names = [repr(name) for name in source_names(sources)]
    reference = names.pop(target)
    moved = first_few(names, 4) if len(names) > 2 else " and ".join(names)
    return f"{moved} → {reference}"


def views_of(
    pairs: Pairs, sources: NDArray[Any], first: int, second: int
) -> tuple[Floats, Floats, NDArray[Any] | None]:
    """Return both views of all pairs of two sources, and their participants if known."""
    low, high = sorted((first, second))
    some = pairs.take(np.flatnonzero((pairs.first == low) & (pairs.second == high)))
    if not len(some):
        one, other = sources[[first, second]].tolist()
        raise MissingEvidence(f"No pair joins {one!r} and {other!r}.")
    views = (some.a, some.b) if first == low else (some.b, some.a)
    return *views, some.participants


def require_variance(moments: Moments) -> None:
    """Raise unless each source has more than one row, or a total weight above 1."""
    few = [label for label, part in moments.parts.items() if part.weight <= 1]
    if few:
        raise ValueError(
            f"Sources {few} have a single row (or a total weight of 1), and so no variance. Use more rows; "
            "a weight of 1 counts as one row."
        )


def require_matrices(number: int, d: int, method: str) -> None:
    """Raise if ``number`` matrices of d × d do not fit into memory.

    This is for methods that store such matrices and have no smaller form for few rows.
    """
    require_memory(
        8.0 * number * d**2,
        f"{method}'s {number} matrices of {d} x {d}",
        "Fit it to fewer features, for instance to principal components (fit_table(components=512)), or use "
        "LEACE, SPLINCE, NCM, ComBat or closed-form MGPA, which only need memory for the rows.",
    )


class Decoder(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of end-to-end comparators, which predict classes from the scores of ``_scores``."""

    classes_: NDArray[Any]

    def _scores(self, X: Any) -> NDArray[Any]:
        """Return scores (n, n_classes), or for two classes optionally only those of the second, (n,)."""
        raise NotImplementedError

    def decision_function(self, X: Any, *, source: Any = None) -> NDArray[Any]:
        """Return scores (n, n_classes), or for two classes the score of the second, (n,)."""
        check_is_fitted(self, "classes_")
        return self._scores(X)

    def predict(self, X: Any, *, source: Any = None) -> NDArray[Any]:
        """Return the most likely class of each row."""
        scores = self.decision_function(X)
        likely = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[likely])


def two_as_one(logits: NDArray[Any]) -> NDArray[Any]:
    """Return logits (n, n_classes), or for two classes their difference (second minus first), (n,)."""
    return np.asarray(logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits)


def finite_rows(X: Any, name: str = "X", n_features: int | None = None) -> NDArray[Any]:
    """Return embeddings as a float array (n, d); raise unless they are finite and have this width."""
    rows = as_float_matrix(to_numpy(X), name=name, n_features=n_features)
    require_finite(rows, name)
    return rows


def one_per_row(values: Any, n: int, name: str) -> NDArray[Any]:
    """Return values as an array; raise unless it has one value for each of n rows."""
    array = np.asarray(values)
    if array.shape[:1] != (n,):
        raise UsageError(f"{name} has shape {array.shape} for {n} rows; pass one value for each row.")
    return array


def task_classes(y: Any, n: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the sorted task classes and the position of each row's class; raise if there is only one."""
    classes, task = encode_source(y, n, "y")
    if len(classes) < 2:
        raise UsageError(f"y has 1 distinct value ({classes[0].item()!r}); a decoder needs two.")
    return classes, task


class InMemory:
    """Mixin for maps that can be applied, scaled and pickled, but have no file, torch or ONNX form."""

    kind: ClassVar[str] = "in memory"  # not in the list of stored kinds
    no_export: ClassVar[str] = "This comparator exists only in memory, without torch or ONNX form."

    def save(self, path: Any, *, overwrite: bool = True) -> Any:
        """Raise, because the map exists only in memory."""
        method = self.info.method  # type: ignore[attr-defined]
        raise MapError(f"The correction of {method} exists only in memory; it cannot be saved.")


class SourceAware(MomentEstimator):
    """Base class of source-aware methods, which need the source of every row for correction."""

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False)
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"source": True}

    def transform(self, X: Any, *, source: Any = None, strength: float | None = None, out: Any = None) -> Any:
        """Correct embeddings; ``source`` has one label per row, or one label for all rows.

        Missing or unseen labels raise an error. Other parameters are those of all ``transform`` methods.
        """
        return self._transform(X, self.map_, source=source, strength=strength, out=out)

    def fit_transform(self, X: Any, y: Any = None, *, source: Any = None, **evidence: Any) -> Any:
        """Fit, then correct the same rows."""
        return self.fit(X, y, source=source, **evidence).transform(X, source=source)


class ReferencedMethod(SourceAware):
    """Base class of methods that map all sources to one of them, the reference, which stays unchanged."""

    reference: Any

    @property
    def reference_(self) -> Any:
        """The label of the reference source."""
        sources = self.sources_
        return sources[reference_index(self.reference, sources)].item()


class MaybeReferencedMethod(ReferencedMethod):
    """Base class of methods that map all sources to a common target or, optionally, to a reference."""

    @property
    def reference_(self) -> Any:
        """The label of the reference source; None if all sources move to a common target."""
        return None if self.reference is None else super().reference_

    def _target(self, sources: NDArray[Any]) -> int | None:
        """Return the position of the reference source."""
        return None if self.reference is None else reference_index(self.reference, sources)
