"""`mgpa audit`: the files they write, and cells that are computed once."""

import json

import pytest

from mgpa.tables import write_table
from terminal import done, here, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")


def test_an_audit_writes_its_report_and_differences_and_computes_cells_once(folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    command = ("audit", "rec ördings.parquet", "--out", "audit", "--quick")
    command += ("--methods", "leace", "closed_form_mgpa", "map one.safetensors")
    facts = json.loads(done(*command, "--json", folder=folder).stdout)
    assert not opened
    assert facts["estimates"]["closed_form_mgpa"]["S"][0] < facts["estimates"]["identity"]["S"][0]
    assert set(facts["findings"]) == {"leace", "closed_form_mgpa", "map one"}
    for name in ("report.html", "table.csv", "table.tex"):
        assert (folder / "audit" / name).stat().st_size > 0
    assert list((folder / "audit" / "figures").glob("*.pdf"))
    again = done(*command, "--against", "leace", "--json", "--open", folder=folder)
    assert opened == [(folder / "audit" / "report.html").resolve().as_uri()]
    contrasts = json.loads(again.stdout)["contrasts"]
    assert contrasts["closed_form_mgpa"]["S"][2] < 0
    lines = (folder / "audit" / "contrasts.csv").read_text().splitlines()
    written = {tuple(line.split(",")[:3]): float(line.split(",")[3]) for line in lines[1:]}
    assert written["closed_form_mgpa", "leace", "S"] == contrasts["closed_form_mgpa"]["S"][0]
    assert ("leace", "leace", "S") not in written
    assert r"\toprule" in (folder / "audit" / "contrasts.tex").read_text()
    text = done(*command, "--against", "leace", folder=folder).stdout
    assert "difference from leace" in text
    assert text.rstrip().endswith("report.html")
    assert len(done(*command, folder=folder).stdout.splitlines()) <= 16
    assert "Refitted heads (T_r): " in done(*command, "--verbose", folder=folder).stdout
    strict = here(*command, "--require", "S<=.1 and loss<=.5", folder=folder)
    assert strict.returncode == 1
    assert "LEACE: S is ." in strict.stdout
    assert here(*command, "--require", "S<=1", folder=folder).returncode == 0
    assert refused(*command, "--require", "S=1", folder=folder).startswith("Cannot read 'S=1'.")


@pytest.mark.parametrize("command", ["audit rec.npz", "study run controlled-ssvep --quick", "demo"])
def test_an_output_folder_of_somebody_else_is_refused_before_the_work(table, tmp_path, command):
    write_table(table, tmp_path / "rec.npz")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "table.csv").write_text("mine")
    assert "mgpa did not write" in refused(*command.split(), "--out", "mine", folder=tmp_path)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["table.csv"]
    assert (tmp_path / "mine" / "table.csv").read_text() == "mine"


@pytest.fixture
def maps(folder):
    """Two maps of the same file name, and one that is called like a method."""
    for where, method in (("A/adapter", "leace"), ("B/adapter", "closed_form_mgpa"), ("leace", "combat")):
        path = folder / f"{where}.safetensors"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            done("fit", "rec ördings.parquet", "--method", method, "--out", path, folder=folder)


def test_stored_maps_have_names_of_their_own(folder, maps):
    given = ("A/adapter.safetensors", "B/adapter.safetensors", "leace.safetensors", "leace")
    arguments = ("--out", "named", "--quick", "--json", "--methods", *given)
    found = done("audit", "rec ördings.parquet", *arguments, folder=folder)
    estimates = json.loads(found.stdout)["estimates"]
    assert set(estimates) == {"identity", *given}
    assert estimates["A/adapter.safetensors"]["M"] == pytest.approx(estimates["leace"]["M"])
    assert len({round(estimates[name]["M"][0], 6) for name in given}) == 3


@pytest.mark.parametrize("given", [("leace", "LEACE"), ("A/adapter.safetensors", "A/adapter.safetensors")])
def test_a_method_or_map_that_is_given_twice_is_an_error(folder, maps, given):
    said = refused("audit", "rec ördings.parquet", "--out", "twice", "--methods", *given, folder=folder)
    assert said == f"--methods has {given[1]} twice; name each method or map once."
    assert not (folder / "twice").exists()
