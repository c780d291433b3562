"""Audits at the size tests like, and how two of them are compared."""

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from mgpa import audit

SMALL = {"bank": "paper", "restarts": 1, "checkpoints": (3,)}
LINEAR = {"bank": "paper", "restarts": 0}


def run(table: Any, methods: Any, **changes: Any) -> audit.Audit:
    """Audit with linear readers, two seeds and one split, unless told otherwise."""
    quick = {"readers": LINEAR, "verbose": False, "seeds": (17, 29), "folds": 1}
    return audit.run(table, methods, **(quick | changes))


def assert_same(a: audit.Audit, b: audit.Audit) -> None:
    """Fail unless two audits have the same bits."""
    assert a.methods == b.methods
    for name in a:
        for x, y in zip(a[name].cells, b[name].cells, strict=True):
            assert x.keys() == y.keys()
            for key in x:
                np.testing.assert_array_equal(x[key], y[key], err_msg=f"{name} {key}")
        for x, y in zip(a[name].facts, b[name].facts, strict=True):
            assert x.keys() == y.keys()
            for key in x:
                np.testing.assert_array_equal(x[key], y[key], err_msg=f"{name} {key}")
    assert str(a) == str(b)


class HeadOfMeans(LogisticRegression):
    """A task head for tokens that takes a moment."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(X.mean(axis=1), y)

    def decision_function(self, X: Any) -> Any:
        return super().decision_function(X.mean(axis=1))
