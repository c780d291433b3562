"""Check the parameters of estimators against one table of constraints per class.

A class lists its constraints in ``_parameter_constraints``, as in scikit-learn; ``|`` joins alternatives. The
words of a constraint are the middle of the error message: "ridge must be *a number, 0 or more*; got None."
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
    """The allowed values of a parameter, described in words and by a test."""

    words: str
    accepts: Callable[[Any], bool]

    def __or__(self, other: Constraint) -> Constraint:
        return Constraint(
            f"{self.words}, or {other.words}", lambda value: self.accepts(value) or other.accepts(value)
        )


def number(
    least: float = -np.inf, most: float = np.inf, *, above: float = -np.inf, below: float = np.inf
) -> Constraint:
    """Accept finite numbers from ``least`` to ``most``; refuse True and False.

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
    """Accept whole numbers of at least ``least``; refuse True and False."""
    return Constraint(
        f"a whole number, {least} or more",
        lambda value: (
            isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)
        ),
    )


def one_of(*choices: str) -> Constraint:
    """Accept one of the given texts."""
    words = " or ".join(filter(None, [", ".join(map(repr, choices[:-1])), repr(choices[-1])]))
    return Constraint(words, lambda value: isinstance(value, str) and value in choices)


def some_of(*choices: str) -> Constraint:
    """Accept a collection of one or more of the given texts, without repetition."""

    def accepts(value: Any) -> bool:
        if isinstance(value, str) or not isinstance(value, Collection):
            return False
        # Compared one by one, because building a set would fail for unhashable contents.
        texts = all(isinstance(item, str) and item in choices for item in value)
        return texts and 0 < len(value) == len(set(value))

    return Constraint(f"a list of some of {', '.join(map(repr, choices))}, each once", accepts)


def having(*attributes: str, example: str) -> Constraint:
    """Accept objects (not classes) with the given attributes."""
    return Constraint(
        example,
        lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in attributes),
    )


flag = Constraint("True or False", lambda value: isinstance(value, (bool, np.bool_)))
nothing = Constraint("None", lambda value: value is None)
#: A share: a float, because the integer 1 would be a count.
share = Constraint(
    "a float in (0, 1]", lambda value: isinstance(value, (float, np.floating)) and bool(0 < value <= 1)
)
text = Constraint("text", lambda value: isinstance(value, str) and bool(value))
seed = (
    whole()
    | Constraint("a numpy RandomState", lambda value: isinstance(value, np.random.RandomState))
    | nothing
)
#: A source label; whether the source exists is checked against the data later.
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
        The object to check; its table must have all parameters. Parts with their own tables, such as gates,
        are checked too.
    prefix : str
        Prefix of the names in messages, as in ``set_params``: "gate__" for the parameters of a gate.
    """
    table = estimator._parameter_constraints
    for name, value in estimator.get_params(deep=False).items():
        if name not in table:
            raise TypeError(f"{type(estimator).__name__}._parameter_constraints lacks {name}.")
        if not table[name].accepts(value):
            raise ParameterError(prefix + name, value, table[name].words)
        # scikit-learn's own classes use the same attribute name and check themselves.
        inner = getattr(value, "_parameter_constraints", None)
        if inner is not None and all(isinstance(constraint, Constraint) for constraint in inner.values()):
            check_parameters(value, f"{prefix}{name}__")


def read_seed(random_state: Any) -> int:
    """Return an integer seed: the given value, a draw from a RandomState, or a random number for None."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
