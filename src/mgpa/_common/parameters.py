"""Checks of parameters: one table per class, one checker, one message.

A class says so in ``_parameter_constraints``, scikit-learn's convention, with the constraints below; ``|``
joins alternatives. Its words are the sentence's middle: "ridge must be *a number, 0 or more*; got None."
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_random_state

from ..errors import ParameterError


@dataclass(frozen=True)
class Constraint:
    """The values that a parameter may have, in words and as a test."""

    words: str
    accepts: Callable[[Any], bool]

    def __or__(self, other: Constraint) -> Constraint:
        return Constraint(
            f"{self.words}, or {other.words}", lambda value: self.accepts(value) or other.accepts(value)
        )


def number(
    least: float = -np.inf, most: float = np.inf, *, above: float = -np.inf, below: float = np.inf
) -> Constraint:
    """Accept finite numbers from ``least`` to ``most``, but not True or False.

    Examples
    --------
    >>> number(0).words, number(0).accepts(0), number(0).accepts(True)
    ('a number, 0 or more', True, False)
    """
    limits = [
        f"{least:g} or more" * (least > -np.inf),
        f"above {above:g}" * (above > -np.inf),
        f"at most {most:g}" * (most < np.inf),
        f"below {below:g}" * (below < np.inf),
    ]

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            return False
        return bool(-np.inf < value < np.inf and least <= value <= most and above < value < below)

    return Constraint(", ".join(["a number", *filter(None, limits)]), accepts)


def whole(least: int = 0) -> Constraint:
    """Accept whole numbers, but not True or False."""
    return Constraint(
        f"a whole number, {least} or more",
        lambda value: (
            isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)
        ),
    )


def one_of(*choices: str) -> Constraint:
    """Accept one of some texts."""
    words = " or ".join(filter(None, [", ".join(map(repr, choices[:-1])), repr(choices[-1])]))
    return Constraint(words, lambda value: isinstance(value, str) and value in choices)


def some_of(*choices: str) -> Constraint:
    """Accept a collection of some texts, each at most once, and at least one of them."""

    def accepts(value: Any) -> bool:
        if isinstance(value, str) or not isinstance(value, Collection):
            return False
        # One by one, because a set would refuse some contents with an error of its own.
        texts = all(isinstance(item, str) and item in choices for item in value)
        return texts and 0 < len(value) == len(set(value))

    return Constraint(f"a list of some of {', '.join(map(repr, choices))}, each once", accepts)


def having(*attributes: str, example: str) -> Constraint:
    """Accept objects (not classes) with some attributes."""
    return Constraint(
        example,
        lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in attributes),
    )


flag = Constraint("True or False", lambda value: isinstance(value, (bool, np.bool_)))
nothing = Constraint("None", lambda value: value is None)
#: A share of something: a float, because 1 would be a number of things.
share = Constraint(
    "a float in (0, 1]", lambda value: isinstance(value, (float, np.floating)) and bool(0 < value <= 1)
)
text = Constraint("text", lambda value: isinstance(value, str) and bool(value))
seed = (
    whole()
    | Constraint("a numpy RandomState", lambda value: isinstance(value, np.random.RandomState))
    | nothing
)
#: Whether there is such a source is for the data to say.
source_label = Constraint(
    "a source's label, or a position among the sorted labels",
    lambda value: isinstance(value, (str, bytes, int, float, np.generic)) and bool(value == value),
)
source_name = Constraint("a source's label", source_label.accepts)
gate = (
    whole()
    | share
    | one_of("auto")
    | having("fit", "fitted_on", example="a gate such as MeasurementGate(rank=2, norm_quantile=0.1)")
    | nothing
)


def check_parameters(estimator: Any, prefix: str = "") -> None:
    """Raise :class:`ParameterError` for the first parameter with an invalid value.

    Parameters
    ----------
    estimator : estimator or gate
        Its table must have every parameter. Parts with tables of their own, such as gates, are checked too.
    prefix : str
        What precedes the names in messages: "gate__" for the parameters of a gate, as in ``set_params``.
    """
    table = estimator._parameter_constraints
    for name, value in estimator.get_params(deep=False).items():
        if name not in table:
            raise TypeError(f"{type(estimator).__name__}._parameter_constraints says nothing about {name}.")
        if not table[name].accepts(value):
            raise ParameterError(prefix + name, value, table[name].words)
        # scikit-learn's own classes have tables by this name, too, and check them themselves.
        inner = getattr(value, "_parameter_constraints", None)
        if inner is not None and all(isinstance(constraint, Constraint) for constraint in inner.values()):
            check_parameters(value, f"{prefix}{name}__")


def read_seed(random_state: Any) -> int:
    """Return an integer seed: the value itself, or drawn from a RandomState, or (None) at random."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
