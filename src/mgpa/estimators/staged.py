"""What estimators that fit stage after stage share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.utils.validation import check_is_fitted

from .._common.extras import missing
from ..errors import ParameterError, UsageError
from ..maps import SequentialMap
from .base import CorrectionEstimator


class SequentialEstimator(CorrectionEstimator):
    """Base of estimators whose map is a sequence of stages: any prefix of it can be applied."""

    map_: SequentialMap

    def transform(
        self,
        X: Any,
        *,
        strength: float | None = None,
        n_stages: int | None = None,
        fraction: float = 1.0,
        out: Any = None,
    ) -> Any:
        """Correct embeddings. Never takes a source.

        Parameters
        ----------
        X : (n, d) array or torch tensor
            New embeddings.
        strength : float or None
            Apply this multiple of the whole displacement.
        n_stages, fraction : int, float
            Apply only the first ``n_stages`` stages, the last of them by ``fraction``.
        out : (n, d) numpy array or None
            Where to write the corrected rows; X itself corrects in place. See
            :meth:`mgpa.CorrectionMap.transform`.
        """
        check_is_fitted(self)
        return self._transform(X, self.map_, strength=strength, n_stages=n_stages, fraction=fraction, out=out)


@contextmanager
def complete_stages_kept(finish: Callable[[], None]) -> Iterator[None]:
    """Call ``finish`` after the stages of a fit, and also when they are interrupted (Ctrl-C).

    An interrupted fit keeps its complete stages, since a prefix is a map. After an error nothing is kept.
    """
    try:
        yield
    except KeyboardInterrupt:
        finish()
        raise
    finish()


def torch_device(device: str, method: str) -> Any:
    """Return where networks are trained; "auto" is CUDA if torch sees it."""
    try:
        import torch
    except ImportError:
        raise missing(f"{method}, which trains networks,", "torch") from None
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError):
        raise ParameterError("device", device, "'auto' or a torch device such as 'cpu'") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device is {device!r}, but torch sees no CUDA here; use 'auto' or 'cpu'.")
    return place
