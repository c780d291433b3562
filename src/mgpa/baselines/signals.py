"""Methods that correct signals, before or instead of an encoder, and need the source of every trial.

Euclidean alignment and convolutional Monge mapping normalisation (CMMN) are here; Riemannian methods, which
need pyRiemann, are in ``riemannian``.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
import scipy.signal
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from .._common.checks import as_floats, require_finite
from .._common.parameters import Constraint, check_parameters, nothing, number, whole
from ..errors import MissingEvidence
from ..estimators.base import MethodTags, forget
from ..labels import encode_source, to_numpy

Floats = NDArray[Any]
Parts = dict[Any, Floats]  # each source's trials in float64

# Eigenvalues below this share of the largest are rounding errors: float32 signals with an average reference
# have about 1e-14, recordings of full rank more than 1e-8.
SINGULAR = 1e-10
# Without clipping, larger gains raise an error: they amplify rounding errors or the stop-band of a filter.
MAX_GAIN = 1e6


class SignalBaseline(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of signal methods, which fit a transformation for each source and apply it to its trials.

    Subclasses implement ``_learn`` and ``_apply``. ``filters_`` has the filters of each source; a new source
    needs a new fit. All trials have the same weight.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True, "pair_id": True, "groups": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"source": True}
    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, acts_on="signals")
    _parameter_constraints: ClassVar[dict[str, Constraint]]

    filters_: dict[Any, Any]
    n_channels_in_: int

    def fit(
        self, X: Any, y: Any = None, *, source: Any = None, pairs: Any = None, pair_id: Any = None,
        X_val: Any = None, source_val: Any = None, sample_weight: Any = None, groups: Any = None,
    ) -> Self:  # fmt: skip
        """Fit a transformation for each source on trials X (n, channels, times) with ``source`` (n,).

        Only RiemannianProcrustes(rotate=True) uses task labels ``y``. The other parameters are accepted so
        that all methods have the same signature; weights raise an error.
        """
        check_parameters(self)
        forget(self)
        if sample_weight is not None:
            raise ValueError(f"{type(self).__name__} weights all trials equally; omit sample_weight.")
        X = self._check(X)
        sources, codes = self._sources(source, len(X))
        parts = {label: X[codes == i].astype(np.float64) for i, label in enumerate(sources)}
        filters = self._learn(parts, y, codes)
        self.filters_, self.n_channels_in_ = filters, X.shape[1]
        return self

    def transform(self, X: Any, *, source: Any = None) -> Floats:
        """Apply the fitted transformation of its source to each trial; unseen sources raise an error."""
        check_is_fitted(self)
        X = self._check(X)
        sources, codes = self._sources(source, len(X))
        if unseen := [label for label in sources if label not in self.filters_]:
            raise ValueError(f"source {unseen} was not in the fit, which had {list(self.filters_)}.")
        parts = [
            self._apply(X[codes == i].astype(np.float64), self.filters_[s]) for i, s in enumerate(sources)
        ]
        order = np.argsort(np.argsort(codes, kind="stable"))
        return np.concatenate(parts)[order].astype(X.dtype)

    def fit_transform(self, X: Any, y: Any = None, *, source: Any = None, **fit_params: Any) -> Floats:
        """Fit and transform the same trials, like ``fit(...).transform(X, source=source)``."""
        return self.fit(X, y, source=source, **fit_params).transform(X, source=source)

    def _check(self, trials: Any) -> Floats:
        """Return trials as a finite float32 or float64 array, or raise."""
        axes = "(trials, channels, times)"
        expected = f"a float32 or float64 array of shape {axes}"
        X: Floats = as_floats(to_numpy(trials), "X", expected, category=DataConversionWarning, stacklevel=4)
        if X.ndim != 3 or not X.size:
            hint = " This method acts on signals, before the encoder." if X.ndim == 2 else ""
            raise ValueError(f"X has shape {X.shape}; expected {axes}, none empty.{hint}")
        n_channels = getattr(self, "n_channels_in_", X.shape[1])
        if X.shape[1] != n_channels:
            raise ValueError(f"X has {X.shape[1]} channels; this method was fitted on {n_channels}.")
        require_finite(X, "X")
        return X

    def _sources(self, source: Any, n: int) -> tuple[list[Any], NDArray[np.int64]]:
        if source is None:
            raise MissingEvidence(f"{type(self).__name__} needs sources: pass source=, one label per trial.")
        sources, codes = encode_source(source, n)
        return sources.tolist(), codes

    def _learn(self, parts: Parts, y: Any, codes: NDArray[np.int64]) -> dict[Any, Any]:
        """Return the transformation of each source; ``codes`` has the source of each trial."""
        raise NotImplementedError

    def _apply(self, X: Floats, learned: Any) -> Floats:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return "filters_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class SpatialFilter(SignalBaseline):
    """Base class of methods that multiply the trials of each source by a matrix over channels."""

    filters_: dict[Any, Floats]

    def _apply(self, X: Floats, learned: Floats) -> Floats:
        return np.asarray(learned @ X)


class EuclideanAlignment(SpatialFilter):
    """Whiten each source by its mean trial covariance R, so that it becomes the identity: X' = R^(-1/2) X.

    Reference: He & Wu, IEEE Transactions on Biomedical Engineering 67(2), 2020. R is the mean over trials of
    X Xᵀ / T, after the mean of each channel in each trial is removed (the paper does not divide by T). Equal
    to pyRiemann's ``Whitening(metric="euclid")``, which filters covariances.

    Needs source labels, in fit and at application. No pairs, no task.

    What it cannot do: equalise more than the mean spatial covariance. Unequal class proportions affect R and
    are "corrected" too. Channels are mixed, so the output channels are not electrodes.

    Parameters
    ----------
    ridge : float
        Multiple of the mean channel variance added to the diagonal of R. 0 is the published method; a
        positive value makes a singular R usable.

    Attributes
    ----------
    filters_ : dict of (channels, channels) arrays
        R^(-1/2) of each source.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"ridge": number(0)}

    def __init__(self, *, ridge: float = 0.0) -> None:
        self.ridge = ridge

    def _learn(self, parts: Parts, y: Any, codes: Any) -> dict[Any, Floats]:
        return {label: self._whitener(label, X) for label, X in parts.items()}

    def _whitener(self, label: Any, X: Floats) -> Floats:
        X = X - X.mean(axis=2, keepdims=True)
        R = (X @ X.transpose(0, 2, 1)).mean(axis=0) / X.shape[2]
        R += self.ridge * np.trace(R) / len(R) * np.eye(len(R))
        values, vectors = np.linalg.eigh((R + R.T) / 2)
        independent = int((values > SINGULAR * values[-1]).sum())
        if independent < len(R):
            raise ValueError(
                f"The mean covariance of source {label!r} is singular: {independent} of {len(R)} channels "
                "are independent, as after an average reference or with a flat channel. Drop the dependent "
                "channels, or pass ridge=1e-3."
            )
        return np.asarray(vectors / np.sqrt(values) @ vectors.T)


def _is_clip(value: Any) -> bool:
    pair = isinstance(value, (tuple, list)) and len(value) == 2
    return pair and number(0, 1).accepts(value[0]) and number(1).accepts(value[1])


class CMMN(SignalBaseline):
    """Filter each channel of each source so that its spectrum becomes that of the barycentre of sources.

    Reference: Gnassounou, Flamary & Gramfort, NeurIPS 2023. Implemented from its description.

    Needs source labels, in fit and at application. No pairs, no task. All sources have the same weight in the
    barycentre.

    What it cannot do: equalise more than the power spectra of single channels. Spectral differences between
    groups of participants are removed like those between amplifiers. Trials are filtered separately and
    padded with zeros: the first and last F/2 samples are damped, and offsets cause ringing, so apply a
    high-pass filter first.

    Parameters
    ----------
    filter_size : int
        F, the length of the filters and of the Welch segments in samples; at most the trial length. The
        frequency resolution is fs/F.
    clip : tuple (low, high) or None
        Limits of the amplitude gains √(p̄/p), which prevent the amplification of stop-bands. None: the
        published method without clipping; gains above 1e6 then raise an error.

    Attributes
    ----------
    barycenter_ : (channels, F // 2 + 1) array
        p̄ = (Σ √p_k / K)², per unit sampling rate.
    filters_ : dict of (channels, F or F + 1) arrays
        Zero-phase filters of each source.
    """

    barycenter_: Floats

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "filter_size": whole(2),
        "clip": Constraint("(low, high) with 0 <= low <= 1 <= high", _is_clip) | nothing,
    }

    def __init__(self, *, filter_size: int = 128, clip: tuple[float, float] | None = (0.25, 4.0)) -> None:
        self.filter_size = filter_size
        self.clip = clip

    def _check(self, X: Any) -> Floats:
        checked = super()._check(X)
        if checked.shape[2] < self.filter_size:
            raise ValueError(
                f"X has trials of {checked.shape[2]} samples, shorter than filter_size={self.filter_size}; "
                "use longer trials or a smaller filter_size."
            )
        return checked

    def _learn(self, parts: Parts, y: Any, codes: Any) -> dict[Any, Floats]:
        # Welch spectra, averaged over trials; segments do not span two trials.
        spectra = {
            label: scipy.signal.welch(X, nperseg=self.filter_size, axis=-1)[1].mean(axis=0)
            for label, X in parts.items()
        }
        target = np.mean(np.sqrt(list(spectra.values())), axis=0) ** 2
        filters = {label: self._filter(label, target, p) for label, p in spectra.items()}
        self.barycenter_ = target
        return filters

    def _filter(self, label: Any, target: Floats, spectra: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where((spectra == 0) & (target == 0), 1.0, np.sqrt(target / spectra))
        if self.clip is None and gains.max() > MAX_GAIN:
            channel, k = np.unravel_index(gains.argmax(), gains.shape)
            raise ValueError(
                f"Source {label!r} has almost no power in channel {channel} at {k}/{self.filter_size} of the "
                f"sampling rate (gain {gains.max():.1e}). Drop the channel if it is flat, or pass "
                "clip=(0.25, 4)."
            )
        if self.clip is not None:
            low, high = self.clip
            if ((gains <= low) | (gains >= high)).all():
                warnings.warn(
                    f"Every gain of source {label!r} was clipped to {self.clip}. Does it have the units of "
                    "the other sources? Convert it, or widen clip.",
                    stacklevel=4,
                )
            gains = np.clip(gains, low, high)
        return zero_phase_filter(gains, self.filter_size)

    def _apply(self, X: Floats, learned: Floats) -> Floats:
        return np.asarray(scipy.signal.oaconvolve(X, learned[None], mode="same", axes=-1))


def zero_phase_filter(gains: Floats, size: int) -> Floats:
    """Return real symmetric filters with the given gains at the frequencies k/size.

    For an even size, the tap at -size/2 is split between -size/2 and +size/2, which keeps these gains;
    otherwise the filter would delay the signal by a sample.
    """
    taps = np.fft.fftshift(np.fft.irfft(gains, size, axis=-1), axes=-1)
    if size % 2 == 0:
        taps = np.concatenate([taps, taps[..., :1]], axis=-1)
        taps[..., [0, -1]] /= 2
    return np.asarray((taps + taps[..., ::-1]) / 2)
