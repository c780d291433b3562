"""Read a user's head from a file, to be scored without refitting on uncorrected and corrected rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from .._common.extras import missing
from ..errors import UsageError


class _OnnxHead(BaseEstimator):  # type: ignore[misc]
    """A fitted model in an ONNX file with one input (n, d); it cannot be refitted."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content
        self._session: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_session": None}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return "an ONNX model"

    def fit(self, X: Any, y: Any = None) -> Any:
        """Raise an error, because an ONNX model cannot be refitted."""
        raise UsageError("An ONNX model cannot be fitted again.")

    def _outputs(self, X: Any) -> list[NDArray[Any]]:
        if self._session is None:
            try:
                from onnxruntime import InferenceSession
            except ImportError:
                raise missing("A head in ONNX", "onnxruntime") from None
            self._session = InferenceSession(self.content, providers=["CPUExecutionProvider"])
        [entry] = self._session.get_inputs()
        rows = np.asarray(X, dtype=np.float64 if "double" in entry.type else np.float32)
        outputs = self._session.run(None, {entry.name: rows})
        # By default, scikit-learn's converter returns probabilities as a list of dicts.
        return [
            np.array([list(row.values()) for row in out]) if isinstance(out, list) else np.asarray(out)
            for out in outputs
        ]


class OnnxClassifier(ClassifierMixin, _OnnxHead):  # type: ignore[misc]
    """An ONNX classifier whose last output contains the scores of all classes."""

    def __init__(self, content: bytes = b"", classes: Any = ()) -> None:
        super().__init__(content)
        self.classes = classes

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, sorted."""
        return np.asarray(self.classes)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the classes, (n, K)."""
        scores = self._outputs(X)[-1].astype(np.float64).reshape(len(X), -1)
        if scores.shape[1] == 1 and len(self.classes) == 2:
            scores = np.concatenate([1.0 - scores, scores], axis=1)
        if scores.shape[1] != len(self.classes):
            raise UsageError(
                f"The ONNX head gives {scores.shape[1]} scores a row; the table's labels are "
                f"{', '.join(map(str, self.classes))}."
            )
        return scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the highest score."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class OnnxRegressor(RegressorMixin, _OnnxHead):  # type: ignore[misc]
    """An ONNX model that predicts one number per row."""

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted numbers."""
        return self._outputs(X)[-1].astype(np.float64).reshape(len(X))


def open_head(path: Path, labels: Any, *, numbers: bool, trust: bool = False) -> Any:
    """Return the head in a file: .onnx, or .joblib and .pkl, which can run code, if trusted.

    ``labels`` are those of the table; the classes of an ONNX head are assumed to be in sorted order.
    """
    if not path.is_file():
        raise FileNotFoundError(f"No file {path}.")
    if path.suffix == ".onnx":
        content = path.read_bytes()
        return OnnxRegressor(content) if numbers else OnnxClassifier(content, np.unique(labels))
    if path.suffix not in (".joblib", ".pkl", ".pickle"):
        raise UsageError(f"{path} is not a head; expected .onnx, or .joblib with --trust.")
    if not trust:
        raise UsageError(
            f"{path.name} can run code of its author when it is opened. Add --trust if you trust the author, "
            "or export the head as ONNX, which cannot run code."
        )
    import joblib

    return joblib.load(path)
