"""`mgpa apply` and `mgpa adapt` where a sixth hospital appears that was not in the fit."""

import json
import re

import numpy as np
import pytest

from terminal import done, here, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.tables import Table, open_table, write_table

D = 12


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Return a folder with five hospitals to fit on, a sixth, and events that it shares with the first."""
    folder, rng = tmp_path_factory.mktemp("hospitals"), np.random.default_rng(0)
    mixing = np.eye(D) + 0.3 * rng.normal(size=(D, D))
    shifts = 1.5 * rng.normal(size=(6, D))

    def table(plan, ids=None):
        X, source, people = [], [], []
        for hospital, person, content in plan:
            X.append(content + shifts[hospital] + 0.1 * rng.normal(size=content.shape))
            source += [f"H{hospital}"] * len(content)
            people += [person] * len(content)
        arrays = {"source": np.array(source), "participant": np.array(people)}
        return Table(np.concatenate(X), **arrays, **({} if ids is None else {"pair_id": ids}))

    def content(n):
        return rng.normal(size=(n, D)) @ mixing

    events = content(40)
    plan = [(h, f"p{h}{i}", content(40)) for h in range(5) for i in range(4)]
    plan += [(h, "t", events) for h in range(5)]
    ids = np.concatenate([np.full(800, -1), np.tile(np.arange(40), 5)])
    write_table(table(plan, ids), folder / "five.parquet")
    write_table(table([(5, f"n{i}", content(40)) for i in range(3)]), folder / "sixth.parquet")
    write_table(table([(5, "n0", content(40)), (0, "p00", content(40))]), folder / "both.parquet")
    shared = content(15)
    pairs = table([(0, "s", shared), (5, "s", shared)], np.tile(np.arange(15), 2))
    write_table(pairs, folder / "pairs.parquet")
    done("fit", "five.parquet", "--out", "five.safetensors", folder=folder)
    done("apply", "five.safetensors", "five.parquet", "--out", "five-out.parquet", folder=folder)
    return folder


def test_the_sixth_hospital_is_refused_then_noticed_then_added(hospitals):
    said = refused("apply", "five.safetensors", "sixth.parquet", "--out", "x.parquet", folder=hospitals)
    assert "Add a new device first (mgpa adapt). Pass force" in said
    given = ("apply", "five.safetensors", "sixth.parquet", "--out", "x.parquet", "--force", "--overwrite")
    result = here(*given, folder=hospitals)
    assert result.returncode == 3
    assert "Unknown device: no device of the fit explains the 120 rows of 'H5'" in result.stdout
    assert "mgpa adapt" in result.stdout
    facts = json.loads(here(*given, "--json", folder=hospitals).stdout)["check"]
    assert facts["unknown_device"]
    assert facts["devices"][0]["alarm"]
    assert facts["devices"][0]["n_rows"] == 120
    left = here(*given, "--unknown", "leave", folder=hospitals)
    assert (left.returncode, "120 rows left uncorrected" in left.stdout) == (3, True)
    raw, out = (open_table(hospitals / name).read().X for name in ("sixth.parquet", "x.parquet"))
    np.testing.assert_array_equal(out, raw)
    fallback = ("--unknown", "adapt", "--json")
    result = here(
        "apply", "five.safetensors", "sixth.parquet", "--out", "a.parquet", *fallback, folder=hospitals
    )
    assert result.returncode == 3  # also after adapting: the user should know
    assert json.loads(result.stdout)["adapted"]
    adapted = open_table(hospitals / "a.parquet").read().X
    corrected = open_table(hospitals / "five-out.parquet").read().X
    gap = np.linalg.norm(raw.mean(axis=0) - corrected.mean(axis=0))
    assert np.linalg.norm(adapted.mean(axis=0) - corrected.mean(axis=0)) < 0.3 * gap
    added = done("adapt", "five.safetensors", "sixth.parquet", "--out", "six.safetensors", folder=hospitals)
    assert "H5 added from 120 rows without labels" in added.stdout
    later = done("apply", "six.safetensors", "sixth.parquet", "--out", "y.parquet", folder=hospitals)
    assert "Unknown device" not in later.stdout
    done("inspect", "six.safetensors", folder=hospitals)


def test_pairs_with_a_fitted_hospital_add_the_sixth(hospitals):
    given = ("adapt", "five.safetensors", "pairs.parquet", "--out", "pairs.safetensors", "--overwrite")
    said = done(*given, "--known", "H0", "--json", folder=hospitals).stdout
    assert json.loads(said)["sources"] == ["H0", "H1", "H2", "H3", "H4", "H5"]
    assert "No pair_id joins 'H3' and 'H5'" in refused(*given, "--known", "H3", folder=hospitals)
    arguments = ("adapt", "five.safetensors", "sixth.parquet", "--out", "z.safetensors", "--known", "H0")
    assert "lacks pair_id" in refused(*arguments, folder=hospitals)


def test_rows_of_fitted_hospitals_leave_the_exit_status_zero(hospitals):
    assert len(open_table(hospitals / "five-out.parquet").read()) == 1000
    result = here(
        "apply", "five.safetensors", "both.parquet", "--out", "b.parquet", "--force", folder=hospitals
    )
    assert result.returncode == 3  # one of two sources is new
    assert "'H5'" in result.stdout
    assert "Rows named 'H0'" not in result.stdout


def test_planning_says_how_many_events_are_enough_and_what_a_new_hospital_gets(hospitals):
    method = ("--method", "closed_form_mgpa")
    words = done("pairs-needed", "five.parquet", *method, "--repeats", 2, folder=hospitals).stdout
    assert "Enough: about " in words
    given = ("leave-one-out", "five.parquet", *method)
    found = json.loads(done(*given, "--json", folder=hospitals).stdout)
    assert set(found["distance"]) == {f"H{i}" for i in range(5)}
    assert (found["fallback"], found["option"]) == ("adapted to its rows", "--unknown adapt")
    words = done(*given, folder=hospitals).stdout
    assert "Best without pairs: adapted to its rows" in words
    assert "at least three are needed" in refused("leave-one-out", "pairs.parquet", folder=hospitals)


def test_the_source_column_of_the_fit_is_known_to_adapt(hospitals):
    table = open_table(hospitals / "sixth.parquet").read()
    columns = {"hospital": table.source, "person": table.participant}
    write_table(Table(table.X).with_columns(**columns), hospitals / "named.parquet")
    five = open_table(hospitals / "five.parquet").read()
    columns = {name: values for name, values in five.columns.items() if name != "source"}
    five = Table(five.X, **columns).with_columns(hospital=five.source)
    write_table(five, hospitals / "five-named.parquet")
    rename = ("--rename.hospital", "source")
    done("fit", "five-named.parquet", *rename, "--out", "named.safetensors", folder=hospitals)
    given = ("named.safetensors", "named.parquet", "--out")
    assert "The table has sources H5; the map" in refused("apply", *given, "n.parquet", folder=hospitals)
    said = here("apply", *given, "n.parquet", "--force", folder=hospitals).stdout
    assert "Next: mgpa adapt named.safetensors named.parquet --out NEW.safetensors" in said
    added = done("adapt", *given, "n.safetensors", folder=hospitals).stdout
    assert added.startswith("H5 added from 120 rows")
    refusal = refused("adapt", *given, "o.safetensors", "--known", "H0", folder=hospitals)
    assert "lacks pair_id; it has source, person" in refusal
    assert refusal.rstrip().endswith("pass --rename.NAME pair_id.")


def test_messages_alone_lead_from_csv_files_of_five_hospitals_to_a_map_of_six(hospitals):
    """Every option that is passed here was named by the message before it."""
    for name in ("five", "sixth", "pairs"):
        table = open_table(hospitals / f"{name}.parquet").read()
        columns = {"hospital": table.source, "patient": table.participant, "remark": [""] * len(table)}
        if table.pair_id is not None:
            columns["phantom"] = [f"x{i}" if i >= 0 else "" for i in np.asarray(table.pair_id).tolist()]
        write_table(Table(table.X).with_columns(**columns), hospitals / f"{name}.csv")
    fit = ["fit", "five.csv", "--out", "csv.safetensors"]
    for option in ("--embedding", "f"), ("--rename.hospital", "source"), ("--rename.phantom", "pair_id"):
        words = refused(*fit, folder=hospitals)
        assert option[0] in words.replace("--rename.NAME", option[0]), words
        assert option[1] in words
        fit += option
    done(*fit, folder=hospitals)
    apply = ("apply", "csv.safetensors", "sixth.csv", "--out", "c.csv")
    assert "(mgpa adapt). Pass force (--force)" in refused(*apply, folder=hospitals)
    noticed = here(*apply, "--force", folder=hospitals)
    assert noticed.returncode == 3
    assert "remark" not in noticed.stderr  # a column without values holds no numbers
    command, known = re.search(r"Next: mgpa (adapt .*?) \(add --known (\w+) if", noticed.stdout).groups()
    assert "H5 added from" in done(*command.split(), folder=hospitals).stdout
    again = done("apply", "NEW.safetensors", "sixth.csv", "--out", "d.csv", folder=hospitals)
    assert "Unknown device" not in again.stdout
    paired = ("adapt", "csv.safetensors", "pairs.csv", "--out", "e.safetensors", "--known", "H0")
    assert "pass --rename.NAME pair_id" in refused(*paired, folder=hospitals)
    added = done(*paired, "--rename.phantom", "pair_id", folder=hospitals).stdout
    assert "H5 added from 15 pairs with H0" in added
    assert known in {f"H{i}" for i in range(5)}
    for command in ("leave-one-out", "pairs-needed"):
        assert "pass --rename.NAME source" in refused(
            command, "five.csv", "--embedding", "f", folder=hospitals
        )
