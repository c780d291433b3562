"""Cells are named by everything they depend on, and kept whole or not at all."""

import dataclasses
import os

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

import mgpa
from audited import assert_same, run
from mgpa.audit.fits import BudgetSpec, FitSpec
from mgpa.audit.measure import FloorSpec, GroundSpec, MeasureSpec
from mgpa.audit.store import Store, key_of
from mgpa.baselines import make
from simulated import simulated_table


@pytest.fixture(scope="module")
def table():
    return simulated_table()


def test_keys_tell_estimators_apart():
    assert key_of(make("leace")) == key_of(make("leace"))
    assert key_of(make("leace")) != key_of(make("leace", ridge=0.1))
    assert key_of(make("leace")) != key_of(make("oracle_leace"))
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


def test_a_damaged_cell_is_computed_again(table, tmp_path):
    first = run(table, ["leace"], cache=tmp_path)
    victim = max(tmp_path.glob("*.npz"), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:100])
    with pytest.warns(UserWarning, match="cannot be read"):
        assert_same(first, run(table, ["leace"], cache=tmp_path))


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x" * 50)])
def test_a_damaged_or_lost_map_is_computed_again(table, tmp_path, damage):
    first = run(table, ["leace"], cache=tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        damage(path)
    with pytest.warns(UserWarning, match="Computing it again"):
        again = run(table, ["leace"], cache=tmp_path)
    assert str(first) == str(again)


def test_a_cell_that_does_not_say_which_it_is_or_is_anothers_is_computed_again(tmp_path):
    store = Store(tmp_path)
    store.put("a", {"value": np.ones(2)})
    assert store.get("a")["value"].sum() == 2
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes())
    with pytest.warns(UserWarning, match=r"b\.npz cannot be read \(its content is not that of this cell\)"):
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
        m = dataclasses.replace(mgpa.AffineMap.identity(2), scale=np.full(2, scale))
        store.put(key, {}, m)
        assert store.get_map(key).scale.tolist() == [scale, scale]
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.warns(UserWarning, match="is not the map of this cell"):
        assert store.get_map("a") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes in folders")
def test_a_pipe_is_no_cell(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    assert Store(tmp_path).get("a") is None


def test_a_cache_that_cannot_be_written_does_not_cost_the_result(tmp_path):
    store = Store(tmp_path / "gone")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert store.put("key", {"a": np.ones(2)})["a"].sum() == 2


SPECS = {
    FitSpec: {"model": 1, "rows": "r", "pairs": "p", "encoder": {}, "standardize": True},
    BudgetSpec: {"fit": "f", "budget": 0.1},
    GroundSpec: {
        "head": "h", "evaluation": "e", "standardizer": "s", "task_head": None, "device": "cpu", "bank": {},
        "directions": (),
    },
    MeasureSpec: {"ground": "g", "map": "m"},
    FloorSpec: {"ground": "g", "basis": "b"},
}  # fmt: skip


@pytest.mark.parametrize("kind", SPECS)
def test_every_field_of_a_specification_is_in_the_key(kind):
    spec = kind(**SPECS[kind])
    assert kind(**SPECS[kind]).key == spec.key
    for field in dataclasses.fields(kind):
        other = dataclasses.replace(spec, **{field.name: "another"})
        assert other.key != spec.key, field.name


@pytest.mark.parametrize("kind", SPECS)
def test_a_field_that_is_added_to_a_specification_changes_the_key(kind):
    longer = dataclasses.make_dataclass(
        kind.__name__, [("new", int, 0)], bases=(kind,), frozen=True, kw_only=True
    )
    assert longer(**SPECS[kind]).key != kind(**SPECS[kind]).key
    assert longer(**SPECS[kind], new=1).key != longer(**SPECS[kind]).key


def test_different_kinds_of_cells_have_different_keys():
    keys = {kind(**fields).key for kind, fields in SPECS.items()}
    assert len(keys) == len(SPECS)


def test_timings_are_means_and_survive_a_line_that_was_cut_off(tmp_path):
    store = Store(tmp_path)
    with store.timed("fit a"):
        pass
    with pytest.raises(ZeroDivisionError), store.timed("fit b"):
        1 / 0  # noqa: B018
    with open(tmp_path / "timings.jsonl", "a") as stream:
        stream.write('["measure", 1.0]\n["measure", 3.0]\n["meas')
    found = store.timings()
    assert found["measure"] == 2
    assert set(found) == {"fit a", "measure"}
    with Store().timed("fit a"):
        pass
    assert Store().timings() == {}
