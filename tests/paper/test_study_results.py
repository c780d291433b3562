"""Tables, report and provenance say what the audit says."""

import csv
import json
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

import mgpa
from layout import COLLIDING, OVERFLOWING, measure
from mgpa.audit.metrics import METRICS
from mgpa.paper import load_study, write_results
from mgpa.paper.studies.results import SIMULATED, _sections, contrasts, estimates, provenance
from simulated import simulated_table
from small_studies import CLOSED_FORM, files_of, run, written


def read_rows(path):
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def ends(row):
    return row["value"], row["low"], row["high"]


def test_rows_are_what_the_audit_says(finished):
    result, folder = finished
    audit = result.audits[""]
    rows = list(estimates(result))
    parts = [name for name, metric in METRICS.items() if metric.part_of == "S"]
    more = (*parts, *(f"{t} {way}" for t in ("T_f", "T_r") for way in audit["identity"].directions))
    assert "L" in {metric for metric in more if audit["identity"].has(metric)}
    expected = {
        (name, metric): audit[name].estimate(metric)
        for name, metrics in audit.estimates.items()
        for metric in (*metrics, *(m for m in more if audit[name].has(m)))
    }
    assert {(r["method"], r["metric"]): ends(r) for r in rows} == {
        key: (e.value, e.low, e.high) for key, e in expected.items()
    }
    differences = list(contrasts(result))
    assert {(r["method"], r["against"], r["metric"]) for r in differences} == {
        *(("CF", "identity", metric) for metric in ("S", "T_f", "T_r", "M")),
        *(("CF", "LEACE_50 %", metric) for metric in ("T_f", "worst")),
    }
    for row in differences:
        e = audit.contrast(row["method"], row["against"], row["metric"])
        assert ends(row) == (e.value, e.low, e.high)
    for path, numbers in (("table.csv", rows), ("contrasts.csv", differences)):
        stored = read_rows(folder / path)
        assert [(r["method"], float(r["value"]), float(r["low"])) for r in stored] == [
            (row["method"], row["value"], row["low"]) for row in numbers
        ]
    content = json.loads((folder / "results.json").read_text("utf-8"))
    assert content["estimates"] == rows
    people = {row["participant"] for row in read_rows(folder / "participants.csv")}
    assert people == set(audit["CF"].participants)


def test_the_papers_values_stand_beside_ours(finished):
    result, folder = finished
    rows = {(r["method"], r["metric"]): r for r in estimates(result)}
    beside = {key for key, row in rows.items() if row["paper"] is not None}
    assert beside == {("identity", "S"), ("CF", "S"), ("CF", "M")}
    assert rows["CF", "M"]["difference"] == rows["CF", "M"]["value"] - 0.125
    first = next(contrasts(result))
    assert (first["paper"], first["paper_low"], first["paper_high"]) == (-0.25, -0.3, -0.2)
    stored = {(r["method"], r["metric"]): r for r in read_rows(folder / "table.csv")}
    assert float(stored["CF", "M"]["difference"]) == rows["CF", "M"]["difference"]
    assert stored["CF", "T_f"]["paper"] == stored["CF", "T_f"]["difference"] == ""


def test_the_report_tells_about_the_study_and_loads_nothing(finished):
    text = (finished[1] / "report.html").read_text("utf-8")
    assert "Tiny &amp; &lt;quick&gt;" in text
    assert "<quick>" not in text
    assert "The study" in text
    assert "Declared contrasts of the study" in text
    assert SIMULATED not in text
    assert not re.search(r"""<[^>]*\s(?:src|href)=["'](?!data:|#|report)""", text)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert "@import" not in text


def test_the_report_gives_a_line_to_every_contrast_beside_the_papers(finished):
    text = (finished[1] / "report.html").read_text("utf-8")
    assert text.index('<section id="verdict"') < text.index('<section id="study"')
    [differences] = re.findall(r"<table>.*?</table>", text.partition('<section id="study"')[2], re.DOTALL)[:1]
    lines = dict(re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', differences))
    assert list(lines) == ["CF − Identity", "CF − LEACE_50 %"]
    assert re.findall(r'<th scope="col">(.*?)</th>', differences)[1:] == ["S", "T_f", "T_r", "M", "worst"]
    row = next(contrasts(finished[0]))
    assert f"{row['value']:+.3f}".replace("-0.", "−.") in lines["CF − Identity"]
    assert "◇ −.250 [−.300, −.200]" in lines["CF − Identity"]
    assert "◇" not in lines["CF − LEACE_50 %"]
    assert "This study, with 95 % intervals" in differences


def test_the_papers_numbers_keep_their_digits_in_a_report(finished, monkeypatch):
    result = finished[0]
    small = {"S": [-0.0002, -0.0007, 0.0002]}
    plan = result.study.contrasts[0].model_copy(update={"paper": small})
    study = result.study.model_copy(update={"contrasts": (plan,)})
    [(_, _, text)] = _sections(replace(result, study=study), "", {"": "report.html"})
    assert "◇ −.0002 [−.0007, +.0002]" in text


def test_the_report_fits_a_phone(finished, tmp_path):
    assert measure([(finished[1] / "report.html", 400)], tmp_path, OVERFLOWING, COLLIDING) == [[[], []]]


def test_provenance_says_where_every_number_comes_from(finished):
    result, folder = finished
    found = json.loads((folder / "provenance.json").read_text("utf-8"))
    assert found["command"] == "mgpa study run my.toml --out out"
    assert found["study"]["seeds"] == [17]
    assert found["study"]["data"]["table"] == "rows.npz"
    assert found["study"]["methods"]["Iter"]["parameters"]["n_stages"] == 3
    assert found["versions"]["mgpa"] == mgpa.__version__
    assert found["versions"]["numpy"] == np.__version__
    assert {"python", "scipy", "scikit-learn", "torch"} <= set(found["versions"])
    checksum = sha256((folder.parent / "rows.npz").read_bytes()).hexdigest()
    assert found["data"]["files"] == result.checksums == {"rows.npz": checksum}
    assert found["rows"][""]["EVAL"] > 0
    here = (str(folder.parent), str(Path.home()), str(Path(mgpa.__file__).parent), str(Path.cwd()))
    for name, content in files_of(folder).items():
        if not name.endswith(".png"):
            assert not [path for path in here if len(path) > 1 and path.encode() in content], name


def test_results_have_what_tables_say_and_do_without_what_a_contrast_asks_for(tmp_path):
    info = {"encoder": {"name": "bins"}, "pairing": "12 pairs, 1 dropped"}
    path = written(tmp_path, CLOSED_FORM, table=replace(simulated_table(label=None), info=info))
    result = run(load_study(path, contrasts=[{"a": "CF", "metrics": ["T_f"]}]), tmp_path / "work")
    assert provenance(result, "")["tables"] == {"": info}
    assert list(contrasts(result)) == []
    write_results(result, tmp_path / "out")
    assert "Declared contrasts of the study" not in (tmp_path / "out" / "report.html").read_text("utf-8")
