"""Parameters: one table per class, one check before anything is computed, one sentence of refusal."""

import inspect

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import mgpa
from mgpa import ClosedFormMGPA, MeasurementGate, TokenMean
from mgpa._common.parameters import (
    flag,
    gate,
    having,
    nothing,
    number,
    one_of,
    seed,
    share,
    some_of,
    source_label,
    text,
    whole,
)
from mgpa.audit.heads import TokenNetworkHead
from mgpa.baselines import CMMN, LEACE, SDDA
from mgpa.errors import ParameterError
from mgpa.gate import FixedGate, PCAGate

JUNK = [None, True, "no", -1, 0.5, np.nan, np.inf, [], {}, object()]

PUBLIC = [getattr(module, name) for module in (mgpa, mgpa.baselines) for name in module.__all__]
CLASSES = {cls.__name__: cls for cls in PUBLIC if hasattr(cls, "get_params")} | {
    "TokenNetworkHead": TokenNetworkHead
}
EVERY = pytest.mark.parametrize("name", CLASSES)

# What a class cannot do without, and what makes a fit quick.
SETTINGS = {
    "TokenMean": {"estimator": ClosedFormMGPA()},
    "JointTokens": {"estimator": ClosedFormMGPA()},
    "FixedGate": {"basis": np.eye(6)[:, :1]},
    "IterativeMGPA": {"critics": ("linear",), "n_stages": 1, "random_state": 0},
}


def build(name, **changes):
    return CLASSES[name](**(SETTINGS.get(name, {}) | changes))


def parameters(name):
    return list(inspect.signature(CLASSES[name]).parameters)


# What the tables say


@EVERY
def test_the_table_has_every_parameter_and_nothing_else(name):
    assert set(CLASSES[name]._parameter_constraints) == set(parameters(name))


@EVERY
def test_junk_is_refused_in_one_sentence_before_the_data_are_looked_at(name):
    for parameter, constraint in CLASSES[name]._parameter_constraints.items():
        refused = [value for value in JUNK if not constraint.accepts(value)]
        assert refused, f"{parameter} accepts anything"
        for value in refused:
            model = build(name).set_params(**{parameter: value})
            with pytest.raises(ParameterError) as refusal:
                model.fit(None, None)  # no data at all
            assert refusal.value.parameter == parameter
            assert refusal.value.value is value
            message = str(refusal.value)
            assert message == f"{parameter} must be {refusal.value.expected}; got {value!r}."
            assert "\n" not in message
            assert ". " not in message


# What each kind of constraint accepts, written out by hand

KINDS = {
    "number": (number(), [0, -2.5, np.float32(1), 10**400], [None, True, np.True_, "1", np.nan, np.inf, 1j]),
    "number(0, 1)": (number(0, 1), [0, 0.5, 1], [1.0001, -1e-9, False]),
    "above, most": (number(above=0, most=1), [1e-9, 1], [0, 1.5]),
    "least, below": (number(0, below=1), [0, 0.999], [1, -1]),
    "whole(1)": (whole(1), [1, 10**30, np.int32(2)], [0, 1.0, True, "1", None, np.float64(2)]),
    "one_of": (one_of("raise", "warn"), ["raise", "warn"], ["ignore", "", None, ["raise"], 1]),
    "some_of": (
        some_of("linear", "gelu"),
        [("linear",), ["gelu", "linear"]],
        ["linear", (), ("linear", "linear"), ("svm",), [{}], None, 3],
    ),
    "having": (having("fit", example="a model"), [LinearRegression()], [LinearRegression, "fit", None]),
    "gate": (
        gate,
        [None, MeasurementGate(), FixedGate(np.eye(2)), 0, 4, 0.9],
        [MeasurementGate, LinearRegression(), -1, 1.5],
    ),
    "flag": (flag, [True, False, np.True_], [0, 1, "no", None]),
    "nothing": (nothing, [None], [False, 0, ""]),
    "share": (share, [1.0, 0.1, np.float32(0.5)], [1, 0.0, 1.1, np.nan, True, "half"]),
    "text": (text, ["cpu"], ["", None, b"cpu", 1]),
    "seed": (seed, [0, 2**31, np.int64(1), None, np.random.RandomState(0)], [-1, 1.0, True, "seed"]),
    "source_label": (source_label, ["dry", b"dry", 0, -1, True], [None, np.nan, ["dry"], {}]),
    "or": (whole(1) | share, [1, 5, 0.5, 1.0], [0, 1.5, None]),
    "basis": (
        FixedGate._parameter_constraints["basis"],
        [np.eye(3), [[1.0], [0.0]], np.zeros((3, 0))],
        [None, np.ones(3), np.ones((3, 2)), [["a"]], [[1.0], [0.0, 1.0]], np.full((2, 1), np.inf)],
    ),
    "clip": (
        CMMN._parameter_constraints["clip"],
        [None, (0, 1), [0.5, 1]],
        [(2.0, 4.0), (0.1, 0.5), (-1.0, 2.0), (0.5,), (0.5, np.inf), "01"],
    ),
    "channels": (
        SDDA._parameter_constraints["channels"],
        [None, [0, 2], (1,), np.arange(2)],
        [[], 3, "01", [-1], [0.5]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_constraint_accepts_and_refuses(kind):
    constraint, accepted, refused = KINDS[kind]
    assert [value for value in accepted if not constraint.accepts(value)] == []
    assert [value for value in refused if constraint.accepts(value)] == []


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (ClosedFormMGPA(standardize="no"), "standardize must be True or False; got 'no'."),
        (ClosedFormMGPA(ridge=None), "ridge must be a number, 0 or more, or 'auto'; got None."),
        # The parameters of a part go by the names that set_params has for them.
        (
            TokenMean(ClosedFormMGPA(gate=PCAGate(rank=0.0))),
            "estimator__gate__rank must be a whole number, 0 or more, or a float in (0, 1]; got 0.0.",
        ),
    ],
)
def test_a_refusal_says_what_was_expected_and_what_came(model, sentence):
    with pytest.raises(ParameterError) as refusal:
        model.fit(None)
    assert str(refusal.value) == sentence


# When they are checked

RNG = np.random.default_rng(0)
SOURCE = np.repeat(["dry", "wet"], 20)
X = RNG.normal(size=(40, 6)) + 2.0 * (SOURCE == "wet")[:, None] * np.eye(6)[0]
PAIRS = X[:20], X[:20] + 2.0 * np.eye(6)[0] + 0.1 * RNG.normal(size=(20, 6))


@pytest.mark.parametrize("name", ["ClosedFormMGPA", "IterativeMGPA", "TokenMean", "JointTokens", "LEACE"])
def test_a_refused_setting_leaves_an_earlier_fit_alone(name):
    model = build(name)
    before = model.fit(X, source=SOURCE, pairs=PAIRS).transform(X)
    for parameter in parameters(name):
        good = getattr(model, parameter)
        with pytest.raises(ParameterError, match=f"^{parameter} must be"):
            model.set_params(**{parameter: object()}).fit(X, source=SOURCE, pairs=PAIRS)
        model.set_params(**{parameter: good})
    np.testing.assert_array_equal(model.transform(X), before)


def test_every_batch_and_every_solution_is_checked():
    model = LEACE().partial_fit(X, source=SOURCE)
    with pytest.raises(ParameterError, match="ridge must be"):
        model.set_params(ridge=-1).partial_fit(X + 1.0, source=SOURCE)
    with pytest.raises(ParameterError, match="ridge must be"):
        model.to_map()  # not solved yet
    np.testing.assert_array_equal(
        model.set_params(ridge=0.5).transform(X), LEACE(ridge=0.5).fit(X, source=SOURCE).transform(X)
    )
    tokens = TokenMean(LEACE()).partial_fit(X, source=SOURCE)
    with pytest.raises(ParameterError, match="estimator__ridge must be"):
        tokens.set_params(estimator__ridge=None).partial_fit(X, source=SOURCE)
