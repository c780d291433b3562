"""`mgpa audit` and `mgpa compare`: the files they write, and cells that are computed once."""

import json
import re

import pytest

from terminal import done, here, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")


def test_audit_and_compare(folder):
    names = ("--methods", "leace", "closed_form_mgpa", "map one.safetensors", "--quick")
    found = done("audit", "rec ördings.parquet", "--out", "audit", *names, "--json", folder=folder)
    facts = json.loads(found.stdout)
    assert facts["estimates"]["closed_form_mgpa"]["S"][0] < facts["estimates"]["identity"]["S"][0]
    assert set(facts["findings"]) == {"leace", "closed_form_mgpa", "map one"}
    warned = [warning.split()[0] for warning in facts["warnings"]]
    assert warned == ["Preliminary:", "Only"]
    for name in ("report.html", "table.csv", "table.tex"):
        assert (folder / "audit" / name).stat().st_size > 0
    assert list((folder / "audit" / "figures").glob("*.pdf"))
    command = ("compare", "rec ördings.parquet", "--out", "audit", "--against", "leace", "--quick", "--json")
    again = done(*command, *names[:3], folder=folder)
    compared = json.loads(again.stdout)
    contrasts = compared["contrasts"]
    assert [warning.split()[0] for warning in compared["warnings"]] == warned
    assert contrasts["closed_form_mgpa"]["S"][2] < 0
    assert "3 of them finished before" in again.stderr
    lines = (folder / "audit" / "contrasts.csv").read_text().splitlines()
    assert lines[0] == "method,against,metric,difference,low,high,note"
    written = {tuple(line.split(",")[:3]): float(line.split(",")[3]) for line in lines[1:]}
    assert written["closed_form_mgpa", "leace", "S"] == contrasts["closed_form_mgpa"]["S"][0]
    assert ("leace", "leace", "S") not in written
    assert r"\toprule" in (folder / "audit" / "contrasts.tex").read_text()


def test_audit_says_its_verdict_in_words_and_opens_the_report_if_asked(folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    command = ("audit", "rec ördings.parquet", "--out", "said", "--methods", "leace", "--quick")
    told = json.loads(done(*command, "--json", folder=folder).stdout)
    assert not opened
    text = done(*command, "--open", folder=folder).stdout
    assert opened == [(folder / "said" / "report.html").resolve().as_uri()]
    assert text.startswith("\n".join(told["verdict"]))
    assert len(text.splitlines()) <= 16
    assert text.index("exploratory") < text.index("source readable") < text.index("S (want .5)")
    assert text.rstrip().endswith("report.html")
    assert "Refitted heads (T_r): " in done(*command, "--verbose", folder=folder).stdout
    strict = here(*command, "--require", "S<=.1 and loss<=.5", folder=folder)
    assert strict.returncode == 1
    assert "LEACE: S is ." in strict.stdout
    assert here(*command, "--require", "S<=1", folder=folder).returncode == 0
    assert refused(*command, "--require", "S=1", folder=folder).startswith("Cannot read 'S=1'.")
    compared = done("compare", *command[1:], folder=folder).stdout
    assert re.search(r"^    source readable \(S\) +-\.\d{4} \[", compared, re.MULTILINE)


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
