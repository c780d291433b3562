"""Rows of the promises table of docs/reproduce.md are computed here, or by the test of tests/core they name.

A check returns the state it found, which begins with one of three words; the row has to begin with it.
"""

import inspect
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic")
pytest.importorskip("torch")

from mgpa.audit import METRICS, assign_endpoints, estimate, run_readers
from mgpa.audit import draws as bootstrap
from mgpa.audit.heads import SOURCE_SEED_OFFSET
from mgpa.audit.readers import SEED, run_residual_readers, run_token_readers
from mgpa.audit.readers.networks import restart_seeds
from mgpa.baselines import igbp
from mgpa.paper import load_study, plan_study
from mgpa.paper.datasets.raw_files import FLEX_RATE, MARKER_DELAY
from mgpa.paper.studies import recordings
from mgpa.paper.studies.figures import geometry_figure, illustrate, illustrated_costs, reuse_figure
from mgpa.paper.studies.paper import FACTS, TABLES, Runs, filled
from mgpa.paper.studies.setup import deviations, effective_settings
from mgpa.position import projection

FORMULA, SETTING, NUMBER = WORDS = ("formula equal", "setting equal", "number reproduced")
PAGE = Path(__file__).parents[2] / "docs" / "reproduce.md"


def promises():
    """Return the rows of the table: name of the check, and the state."""
    rows = PAGE.read_text("utf-8").partition("| paper | promise |")[2].splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if row.startswith("|")]
    return {check.strip("`"): state for *_, state, check in cells}


def recorded(name, **changes):
    return load_study(name, recordings="recordings", **changes)


def parameters(study, method):
    return effective_settings(recorded(study))["methods"][method]["parameters"]


def costs():
    """Equation (6): among edits that reach a score, none is shorter than the projection's."""
    rng = np.random.default_rng(0)
    root, delta, x = rng.normal(size=(4, 4)), rng.normal(size=(4, 1)), rng.normal(size=4)
    metric = np.linalg.inv(root @ root.T)
    directions, weights = projection(root @ root.T, delta)
    edit, score = directions @ (weights.T @ x), metric @ delta[:, 0]
    assert score @ (x - edit) == pytest.approx(0, abs=1e-9)
    for _ in range(50):
        other = rng.normal(size=4)
        other *= (score @ x) / (score @ other)
        assert edit @ metric @ edit <= other @ metric @ other + 1e-9
    return FORMULA


def figure_2():
    """The rows drawn move as equations (9) and (10) say, and end where the three targets are."""
    drawn = illustrate(200_000)
    for name, cost in illustrated_costs().items():
        moved = ((getattr(drawn, name) - drawn.rows) ** 2).sum(axis=1)
        assert moved.mean() == pytest.approx(cost, abs=4 * moved.std() / len(moved) ** 0.5)
    score = np.log(0.8 / 0.2) + drawn.rows @ [2.0, 0.0]  # the Bayes score of means (±1, 0), covariance I
    assert np.allclose(np.log(4.0) + drawn.zero @ [2.0, 0.0], 0)
    assert np.allclose(np.log(4.0) + drawn.mean @ [2.0, 0.0], score.mean(), atol=0.05)
    np.testing.assert_array_equal(drawn.mean[:, 1], drawn.rows[:, 1])
    assert len(geometry_figure().axes) == 3
    return FORMULA


def table_1():
    study = recorded("controlled-ssvep")
    assert (study.endpoints.gamma, study.endpoints.association) == (0.005, 0.9)
    assert (study.gate.rank, study.gate.norm_quantile, study.gate.max_contrasts) == (0.9, 0.05, 2048)
    assert (study.views.references, study.views.crop) == ({"car": "average", "oz": "Oz"}, (160, 660))
    assert (study.encoder.name, study.encoder.checkpoint, study.encoder.pool) == ("eegpt", "paper", True)
    names = ["LEACE", "MGPA-CF", *(f"{m} → ref. {k}" for m in ("CORAL", "FEATMAP") for k in (0, 1))]
    assert [study.methods[name].budget for name in names] == [None] * 6
    assert parameters("controlled-ssvep", "MGPA-CF")["strength"] == 1.0
    assert parameters("controlled-ssvep", "LEACE")["ridge"] == 0.0
    for k, view in enumerate(("car", "oz")):
        assert (
            parameters("controlled-ssvep", f"CORAL → ref. {k}").items()
            >= {"reference": view, "ridge": 1.0}.items()
        )
        assert (
            parameters("controlled-ssvep", f"FEATMAP → ref. {k}").items()
            >= {"reference": view, "ridge": 0.0}.items()
        )
        assert study.methods[f"FEATMAP → ref. {k}"].pairs == "endpoints"
    return SETTING


def table_2():
    first, second = recorded("temporal-n170"), recorded("recorded-ssvep")
    assert (first.data.artifact, first.gate.rank, first.encoder.name) == (100e-6, 0.9, "temporal_bins")
    assert (second.gate.rank, second.gate.norm_quantile, second.gate.tokens) == (0.99, 0.0, True)
    assert recordings.STRENGTHS == (0.5, 1.0)
    assert second.views.transport is not None
    assert second.views.transport.power_once is False
    assert (second.data.labels, second.methods["MGPA-Iter"].tokens) == ({"frequency": "target"}, "mean")
    longer = {"learning_rate": 2e-4, "batch_size": 256, "max_epochs": 50, "patience": 10, "n_stages": 100}
    for name in ("temporal-n170", "recorded-ssvep"):
        assert parameters(name, "IGBP").items() >= longer.items()
        assert parameters(name, "CORAL → ref. 0")["ridge"] == 1.0
    assert (igbp.WEIGHT_DECAY, igbp.MIN_GAIN) == (0.01, 0.002)
    assert not [name for name in second.methods if "FEATMAP" in name]
    return SETTING


def figure_3():
    study = load_study("controlled-ssvep")
    gates = {
        name: study.methods[name] for name in ("Measurement gate", "PCA gate", "Random gates", "Ungated")
    }
    assert [m.gate for m in gates.values()] == ["measurement", "pca", "random", "full"]
    assert {m.budget for m in gates.values()} == {0.05}
    assert len(gates["Random gates"].gate_seeds) == 5
    cells = plan_study(study, Path("nowhere"))
    counted = sum(cells[name] for name in gates) + len(study.seeds) * len(study.roles.rotations)
    assert str(counted) == FACTS["controlled-ssvep", "cells at .05"][0]
    return SETTING


def figure_4():
    runs = Runs.read([], published=True)
    figure = reuse_figure(runs)
    for ax, task in zip(figure.axes, ("N170", "MMN"), strict=True):
        names = [text.get_text() for text in ax.get_yticklabels()]
        assert {"MGPA-CF †", "MGPA-Iter †"} <= set(names)
        drawn = {line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"}
        for name in ("LEACE", "MGPA-CF", "MGPA-Iter", "CORAL", "FEATMAP"):
            printed = runs.paper["p300-reuse", task, name, "", "worst"][0]
            assert any(round(x, 3) == printed for x in drawn), (task, name)
    return NUMBER


def protocol():
    for name in ("temporal-n170", "p300-reuse"):
        people = recorded(name).roles.people
        counts = "/".join(str(len(people[role])) for role in ("FIT", "VAL", "HEAD", "EVAL"))
        assert counts == FACTS[name, "participants"][0]
    assert str(recorded("p300-reuse").gate.rank) == FACTS["p300-reuse", "ranks"][0]
    assert recorded("controlled-ssvep").roles.rotations == (1, 2, 3, 4)
    return SETTING


def settings():
    shared = {"n_stages": 48, "ridge": 10.0, "stabilizer": 0.1, "damping": 1e-3}
    native = {"critic_epochs": 12, "learning_rate": 1e-3, "radius": 0.05}
    reuse = {"critic_epochs": 100, "learning_rate": 3e-4, "radius": 0.025, "patience": 10}
    for study, more in (("temporal-n170", native), ("p300-reuse", reuse)):
        assert parameters(study, "MGPA-Iter").items() >= (shared | more).items()
    found = parameters("temporal-n170", "MGPA-CF")
    assert (found["ridge"], found["shrinkage"], found["anchor"]) == (10.0, 0.01, "pooled")
    for study in ("controlled-ssvep", "temporal-n170", "recorded-ssvep", "p300-reuse"):
        for method in effective_settings(recorded(study))["methods"].values():
            if method["method"].endswith("mgpa"):  # all pairs count, and nothing is withheld
                assert method["parameters"]["do_no_harm"] is False
    assert recorded("temporal-n170").seeds == (17, 29, 43)
    return SETTING


def readers():
    X, source = np.random.default_rng(0).normal(size=(40, 2, 3)), np.arange(40) % 2
    quick = {"device": "cpu", "checkpoints": (1, 2, 3)}
    assert len(run_readers(X[:, 0], source, X[:5, 0], **quick)) == 11
    residual = run_residual_readers(X, source, X[:5], **quick)
    assert len(run_token_readers(X, source, X[:5], residual=residual, **quick)) == 41
    assert recorded("temporal-n170").readers.seed == SEED == 98
    assert any(
        "readers" in line for line in deviations(recorded("temporal-n170"), "published", "none", "cuda")
    )
    return f"{SETTING}; on a GPU logistic readers are solved to the end"


def unattained():
    study = load_study("controlled-ssvep")
    assert study.methods["Random gates at .10"].budget == 0.10
    _, fits = FACTS["controlled-ssvep", "unattained Random gates at .10"][0].split(" of ")
    assert plan_study(study, Path("nowhere"))["Random gates at .10"] == int(fits) == 60
    return SETTING


def intervals():
    assert (bootstrap.DRAWS, bootstrap.SEED) == (20_000, 1101)
    people = np.random.default_rng(0).normal(size=(1, 9))
    draws = np.random.default_rng(1101).integers(0, 9, (20_000, 9))
    low, high = np.percentile(people[0][draws].mean(axis=1), (2.5, 97.5))
    found = estimate(people, "mean")
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    return FORMULA


def targets():
    for target in ("conditional", "mean", "zero"):
        assert parameters("controlled-ssvep", f"{target.capitalize()} target")["target"] == target
    return SETTING


def critics():
    assert tuple(parameters("temporal-n170", "Linear-only")["critics"]) == ("linear",)
    methods = recorded("temporal-n170").methods
    for name in ("MGPA-Iter", "IGBP"):
        assert [methods[f"{name} at {b}"].budget for b in (".10", ".25")] == [0.10, 0.25]
    return SETTING


def token_readers():
    assert {METRICS[name].part_of for name in ("S_direct", "S_residual", "S_mean")} == {"S"}
    printed = recorded("recorded-ssvep").paper["MGPA-Iter"]
    assert {"S_direct", "S_residual", "S_mean"} <= set(printed)
    return SETTING


def reuse():
    runs = Runs.read([], published=True)
    for table in TABLES:
        if table["name"] in ("3", "10", "11"):
            for _, cells in filled(table, runs):
                assert all(run == paper for run, paper in cells), table["name"]
    ranges = {("N170", "MGPA-Iter"): (0.417, 0.471), ("MMN", "MGPA-Iter"): (0.622, 0.639)}
    rows = {
        (r["task"], r["method"]): r for r in runs.results["p300-reuse"]["estimates"] if r["metric"] == "worst"
    }
    for key, (low, high) in ranges.items():
        assert (round(rows[key]["fit_low"], 3), round(rows[key]["fit_high"], 3)) == (low, high)
    return NUMBER


def test_the_facts_of_the_release_on_the_page_are_those_of_the_code():
    text = (PAGE.parent / "protocol.md").read_text("utf-8")
    page = text.partition("## What is taken from the public release")[2]
    controlled, reused = load_study("controlled-ssvep"), load_study("p300-reuse").reuse
    seeds = [controlled.roles.seed, load_study("recorded-ssvep").roles.seed, *restart_seeds(SEED, 3)]
    seeds += [
        recordings.VIEWS_SEED,
        recordings.TRANSPORT_SEED,
        *controlled.methods["Random gates"].gate_seeds,
    ]
    seeds += [reused.fit_seed, reused.development_seed, *(SEED + SOURCE_SEED_OFFSET + k for k in (0, 1))]
    seeds += [inspect.signature(assign_endpoints).parameters["seed"].default, FLEX_RATE]
    assert not [seed for seed in seeds if not re.search(rf"(?<![\d.]){re.escape(str(seed))}\b", page)]
    assert MARKER_DELAY == 8
    rows = files("mgpa.paper.studies").joinpath("published_reuse.csv").read_text("utf-8").splitlines()
    assert f"| {sum(line[0] != '#' for line in rows) - 1} rows |" in page
    for selected in ("13, 11, 19", "0.98", "1"):
        assert selected.lstrip("0") in page
        assert selected in [value for (study, _), (value, _) in FACTS.items() if study == "p300-reuse"]


CHECKS = (
    *(costs, figure_2, table_1, table_2, figure_3, figure_4, protocol, settings, readers, unattained),
    *(intervals, targets, critics, token_readers, reuse),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_promise_holds_and_the_page_says_how(check):
    found = check()
    assert found.startswith(WORDS)
    assert promises()[check.__name__].startswith(found)


def test_every_promise_is_checked_and_names_something_that_exists():
    import pydoc

    elsewhere = {name: state for name, state in promises().items() if name.startswith("test_")}
    assert all(state.startswith(FORMULA) for state in elsewhere.values())
    assert set(promises()) - set(elsewhere) == {check.__name__ for check in CHECKS}
    core = "".join(path.read_text("utf-8") for path in (PAGE.parents[1] / "tests" / "core").glob("test_*.py"))
    assert all(f"def {name}(" in core for name in elsewhere)
    for name in re.findall(r"`(mgpa\.[\w.]+)`", PAGE.read_text("utf-8")):
        assert pydoc.locate(name) is not None, name
