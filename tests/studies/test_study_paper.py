"""The paper's tables have its rows, columns and numbers, and ours beside them."""

import csv
import json
import re
import shutil
import subprocess

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("matplotlib")

from mgpa.studies import StudyError, load_study, presets
from mgpa.studies.paper import latex, text_of, write_paper
from mgpa.studies.paper_layout import NUMBERS, TASKS, Value
from mgpa.studies.paper_numbers import Found, Runs
from shared import SHARED, needs_shared
from small_studies import in_process

LABELS = {
    "1": "controlled-cf", "2": "real-main", "3": "reuse-main", "7": "target-controls",
    "8A": "critic-complexity", "8B": "critic-complexity", "9": "igbp-budget", "10": "reuse-absolute",
    "11": "reuse-paired",
}  # fmt: skip
NUMBER = re.compile(r"(?<![\w.])[-+]?\d*\.\d+")


def found(name, shift=0.01, **more):
    """Return results of a study that found the paper's numbers, all a little larger."""
    study = load_study(name)

    def row(key, method, against, ends):
        task, _, metric = key.partition(" ")
        task, metric = (task, metric) if task in TASKS else ("", key)
        names = {"task": task, "method": method, "against": against, "metric": metric}
        return names | dict(zip(("value", "low", "high"), (x + shift for x in ends), strict=True))

    return {
        "study": name,
        "simulated": True,
        "protocol": {
            "participants": {"FIT": 4, "VAL": 2, "HEAD": 4, "EVAL": 8},
            "features": [512], "encoder": "windowed power", "ranks": [3, 2],
        },
        "estimates": [
            row(key, method, "", (x, x, x)) for method, xs in study.paper.items() for key, x in xs.items()
        ],
        "contrasts": [row(key, c.a, c.b, ends) for c in study.contrasts for key, ends in c.paper.items()],
        "omitted": {},
    } | more  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for name in presets():
        (root / name).mkdir()
        (root / name / "results.json").write_text(json.dumps(found(name)), "utf-8")
    return [root / name for name in presets()]


@needs_shared
@pytest.mark.parametrize("table", NUMBERS, ids=lambda table: table.name)
def test_every_number_is_where_the_paper_prints_it(table):
    source = (SHARED / "paper.tex").read_text("utf-8")
    start = source.index(rf"\label{{tab:{LABELS[table.name]}}}")
    printed = source[start : source.index(r"\end{table}", start)]
    if table.name in ("8A", "8B"):
        printed = printed.split(r"\end{tabular*}")["AB".index(table.name[1])]
    body = printed.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    lines = [line for line in body.replace(r"\midrule", "").split(r"\\") if "&" in line]
    assert len(lines) == len(table.lines)
    runs = Runs([])
    for line, ours in zip(lines, table.lines, strict=True):
        cells = line.split("&")[-len(table.columns) :]
        shown = [c if isinstance(c, str) else text_of(c, runs.paper(c)) for c in ours.cells]
        for cell, text in zip(cells, shown, strict=True):
            assert [float(x) for x in NUMBER.findall(cell)] == [float(x) for x in NUMBER.findall(text)]
        assert ours.labels[-1].split()[0].split("-")[0] in line or ours.labels[-1] in ("Zero score",)


def test_all_tables_and_figures_are_written_in_three_forms(folders, tmp_path):
    paths = {path.name for path in write_paper(folders, tmp_path)}
    names = [str(i) for i in (*range(1, 8), 9, 10, 11)] + ["8A", "8B"]
    assert paths == {f"table_{name}.{kind}" for name in names for kind in ("tex", "csv", "pdf")} | {
        f"figure_{i}.pdf" for i in (2, 3, 4)
    }
    assert all((tmp_path / name).read_bytes().startswith(b"%PDF") for name in paths if name.endswith("pdf"))
    again = tmp_path / "again"
    write_paper(folders, again)
    assert all((again / name).read_bytes() == (tmp_path / name).read_bytes() for name in paths)


def test_ours_stand_beside_the_papers(folders, tmp_path):
    write_paper(folders, tmp_path)
    with open(tmp_path / "table_1.csv", encoding="utf-8", newline="") as stream:
        rows = {row["Method"]: row for row in csv.DictReader(stream)}
    assert (rows["MGPA-CF"]["Source ↓"], rows["MGPA-CF"]["Source ↓ [paper]"]) == ("0.520", "0.510")
    text = (tmp_path / "table_1.tex").read_text("utf-8")
    assert " & LEACE & 0.670 [0.660] & 0.666 [0.656] & 0.675 [0.665] & 0.130 [0.120]" in text
    assert "% controlled-ssvep: our recordings are simulated" in text
    gains = (tmp_path / "table_8B.tex").read_text("utf-8")
    assert "Paired difference & $-$3.13 [$-$5.47, $-$1.10]" in gains
    assert "{[paper]} & $-$4.13 [$-$6.47, $-$2.10]" in gains
    assert "4/2/4/8" in (tmp_path / "table_4.csv").read_text("utf-8")


@pytest.mark.parametrize("table", NUMBERS, ids=lambda table: table.name)
def test_every_line_of_a_latex_table_has_all_columns(table):
    body = latex(table, Runs([]), []).split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") + 1 for line in lines} == {len(table.labels) + len(table.columns)}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_sets_every_table_within_the_text(folders, tmp_path):
    tables = sorted(path.name for path in write_paper(folders, tmp_path) if path.suffix == ".tex")
    assert len(tables) == 12
    document = [r"\documentclass{article}", r"\usepackage{booktabs,graphicx}", r"\begin{document}"]
    document += [rf"\input{{{name}}}\clearpage" for name in tables]
    (tmp_path / "all.tex").write_text("\n".join([*document, r"\end{document}"]), "utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Missing character" not in (tmp_path / "all.log").read_text("utf-8", errors="replace")


def test_a_study_that_was_not_run_leaves_its_columns_to_the_paper(folders, tmp_path):
    write_paper(folders[:1], tmp_path)
    assert folders[0].name == "controlled-ssvep"
    text = (tmp_path / "table_2.tex").read_text("utf-8")
    assert "– [0.989]".replace("–", "--") in text
    assert "% temporal-n170 was not run." in text
    assert not (tmp_path / "figure_4.pdf").exists()


def test_what_a_budget_left_out_is_said_where_it_would_stand(tmp_path):
    results = found("temporal-n170", omitted={"IGBP at .25": "a budget of 0.25 is beyond fit 0"})
    results["estimates"] = [row for row in results["estimates"] if row["method"] != "IGBP at .25"]
    runs = Runs([results])
    tables = {table.name: table for table in NUMBERS}
    said = "temporal-n170: IGBP at .25 is left out, a budget of 0.25 is beyond fit 0."
    assert said in runs.notes(tables["9"])
    assert said not in runs.notes(tables["8A"])
    assert "-- [0.9877]" in latex(tables["9"], runs, [])


def test_folders_that_are_no_runs_or_the_same_are_refused(folders, tmp_path):
    with pytest.raises(StudyError, match=r"no results\.json; `mgpa study run`"):
        write_paper([tmp_path], tmp_path / "out")
    with pytest.raises(StudyError, match="same study"):
        write_paper([folders[0], folders[0]], tmp_path / "out")


def test_numbers_are_written_as_in_the_paper():
    gain = Value("s", "a", "S", against="b", digits=2, percent=True, interval=True)
    assert text_of(gain, Found(-0.0413, -0.0647, -0.021)) == "-4.13 [-6.47, -2.10]"
    assert text_of(Value("s", "a", "S"), Found(0.98765, 0.9, 1.0)) == "0.988"
    assert text_of(Value("s", "a", "S"), None) == "–"


def test_the_command_prints_what_it_wrote(folders, tmp_path, monkeypatch, capsys):
    pytest.importorskip("cyclopts")
    assert in_process(monkeypatch, "study", "paper", *folders, "--out", tmp_path / "paper") == 0
    assert str(tmp_path / "paper" / "table_11.pdf") in capsys.readouterr().out
