"""The estimators are ordinary scikit-learn citizens: checks, cloning, pipelines, routing, pickling."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from mgpa import MGPA, ClosedFormMGPA, IterativeMGPA, JointTokens, MeasurementGate, TokenMean
from mgpa.gate import FullGate, PCAGate, RandomGate
from mgpa.stages import Trajectory

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")
IDENTITY_WARNING = "ignore:.*Returning the identity map:UserWarning"
LINEAR = {"critics": ("linear",), "random_state": 0}


def recordings(n_participants: int = 12, n_events: int = 8, d: int = 6, seed: int = 0, shift: float = 2.0):
    """Return rows of paired events: every event of every participant, seen dry and wet."""
    rng = np.random.default_rng(seed)
    n = n_participants * n_events
    task = np.tile([0, 1], n // 2)
    events = rng.normal(size=(n, d))
    events[:, 1] += 2.0 * task
    offset = np.zeros(d)
    offset[0] = shift
    wet = events + offset + 0.1 * rng.normal(size=(n, d))
    X = np.concatenate([events, wet])
    participant = np.tile(np.repeat(np.arange(n_participants), n_events), 2)
    pair_id = np.tile(np.arange(n), 2)
    source = np.repeat(["dry", "wet"], n)
    order = rng.permutation(2 * n)
    return {
        "X": X[order],
        "y": np.tile(task, 2)[order],
        "source": source[order],
        "pair_id": pair_id[order],
        "groups": participant[order],
    }


def fitted(kind: str = "closed", **parameters):
    data = recordings()
    made = {"closed": ClosedFormMGPA, "iterative": IterativeMGPA}[kind]
    if kind == "iterative":
        parameters = {"n_stages": 3, **LINEAR, **parameters}
    return made(**parameters).fit(data["X"], source=data["source"], pair_id=data["pair_id"]), data


KINDS = pytest.mark.parametrize("kind", ["closed", "iterative"])


@pytest.mark.filterwarnings(IDENTITY_WARNING)
@pytest.mark.filterwarnings("ignore:.*This batch is not used:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        MGPA(on_missing="warn"),
        ClosedFormMGPA(on_missing="warn"),
        IterativeMGPA(n_stages=2, on_missing="warn"),
        TokenMean(ClosedFormMGPA(on_missing="warn")),
        JointTokens(ClosedFormMGPA(on_missing="warn")),
        MeasurementGate(),
        MeasurementGate(rank=1),
        PCAGate(rank=0.9),
        PCAGate(rank=1),
        RandomGate(rank=1, random_state=0),
        FullGate(),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Frames, names, output types


# What fit uses


@KINDS
def test_the_task_never_reaches_the_map(kind):
    model, data = fitted(kind)
    expected = model.transform(data["X"])
    rng = np.random.default_rng(1)
    for y in (data["y"], rng.permutation(data["y"]), data["source"], None):
        model.fit(data["X"], y, source=data["source"], pair_id=data["pair_id"])
        np.testing.assert_array_equal(model.transform(data["X"]), expected)


# Pickling


@KINDS
@pytest.mark.parametrize("duplicate", [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy])
def test_fitted_estimators_survive_copies(kind, duplicate):
    model, data = fitted(kind)
    copied, expected = duplicate(model), model.transform(data["X"])
    np.testing.assert_array_equal(copied.transform(data["X"]), expected)
    np.testing.assert_array_equal(copied.to_map().transform(data["X"]), expected)
    np.testing.assert_array_equal(copied.gate_.basis_, model.gate_.basis_)


# Pipelines and cross-validation


class SpiedClosedForm(ClosedFormMGPA):
    """Log what every fit saw."""

    log: list = []  # noqa: RUF012

    def fit(self, X, y=None, *, source=None, pairs=None, pair_id=None, **rest):
        SpiedClosedForm.log.append((X, source, pair_id))
        return super().fit(X, y, source=source, pairs=pairs, pair_id=pair_id, **rest)


def test_routing_slices_source_and_pair_id_by_fold():
    data, before = recordings(), sklearn.get_config()
    SpiedClosedForm.log = []
    pipe = Pipeline([("mgpa", SpiedClosedForm(gate=MeasurementGate())), ("task", LogisticRegression())])
    search = GridSearchCV(pipe, {"mgpa__gate__rank": [1, 2]}, cv=GroupKFold(3), error_score="raise")
    evidence = {name: data[name] for name in ("source", "pair_id", "groups")}
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(data["X"], data["y"], **evidence)
    assert sklearn.get_config() == before
    assert search.best_score_ > 0.7
    folds = [train for train, _ in GroupKFold(3).split(data["X"], groups=data["groups"])]
    expected = [*folds * 2, np.arange(len(data["X"]))]
    for seen, train in zip(SpiedClosedForm.log, expected, strict=True):
        for values, name in zip(seen, ("X", "source", "pair_id"), strict=True):
            np.testing.assert_array_equal(values, data[name][train])


@pytest.mark.parametrize("model", [MGPA(), ClosedFormMGPA(), IterativeMGPA(), TokenMean(ClosedFormMGPA())])
def test_aligned_pairs_are_not_routed_unasked(model):
    data = recordings()
    pairs = (data["X"][:10], data["X"][:10] + 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(model, LogisticRegression())
        with pytest.raises(UnsetMetadataPassedError, match="pairs"):
            pipe.fit(data["X"], data["y"], source=data["source"], pairs=pairs)


# Nothing global

GLOBAL_STATE = """
import json, sys, warnings
import numpy as np, sklearn, torch, logging, locale, os
def state():
    return json.loads(json.dumps([
        sklearn.get_config(), np.geterr(), np.get_printoptions(), [str(f) for f in warnings.filters],
        str(torch.get_default_dtype()), torch.get_num_threads(), torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(), torch.initial_seed(),
        str(np.random.get_state()), len(logging.getLogger().handlers), locale.setlocale(locale.LC_ALL),
        sorted(os.environ), sys.getrecursionlimit(),
    ], default=str))
# What a third-party import does by itself is not ours.
import safetensors.numpy, scipy.linalg, scipy.stats, scipy.special
import sklearn.linear_model, sklearn.model_selection
import importlib, pkgutil
for name in ("onnx", "pyarrow", "cyclopts"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
before = state()
import mgpa
for module in pkgutil.walk_packages(mgpa.__path__, "mgpa."):
    if module.name.rpartition(".")[2] != "__main__":
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            assert "mgpa" not in str(getattr(error, "name", "")), error
for name in mgpa.__all__:
    getattr(mgpa, name)
after = state()
print(json.dumps([i for i, (a, b) in enumerate(zip(before, after)) if a != b]))
"""


def test_importing_everything_changes_nothing_global():
    out = subprocess.run([sys.executable, "-c", GLOBAL_STATE], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout.splitlines()[-1]) == []


# The iterative fit as seen by its user


def test_an_interrupt_keeps_the_complete_stages(monkeypatch):
    data = recordings()
    model = IterativeMGPA(n_stages=6, do_no_harm=False, **LINEAR)
    evidence = {"source": data["source"], "pair_id": data["pair_id"]}
    whole = clone(model).fit(data["X"], **evidence)
    original = Trajectory.fit_stage

    def interrupted(self):
        if len(self.stages) == 3:
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(Trajectory, "fit_stage", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(data["X"], **evidence)
    assert len(model.to_map()) == model.n_stages_ == len(model.history_) == 3
    np.testing.assert_array_equal(model.transform(data["X"]), whole.transform(data["X"], n_stages=3))
    assert pickle.loads(pickle.dumps(model)).n_stages_ == 3
