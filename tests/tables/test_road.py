"""One road: however rows reach a fit, and from wherever a map came, the numbers are the same."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import mgpa
from mgpa.baselines import make_method
from mgpa.errors import TableError
from mgpa.estimators.base import CorrectionEstimator
from mgpa.estimators.tokens import TOKENS
from mgpa.tables import Table, apply_to_table, fit_table, rows_for
from simulated import in_parts, simulated_table

pytest.importorskip("pyarrow")

from mgpa.tables import apply_to_file, write_table

METHODS = {
    "closed_form_mgpa": {},
    "iterative_mgpa": {"n_stages": 3, "critics": ["linear"], "device": "cpu", "random_state": 0},
    "leace": {},
    "featmap": {},
}


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def tables():
    vectors = simulated_table(n_people=24, seed=3)
    tokens = simulated_table(n_people=24, tokens=3)
    unlike = simulated_table(n_people=24, tokens=3)
    unlike.X[unlike.source == "wet", 0] += 2.0  # the device shows more in the first token
    return {
        "vectors": vectors,
        "tokens": tokens,
        "coordinates": vectors,
        "joint": unlike,
        "joint coordinates": unlike,
    }


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *product(["vectors", "tokens", "coordinates"], METHODS),
        *product(["joint", "joint coordinates"], ["closed_form_mgpa", "iterative_mgpa"]),
    ],
)
def test_memory_stream_command_and_cluster_give_the_same_map(tables, kind, method, client, tmp_path):
    cli = pytest.importorskip("mgpa.cli")
    table, components = tables[kind], 5 if "coordinates" in kind else None
    how = kind.split()[0] if kind.startswith("joint") else "mean"
    model = make_method(method, **METHODS[method])
    model = model if how == "mean" else TOKENS[how](model)
    path = in_parts(table, tmp_path / "parts")
    settings = [f"--set.{name}" for name in METHODS[method]]
    values = [str(value).replace("'", '"') for value in METHODS[method].values()]
    options = [word for pair in zip(settings, values, strict=True) for word in pair]
    options += ["--components", str(components)] if components else []
    options += ["--tokens", how] if table.X.ndim == 3 else []
    out = tmp_path / "m.safetensors"
    assert cli.main(["fit", str(path), "--out", str(out), "--method", method, *options]) == 0
    expected = fit_table(model, table, components=components).to_map()
    others = {
        "stream": fit_table(model, path, components=components).to_map(),
        "cluster": fit_table(model, path, components=components, client=client).to_map(),
        "command": mgpa.load_map(out),
    }
    want = apply_to_table(expected, table)
    assert np.abs(want.X - rows_for(expected, table).X).max() > 0.1
    for way, m in others.items():
        np.testing.assert_allclose(apply_to_table(m, table).X, want.X, rtol=0, atol=1e-9, err_msg=way)
        energy = {"gate_energy": None}  # equal to rounding
        assert replace(m.info, **energy) == replace(expected.info, **energy), way
        assert (m.coordinates is None) == (components is None), way


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("kind", ["vectors", "tokens"])
def test_a_fitted_estimator_is_the_same_however_it_was_fitted(tables, kind, from_file, tmp_path):
    table = tables[kind]
    fit = table.rows("FIT")
    plain = mgpa.ClosedFormMGPA()
    plain = plain if kind == "vectors" else mgpa.TokenMean(plain)
    expected = plain.fit(fit.X, source=fit.source, pair_id=fit.pair_id)
    road = fit_table(mgpa.ClosedFormMGPA(), in_parts(table, tmp_path / "p") if from_file else table)
    assert type(road) is type(expected)
    a, b = (getattr(model, "estimator_", model) for model in (road, expected))
    assert a.sources_.tolist() == b.sources_.tolist() == ["dry", "wet"]
    np.testing.assert_allclose(a.gate_.basis_, b.gate_.basis_, atol=1e-9)
    np.testing.assert_allclose(a.covariance_, b.covariance_, atol=1e-9)
    np.testing.assert_allclose(a.direction_, b.direction_, atol=1e-9)
    assert a.direction_.shape == (1, a.gate_.rank_)
    views = table.rows("VAL").paired_views()
    pairs = tuple(table.rows("VAL").X[rows] for rows in views)
    assert road.coverage(pairs) == pytest.approx(expected.coverage(pairs), abs=1e-9)
    np.testing.assert_allclose(road.transform(table.X), expected.transform(table.X), atol=1e-9)


def split_pairs(table):
    """Return FIT rows whose own ids join unrelated rows, and the truly paired ones as another table."""
    fit = table.rows("FIT")
    sides = [np.flatnonzero(fit.source == source) for source in fit.sources]
    n = min(map(len, sides))
    ids = np.full(len(fit), -1)
    for side in sides:
        ids[side[:n]] = np.arange(n)
    misleading = fit.with_columns(label=None, participant=None, pair_id=ids)
    return misleading, fit.take(fit.pair_id >= 0)


@pytest.mark.parametrize("batches", [1, 7])
def test_pairs_of_another_table_replace_the_tables_own_in_every_batch(tables, batches, tmp_path):
    misleading, pairs = split_pairs(tables["vectors"])
    path = in_parts(misleading, tmp_path / "rows", batches)
    write_table(pairs, tmp_path / "pairs.parquet")
    model = fit_table(mgpa.ClosedFormMGPA(), path, pairs=tmp_path / "pairs.parquet")
    n_pairs = len(np.unique(pairs.pair_id))
    assert model.to_map().info.n_contrasts == n_pairs
    views = pairs.paired_views()
    expected = mgpa.ClosedFormMGPA().fit(
        misleading.X, source=misleading.source, pairs=tuple(pairs.X[rows] for rows in views)
    )
    np.testing.assert_allclose(model.transform(pairs.X), expected.transform(pairs.X), atol=1e-9)


@pytest.mark.parametrize("method", ["closed_form_mgpa", "featmap", "iterative_mgpa"])
def test_pairs_of_other_sources_are_refused(tables, method):
    table = tables["vectors"]
    rows, pairs = split_pairs(table)
    renamed = pairs.with_columns(source=np.where(pairs.source == "dry", "gel", "pad"))
    with pytest.raises(TableError, match=r"sources gel, pad; the table to fit has dry, wet"):
        fit_table(make_method(method), rows, pairs=renamed)


def test_pairs_are_matched_by_the_names_of_sources_not_by_their_order(tables):
    rows, pairs = split_pairs(tables["vectors"])
    # As numbers, source 10 comes after 9; as text, before it.
    numbers = {"dry": 9, "wet": 10}
    rows = rows.with_columns(source=np.array([numbers[s] for s in rows.source]))
    text = pairs.with_columns(source=np.array([str(numbers[s]) for s in pairs.source]))
    same = pairs.with_columns(source=np.array([numbers[s] for s in pairs.source]))
    a, b = (fit_table(make_method("featmap"), rows, pairs=table).to_map() for table in (text, same))
    np.testing.assert_allclose(
        a.transform(rows.X, source=rows.source), b.transform(rows.X, source=rows.source), atol=1e-12
    )


def test_who_is_in_the_table_of_pairs_counts_as_fitted_on(tables):
    rows, pairs = split_pairs(tables["vectors"])
    people = fit_table(mgpa.ClosedFormMGPA(), rows, pairs=pairs).to_map().info.people
    assert len(people) == len(np.unique(pairs.participant)) > 0


def test_a_table_of_other_devices_is_not_corrected_without_being_told(tables, tmp_path):
    table = tables["vectors"]
    m = fit_table(mgpa.ClosedFormMGPA(), table).to_map()
    other = table.with_columns(source=np.where(table.source == "dry", "headset A", "headset B"))
    with pytest.raises(TableError, match=r"headset A, headset B; the map was fitted on dry, wet.*Pass force"):
        apply_to_table(m, other)
    write_table(other, tmp_path / "other.parquet")
    with pytest.raises(TableError, match="Pass force"):
        apply_to_file(m, tmp_path / "other.parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    np.testing.assert_array_equal(apply_to_table(m, other, force=True).X, apply_to_table(m, table).X)
    # One device in common will do, and so will not saying which devices these are.
    assert len(apply_to_table(m, other.take(table.source == "dry").with_columns(source="dry")))
    assert len(apply_to_table(m, other.with_columns(source=None)))


def test_every_estimator_has_the_one_fit():
    def subclasses(cls):
        return {cls, *(s for sub in cls.__subclasses__() for s in subclasses(sub))}

    make_method("igbp")
    ours = [c for c in subclasses(CorrectionEstimator) if c.__module__.startswith("mgpa.")]
    own_fits = {c.__name__ for c in ours if "fit" in vars(c)}
    assert own_fits == {"CorrectionEstimator"}


@pytest.mark.parametrize("method", ["closed_form_mgpa", "leace", "inlp"])
def test_a_table_without_rows_has_nothing_to_fit_on(method, tmp_path):
    empty = Table(np.zeros((0, 3)), source=np.array([], dtype=str))
    path = write_table(empty, tmp_path / "t.parquet")
    for given in (empty, path):
        with pytest.raises(TableError, match="has no rows to fit on"):
            fit_table(make_method(method), given)


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("method", ["closed_form_mgpa", "leace"])
def test_the_last_fit_is_on_everyone(method, from_file, tmp_path):
    table = simulated_table(n_people=12, events=8)
    told = write_table(table, tmp_path / "t.parquet") if from_file else table
    last = fit_table(make_method(method), told, everyone=True).to_map()
    without_roles = Table(table.X, **{k: v for k, v in table.columns.items() if k != "role"})
    expected = fit_table(make_method(method), without_roles).to_map()
    np.testing.assert_allclose(last.transform(table.X), expected.transform(table.X), rtol=0, atol=1e-12)
    assert last.info.n_rows == len(table) > fit_table(make_method(method), told).to_map().info.n_rows
    assert "the rows of every role" in last.info.notes
