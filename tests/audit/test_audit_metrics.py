"""The list of metrics: their values, words and outcomes, and that there is no other list."""

from dataclasses import replace

import numpy as np
import pytest

from audited import run
from mgpa.audit import METRICS, Estimate, estimate, find_metric
from mgpa.audit.readers import FURTHER
from mgpa.audit.verdict import text
from simulated import simulated_table


@pytest.fixture(scope="module")
def table():
    return simulated_table()


def test_parts_of_a_metric_are_metrics(table):
    result = run(table, ["leace"], readers={"restarts": 0})["leace"]
    linear = [i for i, name in enumerate(result.readers) if "linear" in name]
    assert len(linear) == 2 < len(result.readers)
    assert result.estimate("L") == estimate(result.source_auroc[..., linear], "best", widen=True)
    both = [result.estimate(f"T_f {way}").value for way in result.directions]
    assert np.mean(both) == pytest.approx(result.estimate("T_f").value)
    assert not result.has("S_mean")
    paper = [i for i, name in enumerate(result.readers) if name not in FURTHER]
    assert len(paper) == len(result.readers) - len(FURTHER)
    assert result.estimate("S_paper") == estimate(result.source_auroc[..., paper], "best", widen=True)
    assert not run(table, ["leace"])["leace"].has("S_paper")
    assert not result.has("T_f nowhere → here")


EXTRA = replace(
    METRICS["T_f"], name="extra", title="Extra heads", subject="extra heads",
    values=lambda result: result.heads["frozen"][..., 0],
)  # fmt: skip


def test_a_metric_that_is_added_to_the_list_is_everywhere(table, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pydantic")
    from mgpa.paper.studies.config import ContrastSection

    monkeypatch.setitem(METRICS, "extra", EXTRA)
    found = run(table, ["leace"], floor=False)
    assert "extra" in found.metrics
    assert found["leace"].estimate("extra") == found.estimates["leace"]["extra"]
    assert "extra (want high)" in text(found, verbose=True)
    assert any(line.startswith("Extra heads (extra): ") for line in found.verdict("leace"))
    assert ",extra," in found.to_csv(tmp_path / "table.csv").read_text()
    page = found.report(tmp_path / "report.html").read_text("utf-8")
    assert "extra heads, higher is better" in page
    assert ContrastSection(a="leace", metrics=["extra"]).metrics == ("extra",)


@pytest.mark.parametrize(
    ("metric", "change", "outcome"),
    [
        ("S", (-0.2, -0.3, -0.1), "improved"),
        ("S", (0.2, 0.1, 0.3), "suffered"),
        ("S", (-0.001, -0.002, 0.001), "unclear"),
        ("T_f", (0.01, 0.001, 0.02), "improved"),
        ("T_f", (-0.003, -0.007, 0.001), "kept"),
        ("T_f", (-0.004, -0.009, -0.001), "kept"),
        ("T_f", (-0.004, -0.009, -0.001, 24), "suffered"),  # 1.5 times as long, its interval ends at -.012
        ("T_f", (-0.004, -0.009, -0.001, 200), "kept"),  # 1.1 times: -.0096
        ("T_f", (0.01, 0.001, 0.02, 6), "unclear"),  # a gain that few lack may look so
        ("T_f", (0.01, 0.001, 0.02, 24), "kept"),
        ("T_f", (0.01, 0.001, 0.02, 100), "improved"),
        ("S", (-0.2, -0.3, -0.1, 6), "improved"),
        ("T_f", (-0.02, -0.03, -0.01), "suffered"),
        ("T_r", (-0.01, -0.03, 0.01), "unclear"),
    ],
)
def test_outcomes_follow_the_direction_and_what_counts_as_kept(metric, change, outcome):
    assert METRICS[metric].outcome(Estimate(*change)) == outcome


def test_a_metric_that_is_none_is_named_and_one_that_is_missing_says_why():
    with pytest.raises(ValueError, match=r"No metric 'AUC'\. Metrics: S, home, RMSEP_home, away, T_f"):
        find_metric("AUC")
    found = run(simulated_table(label=None), ["leace"])
    with pytest.raises(KeyError, match="No method 'mgpa'"):
        found.contrast("mgpa")
    alone = found["leace"]
    for name, why in (
        ("T_f", "labels are not classes"),
        ("worst", "paired events"),
        ("floor", "a gate that does not span all directions"),
    ):
        with pytest.raises(ValueError, match=f"{name} was not measured for leace: .*{why}"):
            alone.values(name)
    assert not alone.has("T_f dry → wet")
