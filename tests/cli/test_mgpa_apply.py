"""`mgpa apply`: corrected rows, tables it refuses, interruptions and full disks."""

import resource
import signal

import numpy as np
import pytest

import mgpa
from simulated import simulated_table
from terminal import done, here, in_process, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.tables import Table, fit_table, open_table, write_table


def test_a_map_of_components_takes_raw_features(tmp_path):
    done("simulate", "--out", "raw.parquet", folder=tmp_path)
    fitted = done("fit", "raw.parquet", "--out", "m.safetensors", "--components", 5, folder=tmp_path)
    assert "5 principal components of 16 raw features" in fitted.stdout
    done("apply", "m.safetensors", "raw.parquet", "--out", "out.parquet", folder=tmp_path)
    out, raw = (open_table(tmp_path / name).read() for name in ("out.parquet", "raw.parquet"))
    np.testing.assert_allclose(out.X, mgpa.load_map(tmp_path / "m.safetensors").from_raw(raw.X))
    assert out.source.tolist() == raw.source.tolist()


def test_other_sources_and_corrected_tables_are_refused_unless_forced(folder, table, tmp_path):
    m = folder / "map one.safetensors"
    other = table.with_columns(source=np.where(table.source == "dry", "gel", "pad"))
    write_table(other, tmp_path / "other.parquet")
    done("apply", m, folder / "rec ördings.parquet", "--out", tmp_path / "once.parquet")
    for name, words in (("other", "gel, pad"), ("once", "already corrected")):
        arguments = ("apply", m, tmp_path / f"{name}.parquet", "--out", tmp_path / f"{name}-out.parquet")
        said = refused(*arguments)
        assert words in said
        assert "force" in said
        assert not (tmp_path / f"{name}-out.parquet").exists()
        done(*arguments, "--force")
        before, after = (open_table(tmp_path / f"{name}{end}.parquet").read() for end in ("", "-out"))
        np.testing.assert_allclose(after.X, mgpa.load_map(m).transform(before.X), atol=1e-12)


def test_a_full_disk_leaves_nothing_half_written(folder, tmp_path):
    def limit():
        # Writing beyond the limit is an error, as on a full disk.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    inputs = (folder / "map one.safetensors", folder / "rec ördings.parquet")
    result = in_process("apply", *inputs, "--out", tmp_path / "out.npz", preexec_fn=limit)
    assert result.returncode == 2, result.stderr
    assert "mgpa:" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_apply_says_when_rows_are_not_like_the_fitted_ones_and_strict_writes_nothing(tmp_path):
    import json
    from dataclasses import replace

    from mgpa.baselines import make_method
    from mgpa.tables import simulate_table

    table = simulate_table(12, random_state=0)
    make_method("leace").fit(table.X, source=table.source).to_map().save(tmp_path / "m.safetensors")
    write_table(table, tmp_path / "same.parquet")
    write_table(replace(table, X=5 * table.X), tmp_path / "drift.parquet")
    out = done(
        "apply", tmp_path / "m.safetensors", tmp_path / "same.parquet", "--out", tmp_path / "a.parquet"
    ).stdout
    assert "All rows lie within the fitted range." in out
    given = ("apply", tmp_path / "m.safetensors", tmp_path / "drift.parquet", "--out", tmp_path / "b.parquet")
    assert "outside the fitted range" in refused(*given, "--strict")
    assert not (tmp_path / "b.parquet").exists()
    result = here(*given, "--json")
    check = json.loads(result.stdout)["check"]
    assert not check["ok"]
    assert check["n_outside"] > 0
    assert check["unknown_device"] == (result.returncode == 3)


@pytest.mark.parametrize(
    ("column", "values", "unseen", "not_checked"),
    [
        ("hospital", "east", ["east"], ""),
        ("hospital", None, [], ""),
        ("hospital", "", [], "sources not checked: hospital is '', a missing value"),
        ("clinic", "east", [], "sources not checked: no column 'source' or 'hospital'"),
    ],
)
def test_apply_checks_sources_under_the_name_they_had_in_the_fit(
    column, values, unseen, not_checked, tmp_path
):
    import json

    from mgpa.tables import simulate_table

    table = simulate_table(12, random_state=0)
    hospital = table.source if values is None else np.full(len(table), values)
    for name, other in (("fit", {"hospital": table.source}), ("new", {column: hospital})):
        write_table(Table(table.X, other=other), tmp_path / f"{name}.parquet")
    fitted = ("fit", "fit.parquet", "--rename.hospital", "source", "--method", "leace", "--out")
    done(*fitted, "m.safetensors", folder=tmp_path)
    given = ("apply", "m.safetensors", "new.parquet", "--out", "out.parquet")
    if unseen:
        assert "The table has sources east; the map was fitted on" in refused(*given, folder=tmp_path)
        assert not (tmp_path / "out.parquet").exists()
        given += ("--force",)
    check = json.loads(done(*given, "--json", folder=tmp_path).stdout)["check"]
    assert (check["ok"], check["unseen"]) == (not unseen, unseen)
    assert check["not_checked"].startswith(not_checked)
    assert bool(check["not_checked"]) == bool(not_checked)
    if unseen:
        assert "hospital 'east' was not in the fit" in refused(
            *given, "--overwrite", "--strict", folder=tmp_path
        )
    else:
        assert not_checked in done(*given, "--overwrite", folder=tmp_path).stdout


def test_a_file_of_one_source_is_corrected_by_its_name(tmp_path):
    rows = simulated_table(n_people=8)
    m = fit_table(mgpa.baselines.make_method("combat"), rows).to_map()
    m.save(tmp_path / "m.safetensors")
    one = rows.take(rows.source == rows.sources[1]).with_columns(source=None)
    write_table(one, tmp_path / "one.npz")
    again = ["apply", "m.safetensors", "one.npz", "--out", "new.npz"]
    assert "lacks source" in refused(*again, folder=tmp_path)
    done(*again, "--source", rows.sources[1], folder=tmp_path)
    corrected = open_table(tmp_path / "new.npz").read()
    expected = m.transform(one.X, source=np.full(len(one), rows.sources[1]))
    np.testing.assert_allclose(corrected.X, expected, rtol=1e-5, atol=1e-6)
    assert "the map was fitted on" in refused(*again[:-1], "n.npz", "--source", "other", folder=tmp_path)
    write_table(rows, tmp_path / "one.npz", overwrite=True)
    assert "leave --source out" in refused(*again[:-1], "n.npz", "--source", "a", folder=tmp_path)
    # The map of one source still knows what its rows were like.
    single = m.for_source(rows.sources[1])
    assert not single.check(one.X + 1e3).ok
    assert np.array_equal(single.transform(one.X[0]), single.transform(one.X[:1])[0])
