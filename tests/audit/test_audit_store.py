"""Cells are named by everything they depend on, and kept whole or not at all."""

import dataclasses

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

import mgpa
from audited import run
from mgpa.audit.store import Store, key_of
from mgpa.baselines import make_method
from simulated import simulated_table


@pytest.fixture(scope="module")
def table():
    return simulated_table()


def test_keys_tell_estimators_apart():
    assert key_of(make_method("leace")) == key_of(make_method("leace"))
    assert key_of(make_method("leace")) != key_of(make_method("leace", ridge=0.1))
    assert key_of(make_method("leace")) != key_of(make_method("oracle_leace"))
    assert key_of(mgpa.ClosedFormMGPA(mgpa.MeasurementGate(rank=2))) != key_of(mgpa.ClosedFormMGPA())
    assert Store(None).get("anything") is None


def test_keys_see_content_not_looks():
    def lookalike(value):
        return FunctionTransformer(kw_args={"seen": Lookalike(value)})

    assert key_of(lookalike(1)) == key_of(lookalike(1))
    assert key_of(lookalike(1)) != key_of(lookalike(2))
    assert key_of(np.random.RandomState(1)) == key_of(np.random.RandomState(1))
    assert key_of(np.random.RandomState(1)) != key_of(np.random.RandomState(2))
    assert key_of({np.int64(0): 1.0, "a": 2}) == key_of({"a": 2, np.int64(0): 1.0})
    assert key_of({0: 1}) != key_of({"0": 1})
    assert key_of(np.arange(10**6)) != key_of(np.arange(10**6) + (np.arange(10**6) == 5000))
    assert key_of(lambda x: x)


class Lookalike:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return "Lookalike()"


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x" * 50)])
def test_a_damaged_or_lost_map_is_computed_again(table, tmp_path, damage):
    first = run(table, ["leace"], cache=tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        damage(path)
    with pytest.warns(UserWarning, match="computing it again"):
        again = run(table, ["leace"], cache=tmp_path)
    assert str(first) == str(again)


def test_a_cell_that_does_not_say_which_it_is_or_is_anothers_is_computed_again(tmp_path):
    store = Store(tmp_path)
    store.put("a", {"value": np.ones(2)})
    assert store.get("a")["value"].sum() == 2
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes())
    with pytest.warns(UserWarning, match=r"b\.npz cannot be read \(its content"):
        assert store.get("b") is None
    np.savez(tmp_path / "c.npz", value=np.ones(2))
    with pytest.warns(UserWarning, match=r"c\.npz cannot be read"):
        assert store.get("c") is None
    np.savez(tmp_path / "d.npz", value=np.zeros(2), _cell=np.load(tmp_path / "a.npz")["_cell"])
    (tmp_path / "d.npz").replace(tmp_path / "a.npz")
    with pytest.warns(UserWarning, match="cannot be read"):
        assert store.get("a") is None


def test_a_map_of_another_cell_is_computed_again(tmp_path):
    store = Store(tmp_path)
    for key, scale in (("a", 1.0), ("b", 2.0)):
        m = dataclasses.replace(mgpa.maps.AffineMap.identity(2), scale=np.full(2, scale))
        store.put(key, {}, m)
        assert store.get_fit(key)[0].scale.tolist() == [scale, scale]
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.warns(UserWarning, match="the map beside it, belongs"):
        assert store.get_fit("a") is None


def test_a_cache_that_cannot_be_written_does_not_cost_the_result(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert store.put("key", {"a": np.ones(2)})["a"].sum() == 2
