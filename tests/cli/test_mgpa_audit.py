"""`mgpa audit`: the files they write, and cells that are computed once."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from mgpa.tables import write_table
from terminal import done, here, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr("mgpa.audit.plots.draw_all", lambda audit: {})


COMMAND = ("audit", "rec ördings.parquet", "--out", "audit", "--quick", "--folds", "1")
COMMAND += ("--methods", "leace", "closed_form_mgpa", "map one.safetensors")


def test_an_audit_writes_its_report_and_tables(folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    facts = json.loads(done(*COMMAND, "--json", "--open", folder=folder).stdout)
    assert opened == [(folder / "audit" / "report.html").resolve().as_uri()]
    assert facts["estimates"]["closed_form_mgpa"]["S"][0] < facts["estimates"]["identity"]["S"][0]
    assert set(facts["findings"]) == {"leace", "closed_form_mgpa", "map one"}
    for name in ("report.html", "table.csv"):
        assert (folder / "audit" / name).stat().st_size > 0
    assert list((folder / "audit" / "figures").glob("*.pdf"))


def test_a_figure_of_somebody_else_is_not_replaced(folder, monkeypatch):
    figure = folder / "audit" / "figures" / "theirs.svg"
    if not figure.parent.is_dir():
        done(*COMMAND, folder=folder)
    figure.write_text("theirs")
    monkeypatch.setattr("mgpa.audit.plots.draw_all", lambda audit: {"theirs": pytest.fail})
    assert "theirs.svg was not written by mgpa" in refused(*COMMAND, folder=folder)
    assert figure.read_text() == "theirs"


def test_an_audit_prints_little_and_fails_where_a_requirement_is_not_met(folder, no_figures):
    strict = here(*COMMAND, "--require", "S<=.1 and loss<=.5", folder=folder)
    assert strict.returncode == 1
    assert "LEACE: S is ." in strict.stdout
    text = done(*COMMAND, "--require", "S<=1", folder=folder).stdout
    assert len(text.splitlines()) <= 16
    assert text.rstrip().endswith("report.html")
    assert "Task, refitted heads (T_r): " in done(*COMMAND, "--verbose", folder=folder).stdout
    assert refused(*COMMAND, "--require", "S=1", folder=folder).startswith("Cannot read 'S=1'.")


def test_an_audit_without_torch_says_which_readers_are_missing(folder, monkeypatch, no_figures):
    monkeypatch.setitem(sys.modules, "torch", None)
    text = done("audit", "rec ördings.parquet", "--out", "no torch", "--folds", "1", folder=folder).stdout
    assert "no networks among the readers (torch is not installed)" in text
    assert "no networks among the readers" in (folder / "no torch" / "report.html").read_text()
    line = refused("audit", "rec ördings.parquet", "--out", "no torch", "--readers", "paper", folder=folder)
    assert "needs torch" in line


@pytest.mark.parametrize("command", ["audit rec.npz", "study run controlled-ssvep --quick", "demo"])
def test_an_output_folder_of_somebody_else_is_refused_before_the_work(table, tmp_path, command):
    write_table(table, tmp_path / "rec.npz")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "table.csv").write_text("mine")
    assert "mgpa did not write" in refused(*command.split(), "--out", "mine", folder=tmp_path)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["table.csv"]
    assert (tmp_path / "mine" / "table.csv").read_text() == "mine"


@pytest.fixture(scope="module")
def maps(folder):
    """Two maps of the same file name, and one that is called like a method."""
    for where, method in (("A/adapter", "leace"), ("B/adapter", "closed_form_mgpa"), ("leace", "combat")):
        (folder / where).parent.mkdir(exist_ok=True)
        done("fit", "rec ördings.parquet", "--method", method, "--out", f"{where}.safetensors", folder=folder)


def test_stored_maps_have_names_of_their_own(folder, maps, no_figures):
    entries = ("A/adapter.safetensors", "B/adapter.safetensors", "leace.safetensors", "leace")
    arguments = ("--out", "named", "--quick", "--folds", "1", "--json", "--methods", *entries)
    estimates = json.loads(done("audit", "rec ördings.parquet", *arguments, folder=folder).stdout)[
        "estimates"
    ]
    assert set(estimates) == {"identity", *entries}
    assert estimates["A/adapter.safetensors"]["M"] == pytest.approx(estimates["leace"]["M"])
    assert len({round(estimates[name]["M"][0], 6) for name in entries}) == 3
    for twice in (("leace", "LEACE"), ("A/adapter.safetensors", "A/adapter.safetensors")):
        line = refused("audit", "rec ördings.parquet", "--out", "twice", "--methods", *twice, folder=folder)
        assert line == f"--methods has {twice[1]} twice; name each method or map once."
    assert not (folder / "twice").exists()


def test_rows_of_every_source_without_a_pair_id_are_asked_about(tmp_path, no_figures):
    rng, people = np.random.default_rng(0), np.repeat([f"p{i}" for i in range(24)], 2)
    frame = pd.DataFrame(rng.normal(size=(48, 3)), columns=["e0", "e1", "e2"])
    frame.assign(subject=people, site=[*"ab"] * 24, visit="first").to_parquet(tmp_path / "sites.parquet")
    options = ("--quick", "--out", "out", "--embedding", "e", "--rename.site", "source", "--rename.subject")
    ran = done("audit", "sites.parquet", *options, "participant", folder=tmp_path)
    assert (
        "MGPA is left out. Do all rows of a subject show one event? Add --rename.subject pair_id"
        in ran.stderr
    )
    line = refused("check-pairs", "sites.parquet", *options[3:], "participant", folder=tmp_path)
    assert "lacks pair_id; it has participant, source, visit. No pairs: name the column that is equal" in line
    assert "for rows of one event (--rename.NAME pair_id), or pass a second table with --pairs." in line
