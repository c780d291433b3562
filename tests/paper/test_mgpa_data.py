"""`mgpa data`: fetching from repositories (on a local server), lost connections, missing files."""

import json
from functools import partial

import pytest

from server import serve_osf
from terminal import done, here, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pooch")

from mgpa.paper.datasets.catalogue import DATASETS


def test_fetching_from_the_command_line(server, monkeypatch, tmp_path):
    monkeypatch.setenv("MGPA_OSF_API", serve_osf(server))
    monkeypatch.chdir(tmp_path)
    fetch = ("data", "fetch", "wearable_ssvep", "--from", "osf:ab3de", "--out")
    listed = done(*fetch, "x", "--dry-run")
    assert "S001.mat" in listed.stdout
    assert not (tmp_path / "x").exists()
    found = done(*fetch, "für mich", "--only", "S00[12]*", "*Lücke*", "--json")
    assert json.loads(found.stdout)["new"] == 3
    assert sorted(p.name for p in (tmp_path / "für mich").iterdir()) == ["S001.mat", "S002.mat", "mit Lücke"]
    again = done(*fetch, "für mich", "--only", "S001.mat")
    assert "0 new, 1 were there already" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fetch", "wearable_ssvep", "--out", "x"), "404 "),
        (
            ("fetch", "ssvep", "--from", "osf:ab3de", "--out", "x"),
            "Data sets: wearable_ssvep, neuroscan_flex, eegpt",
        ),
        (
            ("fetch", "neuroscan_flex", "--from", "nowhere", "--out", "x"),
            "'nowhere' is not a valid address",
        ),
        (("fetch", "neuroscan_flex", "--from", "osf:zzzzz", "--out", "x"), "404 "),
        (("verify", "wearable_ssvep", "nowhere"), "No folder nowhere"),
        (("verify", "ssvep", "."), "No data set 'ssvep'"),
    ],
)
def test_mistakes_about_data_sets_are_answered_in_one_line(server, monkeypatch, tmp_path, arguments, message):
    monkeypatch.setenv("MGPA_OSF_API", f"{server.url}/v2")
    monkeypatch.setenv("MGPA_FIGSHARE_API", f"{server.url}/fs")
    assert message in refused("data", *arguments, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_verify_lists_exactly_what_is_missing(tmp_path):
    run = partial(here, folder=tmp_path)
    (tmp_path / "leer").mkdir()
    found = run("data", "verify", "neuroscan_flex", "leer", "--json")
    facts = json.loads(found.stdout)
    assert found.returncode == 2
    assert not facts["complete"]
    assert len(facts["missing"]) > facts["present"] == 0
    text = run("data", "verify", "neuroscan_flex", "leer").stdout
    assert f"{', '.join(facts['missing'][:10])}, and {len(facts['missing']) - 10} more" in text
    assert not facts["simulated"]
    (tmp_path / "leer" / "truth.json").write_text("{}")
    text = run("data", "verify", "neuroscan_flex", "leer").stdout
    assert "simulated   not the published files; see truth.json for the effects" in text


def test_verify_looks_for_the_tasks_that_are_wanted(tmp_path):
    run = partial(here, folder=tmp_path)
    found = json.loads(run("data", "verify", "neuroscan_flex", ".", "--tasks", "N170", "--json").stdout)
    assert len(found["missing"]) == 60
    assert all(" N170 " in name for name in found["missing"])
    said = refused("data", "verify", "neuroscan_flex", ".", "--tasks", "N17", folder=tmp_path)
    assert "neuroscan_flex has no task N17. Tasks: N170, oddball_active" in said
    said = refused("data", "verify", "wearable_ssvep", ".", "--tasks", "N170", folder=tmp_path)
    assert "wearable_ssvep has no task N170. Tasks: none" in said


def test_the_data_sets_are_listed_with_where_they_are_described():
    listed = done("data", "list").stdout
    for name, source in DATASETS.items():
        assert all(text in listed for text in (name, source["doi"], source["home"]))
    assert len(json.loads(done("data", "list", "--json").stdout)["datasets"]) == len(DATASETS)
