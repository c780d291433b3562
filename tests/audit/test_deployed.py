"""A user's own head: from ONNX without trust, from joblib only with it; and pairs of a second table."""

from dataclasses import replace

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from mgpa.audit import AuditPlan, run
from mgpa.audit.deployed import OnnxClassifier, OnnxRegressor, open_head
from mgpa.audit.verdict import caveats
from mgpa.baselines import make_method
from mgpa.errors import UsageError
from mgpa.tables import Table, TableError, fit_table, write_table

QUICK = {"readers": {"restarts": 0}, "repeats": 1, "verbose": False}
D = 6


def bridged(n_bridging=4, n=24, rows=24, seed=0):
    """Return a table in which a few participants wore both devices, and the others one."""
    rng = np.random.default_rng(seed)
    shift, task = 3.0 * np.eye(D)[0], 2.0 * np.eye(D)[1]
    parts, ids = [], 0
    for p in range(n):
        label, trait = np.arange(rows) % 2, 0.5 * rng.normal(size=D)
        events = rng.normal(size=(rows, D)) + trait + (label - 0.5)[:, None] * task
        for k in (0, 1) if p < n_bridging else (p % 2,):
            event = ids + np.arange(rows) if p < n_bridging else np.full(rows, -1)
            seen = events + k * shift + 0.1 * rng.normal(size=events.shape)
            parts.append((seen, np.full(rows, "AB"[k]), np.full(rows, f"p{p:02d}"), label, event))
        ids += rows
    X, source, person, label, event = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Table(X, source=source, participant=person, label=label, pair_id=event)


@pytest.fixture(scope="module")
def table():
    return bridged()


@pytest.fixture(scope="module")
def decoder(table):
    rows = table.take(table.source == "A")
    return LogisticRegression().fit(rows.X, rows.label)


def as_onnx(decoder, path, regression=False):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(decoder.coef_.T.astype("float32"), "W")
    bias = numpy_helper.from_array(decoder.intercept_.astype("float32"), "b")
    nodes = [helper.make_node("Gemm", ["X", "W", "b"], ["z"]), helper.make_node("Sigmoid", ["z"], ["p"])]
    rows, out = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, n])
        for name, n in (("X", D), ("z" if regression else "p", 1))
    )
    graph = helper.make_graph(nodes[: 1 if regression else 2], "head", [rows], [out], [weights, bias])
    opset = [helper.make_opsetid("", 13)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
    return path


def test_a_joblib_head_is_opened_only_if_it_is_trusted(table, decoder, tmp_path):
    path = tmp_path / "head.joblib"
    joblib.dump(decoder, path)
    with pytest.raises(UsageError, match="can run code of its author"):
        open_head(path, table.label, numbers=False)
    opened = open_head(path, table.label, numbers=False, trust=True)
    np.testing.assert_array_equal(opened.predict(table.X), decoder.predict(table.X))
    with pytest.raises(UsageError, match="is not a head"):
        open_head(
            tmp_path.joinpath("head.txt").with_suffix(".joblib").rename(tmp_path / "head.txt"),
            table.label,
            numbers=False,
        )


def test_an_onnx_head_is_the_same_model_and_is_scored_as_it_is(table, decoder, tmp_path):
    head = open_head(as_onnx(decoder, tmp_path / "head.onnx"), table.label, numbers=False)
    assert isinstance(head, OnnxClassifier)
    np.testing.assert_allclose(head.predict_proba(table.X), decoder.predict_proba(table.X), atol=1e-6)
    np.testing.assert_array_equal(head.predict(table.X), decoder.predict(table.X))
    results = [run(table, ["mgpa"], head=h, head_source="A", **QUICK) for h in (head, decoder)]
    for metric in ("home", "away", "T_f"):
        values = [r.estimates["mgpa"][metric].value for r in results]
        assert values[0] == pytest.approx(values[1], abs=1e-4)
    text = results[0].methods_text()
    assert "The user's head (an ONNX model) was already fitted on rows of A" in text
    assert "Task heads (" not in text
    numbers = open_head(
        as_onnx(decoder, tmp_path / "numbers.onnx", regression=True), table.label, numbers=True
    )
    assert isinstance(numbers, OnnxRegressor)
    np.testing.assert_allclose(numbers.predict(table.X), decoder.decision_function(table.X), atol=1e-4)


def test_all_who_wore_both_devices_are_fitted_on_in_every_fold(table):
    plan = AuditPlan(table, ["closed_form_mgpa"], **QUICK)
    for split in plan.splits:
        assert {f"p{p:02d}" for p in range(4)} <= {*split.table.rows("FIT").participant.tolist()}
    result = plan.run()
    assert result.n_people == 20
    assert result["closed_form_mgpa"].S < 0.7 < result["identity"].S
    assert any("4 participants were fitted on in every fold" in line for line in caveats(result))
    assert "compared between participants" in plan.design.sentence


def test_a_method_that_does_nothing_in_some_folds_says_so():
    """One of two bridging participants in each fold is not enough evidence for a gate."""
    found = run(bridged(0, 12), {"leace": "leace"}, **QUICK)
    assert not any("did nothing" in line for line in found.verdict())
    for cell in found["leace"].cells[:2]:
        cell["movement"][:] = 0.0
    assert f"LEACE changed no rows in 2 of {len(found['leace'].cells)} fits" in " ".join(found.verdict())


def test_pairs_of_another_table_rotate_without_those_who_are_scored(table, tmp_path):
    """Four of twelve participants are in both tables: their pairs are fitted on, and they are not scored."""
    whose = [f"p{p:02d}" for p in range(4)]
    rows = replace(bridged(12, 12), pair_id=None)
    both = bridged(12, 12)
    pairs = both.take(np.isin(both.participant, whose))
    write_table(pairs, tmp_path / "pairs.parquet")
    plan = AuditPlan(rows, ["closed_form_mgpa"], pairs=tmp_path / "pairs.parquet", folds=5, **QUICK)
    for split in plan.splits:
        held = {*split.table.participant[np.isin(split.table.role, ("HEAD", "EVAL"))].tolist()}
        assert {*plan.turn(split).data.pairs.participant.tolist()} == {*whose} - held
    result = plan.run()
    assert result["closed_form_mgpa"].S < result["identity"].S
    assert result.pairs.shows_something
    assert result.settings.pairs == 4 * 24
    # The participants of new rows are unknown; the table's own rows may be of participants who are scored.
    views = rows.X[both.source == "A"], rows.X[both.source == "B"]
    with pytest.raises(UsageError, match="to score may be among them"):
        AuditPlan(rows, ["leace"], pairs=views, folds=5, **QUICK)
    arrays = views[0] + 1e-3, views[1] + 1e-3
    assert AuditPlan(rows, ["leace"], pairs=arrays, folds=5, **QUICK).settings.folds == 5


def test_a_stored_map_is_audited_without_rows_to_fit_on(table):
    whose = np.isin(table.participant, ["p00", "p01", "p02", "p03"])
    stored, rest = fit_table(make_method("leace"), table.take(whose)), table.take(~whose)
    names = np.unique(rest.participant)
    role = np.where(np.isin(rest.participant, [*names[:5], *names[10:15]]), "HEAD", "EVAL")
    result = run(replace(rest, role=role), {"mine": stored.to_map()}, **QUICK)
    assert result.settings.participants["FIT"] == 0
    assert not result["mine"].fitted_on
    with pytest.raises(TableError, match="no FIT rows"):
        AuditPlan(replace(rest, role=role), ["leace"], folds=1, **QUICK)
