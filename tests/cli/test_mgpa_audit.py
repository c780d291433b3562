"""`mgpa audit` and `mgpa compare`: the files they write, and cells that are computed once."""

import json

import pytest

from terminal import done

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")


def test_audit_and_compare(folder):
    names = ("--methods", "leace", "closed_form_mgpa", "map one.safetensors", "--quick")
    found = done("audit", "rec ördings.parquet", "--out", "audit", *names, "--json", folder=folder)
    facts = json.loads(found.stdout)
    assert facts["estimates"]["closed_form_mgpa"]["S"][0] < facts["estimates"]["identity"]["S"][0]
    assert set(facts["verdicts"]) == {"leace", "closed_form_mgpa", "map one"}
    for name in ("report.html", "table.csv", "table.tex"):
        assert (folder / "audit" / name).stat().st_size > 0
    assert list((folder / "audit" / "figures").glob("*.pdf"))
    command = ("compare", "rec ördings.parquet", "--out", "audit", "--against", "leace", "--quick", "--json")
    again = done(*command, *names[:3], folder=folder)
    contrasts = json.loads(again.stdout)["contrasts"]
    assert contrasts["closed_form_mgpa"]["S"][2] < 0
    assert "3 of them finished before" in again.stderr
    lines = (folder / "audit" / "contrasts.csv").read_text().splitlines()
    assert lines[0] == "method,against,metric,difference,low,high"
    written = {tuple(line.split(",")[:3]): float(line.split(",")[3]) for line in lines[1:]}
    assert written["closed_form_mgpa", "leace", "S"] == contrasts["closed_form_mgpa"]["S"][0]
    assert ("leace", "leace", "S") not in written
    assert r"\toprule" in (folder / "audit" / "contrasts.tex").read_text()
