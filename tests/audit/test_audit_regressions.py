"""Faults that a hostile review of the audit found, one test each."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import mgpa
from mgpa import audit
from mgpa.audit.diagnostics import cramers_v
from mgpa.audit.store import Store, key_of
from mgpa.baselines import make
from mgpa.tables import Table, fit_table
from simulated import simulated_table

LINEAR = {"restarts": 0}


def run(table, methods, **changes):
    return audit.run(table, methods, **({"readers": LINEAR, "verbose": False, "seeds": (17, 29)} | changes))


@pytest.fixture(scope="module")
def table():
    return simulated_table()


@pytest.fixture(scope="module")
def tokens():
    return simulated_table(tokens=2, d=4, n_people=12, events=12)


class Unfittable(type(make("leace"))):
    def fit(self, *args, **kwargs):
        raise AssertionError("a fit was started")


def without(table, rows):
    return table.take(~rows)


def test_what_cannot_be_measured_is_refused_before_anything_is_fitted(table):
    methods = {"slow": Unfittable()}
    evaluation = table.role == "EVAL"
    someone = table.participant[evaluation][0]
    mine = table.participant == someone
    with pytest.raises(ValueError, match=f"EVAL has one participant \\('{someone}'\\)"):
        run(without(table, evaluation & ~mine), methods)
    with pytest.raises(ValueError, match=f"{someone}.*source 'wet'"):
        run(without(table, mine & (table.source == "wet")), methods)
    with pytest.raises(ValueError, match=f"{someone}.*source 'dry' with label 1"):
        run(without(table, mine & (table.source == "dry") & (table.label == 1)), methods)
    with pytest.raises(ValueError, match="EVAL has sources that HEAD lacks: \\['wet'\\]"):
        run(without(table, (table.role == "HEAD") & (table.source == "wet")), methods)
    with pytest.raises(ValueError, match=f"{someone}.*paired events"):
        run(replace(table, pair_id=np.where(mine, -1, table.pair_id)), methods)
    with pytest.raises(ValueError, match="str has neither decision_function"):
        run(table, methods, head="ridge")
    with pytest.raises(TypeError, match=r"readers has \['restart'\]"):
        run(table, methods, readers={"restart": 1})


def test_methods_that_are_none_are_refused(table):
    with pytest.raises(TypeError, match=r"methods has LEACE\(\) in place of a name"):
        run(table, [make("leace")])
    with pytest.raises(TypeError, match="no pipeline is needed"):
        run(table, {"x": make_pipeline(StandardScaler(), make("leace"))})
    with pytest.raises(TypeError, match="x is <class"):
        run(table, {"x": type(make("leace"))})
    with pytest.raises(ValueError, match="x has nothing to fit"):
        run(table, {"x": []})
    with pytest.raises(ValueError, match="iterative_mgpa has nothing to fit"):
        run(table, ["iterative_mgpa"], seeds=())
    with pytest.raises(ValueError, match="'identity' is the uncorrected embedding"):
        run(table, {"identity": "leace"})


def test_a_fitted_token_mean_is_not_fitted_again(tokens):
    fit = tokens.rows("FIT")
    model = mgpa.TokenMean(make("leace", ridge=3.0)).fit(fit.X[::2], source=fit.source[::2])
    found = run(tokens, {"fitted": model, "map": model.to_map()}, head=HeadOfMeans())
    np.testing.assert_array_equal(found["fitted"].movement, found["map"].movement)


def test_a_wrapped_random_method_gets_the_seeds(tokens):
    model = mgpa.IterativeMGPA(n_stages=1, critics=("linear",), do_no_harm=False)
    found = run(tokens, {"wrapped": mgpa.TokenMean(model), "bare": model}, head=HeadOfMeans())
    assert found["wrapped"].n_fits == 2
    np.testing.assert_array_equal(found["wrapped"].movement, found["bare"].movement)
    assert found["wrapped"].has("floor")


class HeadOfMeans(LogisticRegression):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X.mean(axis=1), y)

    def decision_function(self, X):
        return super().decision_function(X.mean(axis=1))


def test_a_fitted_gated_method_has_its_floor(table):
    fit = table.rows("FIT")
    model = mgpa.ClosedFormMGPA().fit(fit.X, source=fit.source, pair_id=fit.pair_id)
    found = run(table, {"fitted": model, "fresh": mgpa.ClosedFormMGPA(), "map": model.to_map()})
    np.testing.assert_array_equal(found["fitted"].floor_auroc, found["fresh"].floor_auroc)
    assert not found["map"].has("floor")  # a map does not say what its gate is


def test_a_methods_own_device_is_respected(table):
    with pytest.raises(ValueError, match="'nowhere'"):
        run(table, {"igbp": make("igbp", n_stages=1, max_epochs=1, device="nowhere")})


def test_devices_have_their_own_cells(table, tmp_path, monkeypatch):
    module = __import__("mgpa.audit.run", fromlist=["run"])
    keys = []
    monkeypatch.setattr(module, "key_of", lambda *parts: keys.append(key_of(*parts)) or keys[-1])
    seen = []
    for device in ("cpu", "meta"):
        keys.clear()
        run(table, ["leace"], device=device)  # linear readers: nothing is trained there
        seen.append(set(keys))
    assert len(seen[0] & seen[1]) < len(seen[0])


def test_errors_name_the_method_and_what_is_kept(table, tmp_path):
    methods = {"leace": "leace", "broken": make("closed_form_mgpa", gate=3)}
    with pytest.raises(ValueError, match="gate must be") as caught:
        run(table, methods, cache=tmp_path)
    assert caught.value.__notes__[0] == "This happened while fitting broken."
    assert str(tmp_path) in caught.value.__notes__[1]
    assert len(list(tmp_path.glob("*.npz"))) == 2
    with pytest.raises(ValueError, match="gate must be") as caught:
        run(table, methods, n_jobs=2)
    assert caught.value.__notes__ == ["This happened while fitting broken."]


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x" * 50)])
def test_a_damaged_or_lost_map_is_computed_again(table, tmp_path, damage):
    first = run(table, ["leace"], cache=tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        damage(path)
    with pytest.warns(UserWarning, match="Computing it again"):
        again = run(table, ["leace"], cache=tmp_path)
    assert str(first) == str(again)


def test_a_cache_that_cannot_be_written_does_not_cost_the_result(table, tmp_path):
    store = Store(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert store.put("key", {"a": np.ones(2)})["a"].sum() == 2


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


def test_views_of_one_event_are_of_one_person_and_label():
    columns = {"X": np.zeros((4, 2)), "source": ["a", "b", "a", "b"], "role": ["FIT"] * 4}
    with pytest.raises(ValueError, match=r"pair_id 0 has rows of participant \['1', '2'\]"):
        Table(**columns, participant=[1, 2, 1, 2], pair_id=[0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"pair_id 1 has rows of label \[0, 1\]"):
        Table(**columns, participant=[1] * 4, label=[0, 0, 0, 1], pair_id=[0, 0, 1, 1])
    Table(**columns, participant=[1, 2, 1, 2], label=[0, 1, 0, 1], pair_id=[-1, -1, -1, -1])


def test_one_head_participant_leaves_only_association_out(table):
    head = table.role == "HEAD"
    found = run(without(table, head & (table.participant != table.participant[head][0])), ["leace"])
    assert found.metrics == ("S", "T_f", "T_r", "M")
    with pytest.raises(ValueError, match="two HEAD participants"):
        found["leace"].values("worst")


def test_independent_labels_are_not_called_associated():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        counts = np.zeros((2, 2))
        np.add.at(counts, (rng.integers(0, 2, 60), rng.integers(0, 2, 60)), 1)
        found.append(cramers_v(counts))
    assert np.mean(found) < 0.07  # without the correction .10
    assert cramers_v(np.array([[30.0, 0.0], [0.0, 30.0]])) == pytest.approx(1.0)


def test_budgets_are_in_common_coordinates(table, tokens):
    wide = replace(table, X=table.X * np.linspace(0.1, 10, 8) + 20)
    methods = {
        "closed": mgpa.ClosedFormMGPA(),
        "closed raw": mgpa.ClosedFormMGPA(standardize=False),
        "staged": mgpa.IterativeMGPA(n_stages=12, critics=("linear",), do_no_harm=False, random_state=1),
        "staged raw": mgpa.IterativeMGPA(
            n_stages=12, critics=("linear",), do_no_harm=False, random_state=1, standardize=False
        ),
    }
    found = run(wide, methods, budget=0.02)
    for name in methods:
        assert found[name].facts[0]["validation_movement"] == pytest.approx(0.02, rel=1e-6)
        assert found[name].estimate("M").value == pytest.approx(0.02, rel=0.4)  # 0.066 in raw units' terms
        if name.startswith("staged"):
            assert found[name].facts[0]["stage_movement"][-1] == pytest.approx(0.02, rel=1e-6)
    fit, val = tokens.rows("FIT"), tokens.rows("VAL")
    found = run(tokens, {"leace": "leace"}, budget=0.05, head=HeadOfMeans())
    assert found["leace"].facts[0]["validation_movement"] == pytest.approx(0.05)
    rows = fit.X.reshape(-1, 4)
    center, scale = rows.mean(axis=0), rows.std(axis=0)
    strength = mgpa.TokenMean(make("leace")).fit(fit.X, source=fit.source).to_map()
    mean = val.X.mean(axis=1)
    moved = np.linalg.norm((strength.transform(mean) - mean) / scale)
    size = np.linalg.norm((mean - center) / scale)
    m = mgpa.endpoint.movement_budget(
        strength, mean, 0.05, coordinates=mgpa.moments.Standardizer.from_rows(rows, None, True)
    ).map
    assert m.strength == pytest.approx(0.05 * size / moved)


def test_stage_movement_in_other_coordinates():
    rng = np.random.default_rng(0)
    X, source, scale = rng.normal(size=(200, 5)), np.tile([0, 1], 100), rng.uniform(0.5, 2.0, 5)
    X += 2.0 * source[:, None] * np.eye(5)[0]
    pairs = X[source == 0], X[source == 0] + 2.0 * np.eye(5)[0] + rng.normal(size=(100, 5))
    models = [
        mgpa.IterativeMGPA(n_stages=3, critic_epochs=2, do_no_harm=False, random_state=0),
        make("igbp", n_stages=3, max_epochs=2, random_state=0),
        make("mance", n_rounds=3, random_state=0),
    ]
    for model in models:
        m = model.fit(X, source=source, pairs=pairs).to_map().with_strength(0.5)
        expected = [np.linalg.norm((m[:k].transform(X) - X) / scale) for k in range(1, len(m) + 1)]
        np.testing.assert_allclose(m.stage_movement(X, scale), expected, rtol=1e-6)


def test_a_map_fitted_on_the_people_it_is_judged_by_is_found_out(tmp_path):
    table = simulated_table()
    honest = fit_table(mgpa.ClosedFormMGPA(), table).to_map()
    leaked = fit_table(mgpa.ClosedFormMGPA(), table.with_columns(role=None)).to_map()
    silent = leaked.with_notes("from elsewhere")
    silent = replace(silent, info=replace(silent.info, people=()))
    maps = {"honest": honest, "leaked": leaked, "silent": silent}
    for m in maps.values():
        m.save(tmp_path / "m.safetensors")
        assert mgpa.load_map(tmp_path / "m.safetensors").info.people == m.info.people
    result = audit.run(table, maps, readers={"restarts": 0}, floor=False, verbose=False)
    judged = sorted({*table.rows("HEAD").participant, *table.rows("EVAL").participant})
    assert result["honest"].fitted_on == ()
    assert list(result["leaked"].fitted_on) == judged
    assert result["silent"].fitted_on is None
    assert result.verdict("leaked")[0].startswith(
        f"NOT HELD OUT: it was fitted on {len(judged)} of the people"
    )
    assert "is not known here" in " ".join(result.verdict("silent"))
    assert "known here" not in " ".join(result.verdict("honest"))


def test_readers_that_reverse_are_not_called_chance():
    result = audit.run(simulated_table(), ["closed_form_mgpa"], readers={"restarts": 0}, verbose=False)
    mine = result["closed_form_mgpa"]
    worse = replace(mine, source_auroc=np.full_like(mine.source_auroc, 0.41))
    said = replace(result, results=result.results | {"closed_form_mgpa": worse}).verdict("closed_form_mgpa")
    assert "BELOW chance" in said[0]
    assert "not told from chance" not in said[0]


def test_parts_of_a_metric_are_metrics(table):
    result = run(table, ["leace"], readers={"restarts": 1, "checkpoints": (2,)})["leace"]
    linear = [i for i, name in enumerate(result.readers) if "linear" in name]
    assert len(linear) == 2 < len(result.readers)
    assert result.estimate("L").value == pytest.approx(result.source_auroc[..., linear].mean(axis=1).max())
    both = [result.estimate(f"T_f {way}").value for way in result.directions]
    assert np.mean(both) == pytest.approx(result.estimate("T_f").value)
    assert not result.has("S_mean")
    assert not result.has("T_f nowhere → here")
