"""The paper's tables have its rows, columns and numbers, a run's beside them, and name every deviation."""

import csv
import json
import re
from decimal import ROUND_HALF_UP, Decimal

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("matplotlib")

from mgpa.paper import StudyError, load_study, presets
from mgpa.paper.studies.config import TASKS
from mgpa.paper.studies.paper import (
    FACTS,
    TABLES,
    Runs,
    as_html,
    filled,
    latex,
    number_text,
    numbers_csv,
    studies_of,
    write_paper,
)
from mgpa.paper.studies.setup import deviations, effective_settings, heading
from shared import SHARED, needs_shared
from small_studies import in_process

LABELS = {
    "1": "controlled-cf", "2": "real-main", "3": "reuse-main", "7": "target-controls",
    "8A": "critic-complexity", "8B": "critic-complexity", "9": "igbp-budget", "10": "reuse-absolute",
    "11": "reuse-paired",
}  # fmt: skip
PRINTED = ("paper", "paper_low", "paper_high")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d*\.\d+")


def finished(name, shift=0.01, study=None, files="published", **more):
    """Return results of a study that has the paper's numbers, all a little larger."""
    preset = load_study(name, recordings="recordings")
    study = study or preset

    def row(key, method, against, ends):
        task, _, metric = key.partition(" ")
        task, metric = (task, metric) if task in TASKS else ("", key)
        names = {"task": task, "method": method, "against": against, "metric": metric}
        return names | dict(zip(("value", "low", "high"), (x + shift for x in ends), strict=True))

    weights = "0" * 64 if study.encoder.name == "eegpt" else "none"
    if study.encoder.name == "eegpt" and files == "published":
        from mgpa.paper.encoder import EEGPT_WEIGHTS

        weights = EEGPT_WEIGHTS.sha256
    differs = deviations(study, files, weights)
    return {
        "study": name,
        "heading": heading(study, files, differs),
        "deviations": differs,
        "settings": effective_settings(study),
        "digest": "0123456789abcdef",
        "protocol": {"ranks": "3, 3, 3, 2", "participants": "4/2/4/8"},
        "facts": {"protocol": f"{name} ran", "seeds": [name], "readers.bank": "paper"},
        "estimates": [
            row(key, method, "", (x, x, x)) for method, xs in preset.paper.items() for key, x in xs.items()
        ],
        "contrasts": [row(key, c.a, c.b, ends) for c in preset.contrasts for key, ends in c.paper.items()],
        "omitted": {},
    } | more  # fmt: skip


def stored(root, *results):
    for result in results:
        (root / result["study"]).mkdir(parents=True)
        (root / result["study"] / "results.json").write_text(json.dumps(result), "utf-8")
    return [root / result["study"] for result in results]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("runs"), *map(finished, presets()))


@needs_shared
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_every_number_is_where_the_paper_prints_it(table):
    source = (SHARED / "paper.tex").read_text("utf-8")
    start = source.index(rf"\label{{tab:{LABELS[table['name']]}}}")
    printed = source[start : source.index(r"\end{table}", start)]
    if table["name"] in ("8A", "8B"):
        printed = printed.split(r"\end{tabular*}")["AB".index(table["name"][1])]
    body = printed.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    lines = [line for line in body.replace(r"\midrule", "").split(r"\\") if "&" in line]
    rows = filled(table, Runs([]))
    assert len(lines) == len(rows)
    for line, (labels, cells) in zip(lines, rows, strict=True):
        for cell, (_, text) in zip(line.split("&")[-len(table["columns"]) :], cells, strict=True):
            assert [float(x) for x in NUMBER.findall(cell)] == [float(x) for x in NUMBER.findall(text)]
        assert labels[-1].split()[0].split("-")[0] in line or labels[-1] == "Zero score"


@needs_shared
def test_every_result_of_the_text_has_a_row_to_the_printed_digit():
    text = (SHARED / "paper.tex").read_text("utf-8")
    ends = [
        (r"\begin{abstract}", r"\section{Introduction}"),
        (r"\section{Experiments}", r"\section{Discussion"),
        (r"\section{Supporting Experimental Results}", r"\end{document}"),
    ]
    parts = [text[text.index(start) : text.index(end)] for start, end in ends]
    rows = csv.DictReader(numbers_csv(Runs([])).splitlines())
    stored = {
        abs(Decimal(row[key])) for row in rows for key in PRINTED if re.match(r"-?\d*\.?\d+$", row[key])
    }
    stored |= {100 * number for number in stored}  # percentage points
    results = {x for part in parts for x in re.findall(r"(?<![\w.])\d?\.\d{3,4}(?!\d|\\linewidth)", part)}
    assert len(results) > 200
    settings = {".005", ".0005"}  # gamma and a damping
    for number in map(Decimal, results - settings):
        unit = Decimal(1).scaleb(number.as_tuple().exponent)
        assert any(x.quantize(unit, ROUND_HALF_UP) == number for x in stored), number
    assert {Decimal("2.7"), *map(Decimal, (400, 2260, 3060, 1332, 108, 81))} <= stored


def test_a_runs_number_is_rounded_as_in_its_report_and_a_printed_one_as_in_print():
    half = (0.7545, None, None)  # a little less than that, as a float
    assert number_text(half, 3, False, False, False) == f"{half[0]:.3f}" == "0.754"
    assert number_text(half, 3, False, False, False, printed=True) == "0.755"


def test_ratios_and_single_fits_are_computed_from_runs():
    result = finished("controlled-ssvep", shift=0.0)
    for row in result["estimates"]:
        if (row["method"], row["metric"]) == ("Zero target", "S"):
            row |= {"fit_low": 0.4, "fit_high": 0.6}
    numbers = Runs([result]).numbers
    ratio = numbers["controlled-ssvep", "", "Mean target", "", "M times Conditional target"][0]
    assert ratio == pytest.approx(0.4063 / 0.15)
    assert numbers["controlled-ssvep", "", "Zero target", "", "S of highest fit"] == (0.6, None, None)


def test_all_tables_figures_and_numbers_are_written_and_the_same_twice(folders, tmp_path):
    paths = {path.name for path in write_paper(folders, tmp_path / "a")}
    names = [str(i) for i in (*range(1, 8), 9, 10, 11)] + ["8A", "8B"]
    assert paths == {f"table_{name}.tex" for name in names} | {
        "paper.html", "numbers.csv", "figure_2.pdf", "figure_3.pdf", "figure_4.pdf",
    }  # fmt: skip
    write_paper(folders, tmp_path / "a")  # its own files may be replaced
    write_paper(folders, tmp_path / "b")
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in paths)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "table_1.tex").write_text("mine")
    with pytest.raises(FileExistsError, match="did not write"):
        write_paper(folders, tmp_path / "c")
    assert (tmp_path / "c" / "table_1.tex").read_text() == "mine"


def test_a_run_stands_beside_the_paper_and_each_printed_number_has_a_row(folders, tmp_path):
    write_paper(folders, tmp_path)
    text = (tmp_path / "table_1.tex").read_text("utf-8")
    assert " & LEACE & 0.670 [0.660] & 0.666 [0.656] & 0.675 [0.665] & 0.130 [0.120]" in text
    assert "controlled-ssvep: Ours [paper]; no deviation" in text
    assert (
        "$-$3.13 [$-$5.47, $-$1.10] [$-$4.13 [$-$6.47, $-$2.10]]" in (tmp_path / "table_8B.tex").read_text()
    )
    with open(tmp_path / "numbers.csv", encoding="utf-8", newline="") as stream:
        numbers = list(csv.DictReader(stream))
    assert {row["source"] for row in numbers} == {"paper's text", "public release"}
    ranks = {row["study"]: row for row in numbers if row["metric"] == "ranks"}
    assert ranks["controlled-ssvep"]["equal"] == "True"
    assert ranks["temporal-n170"]["equal"] == "False"
    gain = next(row for row in numbers if row["against"] == "LEACE" and row["metric"] == "S")
    assert (gain["same_sign"], gain["intervals_overlap"]) == ("True", "True")


def changed(name, **changes):
    return load_study(name, recordings="recordings", **changes)


@pytest.mark.parametrize(
    ("study", "files", "word", "differs"),
    [
        (load_study("controlled-ssvep"), "simulated", "Simulated", "recordings are simulated"),
        (changed("controlled-ssvep"), "simulated", "Simulated", "recordings are simulated"),
        (changed("temporal-n170", quick=True), "published", "Quick", "quick settings"),
        (changed("temporal-n170", seeds=[17]), "published", "Changed", "seeds is [17] (preset: [17, 29"),
        (changed("temporal-n170"), "42 published files are missing", "Changed", "42 published files"),
        (changed("controlled-ssvep", endpoints={"gamma": 0.01}), "published", "Changed", "gamma is 0.01"),
        (changed("temporal-n170", methods={"IGBP": False}), "published", "Changed", "left out: IGBP"),
    ],
)
def test_a_run_that_deviates_is_never_called_ours(study, files, word, differs):
    result = finished(study.name, study=study, files=files)
    assert result["heading"] == word
    runs = Runs([result])
    tables = [table for table in TABLES if study.name in studies_of(table)]
    assert tables
    for text in (as_html(tables, runs), *(latex(table, runs) for table in tables)):
        assert "Ours" not in text
        assert f"{study.name}: {word} [paper]; " in text
        assert differs.split("[")[0] in text.replace(r"\_", "_")
    rows = [row for row in csv.DictReader(numbers_csv(runs).splitlines()) if row["study"] == study.name]
    assert {row["run"] for row in rows} == {word}
    assert all(differs in row["deviations"] for row in rows)


def test_what_differs_from_the_paper_is_said():
    """Findings of a review: weights, gamma in words, the reader seed, the critic on a GPU."""
    study = changed("controlled-ssvep")
    assert "encoder weights are random" in deviations(study, "published", "random weights, seed 0")
    assert "encoder weights are not the published file" in deviations(study, "published", "ab" * 32)
    assert "keep 2 % of them" in load_study("controlled-ssvep").description
    assert "keep 0.5 % of them" in changed("controlled-ssvep").description
    study = changed("temporal-n170")
    on_gpu = deviations(study, "published", "none", "cuda:0")
    assert [line.split(" are ")[0] for line in on_gpu] == ["logistic critics", "logistic readers"]
    assert deviations(study, "published", "none", "cpu") == []
    short = changed("temporal-n170", methods={"MGPA-Iter": {"parameters": {"n_stages": 12}}})
    listed = deviations(short, "published", "none")
    assert listed == ["methods.MGPA-Iter.parameters.n_stages is 12 (preset: 48)"]
    usual = changed("temporal-n170", methods={"MGPA-Iter": {"parameters": {"n_stages": 48}}})
    assert deviations(usual, "published", "none") == []
    named = [name for name, m in study.methods.items() if m.method == "iterative_mgpa"]
    lbfgs = changed("temporal-n170", methods={n: {"parameters": {"critics": ["lbfgs"]}} for n in named})
    assert not any("critics" in line for line in deviations(lbfgs, "published", "none", "cuda"))
    linear = changed("temporal-n170", readers={"restarts": 0})  # which are fitted by numpy
    assert not any("readers are" in line for line in deviations(linear, "published", "none", "cuda"))
    assert FACTS["temporal-n170", "reader seed"] == ("98", "public release")


def test_tables_4_to_6_say_what_ran_and_the_figure_its_budget(tmp_path):
    study = changed("controlled-ssvep", methods={"Measurement gate": {"budget": 0.07}})
    results = [finished("controlled-ssvep", study=study), finished("temporal-n170")]
    write_paper(stored(tmp_path, *results), tmp_path / "paper")
    four, five = ((tmp_path / "paper" / f"table_{i}.tex").read_text("utf-8") for i in (4, 5))
    assert "controlled-ssvep ran" in four
    assert "not run" in four
    assert "What ran: controlled-ssvep (Changed), temporal-n170 (Ours)." in four
    assert "What ran: controlled-ssvep (Changed), temporal-n170 (Ours)." in five
    page = (tmp_path / "paper" / "paper.html").read_text("utf-8")
    assert re.findall(r"Table (\d+)", page) == [*"12345678", *"89", "10", "11"]
    assert "controlled-ssvep: seeds ['controlled-ssvep']; temporal-n170: seeds ['temporal-n170']" in five
    from mgpa.paper.studies.figures import gate_figure

    title = gate_figure(Runs(results)).axes[0].get_title(loc="left")
    assert ".07" in title


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_every_line_of_a_latex_table_has_all_columns(table):
    body = latex(table, Runs([])).split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") + 1 for line in lines} == {len(table["labels"]) + len(table["columns"])}


def test_what_was_not_run_or_left_out_is_said(tmp_path):
    results = finished("temporal-n170", omitted={"IGBP at .25": "a budget of 0.25 is beyond fit 0"})
    results["estimates"] = [row for row in results["estimates"] if row["method"] != "IGBP at .25"]
    write_paper(stored(tmp_path, results), tmp_path / "paper")
    nine, eight, two = (
        (tmp_path / "paper" / f"table_{name}.tex").read_text("utf-8") for name in ("9", "8A", "2")
    )
    assert "IGBP at .25 is left out, a budget of 0.25 is beyond fit 0." in nine
    assert "-- [0.9877]" in nine
    assert "left out" not in eight
    assert "recorded-ssvep: not run." in two
    assert not (tmp_path / "paper" / "figure_4.pdf").exists()


def test_folders_that_hold_no_run_or_the_same_are_refused(folders, tmp_path):
    with pytest.raises(StudyError, match=r"no results\.json; `mgpa study run`"):
        write_paper([tmp_path], tmp_path / "out")
    with pytest.raises(StudyError, match="same study"):
        write_paper([folders[0], folders[0]], tmp_path / "out")


def test_the_command_writes_tables_from_published_values_alone(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cyclopts")
    assert in_process(monkeypatch, "study", "paper", "--published", "--out", tmp_path / "paper") == 0
    assert str(tmp_path / "paper" / "paper.html") in capsys.readouterr().out
    assert "Published participant values" in (tmp_path / "paper" / "table_3.tex").read_text("utf-8")
