"""Commands with addresses where files could be."""

import json

import numpy as np
import pytest

import mgpa
from mgpa.tables import open_table, write_table
from stores import names_at, objects_at
from terminal import done, here, refused

pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")


@pytest.fixture(params=["memory", "s3"])
def store(request, table):
    address = request.getfixturevalue(request.param)
    write_table(table, f"{address}/t.parquet")
    return address


def test_every_step_from_a_table_to_a_corrected_one_by_address(store, table, tmp_path):
    done("convert", f"{store}/t.parquet", "--out", f"{store}/u.parquet")
    done("fit", f"{store}/u.parquet", "--out", f"{store}/m.safetensors", "--pairs", f"{store}/t.parquet")
    told = json.loads(done("inspect", f"{store}/m.safetensors", "--json").stdout)
    assert told["method"] == "MGPA"
    result = done("apply", f"{store}/m.safetensors", f"{store}/t.parquet", "--out", f"{store}/out", "--json")
    told = json.loads(result.stdout)
    assert (told["table"], told["rows"], told["check"]["ok"]) == (f"{store}/out", len(table), True)
    assert json.loads(done("inspect", f"{store}/out", "--json").stdout)["rows"] == len(table)
    expected = mgpa.load_map(f"{store}/m.safetensors").transform(table.X)
    np.testing.assert_allclose(open_table(f"{store}/out").read().X, expected, rtol=1e-12)
    assert "pairs" in done("check-pairs", f"{store}/t.parquet", folder=tmp_path).stdout
    line = refused("apply", f"{store}/m.safetensors", f"{store}/t.parquet", "--out", f"{store}/out")
    assert line.startswith(f"{store}/out exists; pass --overwrite")
    assert not [name for name in names_at(store) if ".partial" in name]


def test_a_map_and_a_table_by_address_are_audited(memory, table, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("mgpa.audit.plots.draw_all", lambda audit: {})
    write_table(table, f"{memory}/t.parquet")
    done("fit", f"{memory}/t.parquet", "--out", f"{memory}/m.safetensors")
    done(
        *("audit", f"{memory}/t.parquet", "--out", "audit", "--methods", f"{memory}/m.safetensors"),
        *("--quick", "--folds", "1"),
        folder=tmp_path,
    )
    assert "m," in (tmp_path / "audit" / "table.csv").read_text()


def test_an_address_where_only_a_folder_can_be_is_refused(memory, table, tmp_path):
    write_table(table, f"{memory}/t.parquet")
    result = here("audit", f"{memory}/t.parquet", "--out", f"{memory}/audit", folder=tmp_path)
    assert result.returncode == 2
    assert "is an address; expected a path on this machine" in result.stderr
    assert not [*tmp_path.iterdir()]
    assert objects_at(memory).keys() == {"t.parquet"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "{}"),
        ("fit", "{}", "--out", "m.safetensors"),
        ("apply", "{}", "t.parquet", "--out", "out"),
        ("inspect", "ftp://user:pass-word@host/t?key=sig-nature"),
        ("audit", "t.parquet", "--out", "{}"),
    ],
)
def test_commands_never_show_secrets_of_an_address(web, tmp_path, arguments):
    host = web.url.removeprefix("http://")
    address = f"http://user:pass-word@{host}/t.parquet?key=sig-nature"
    result = here(*(word.format(address) for word in arguments), folder=tmp_path)
    assert result.returncode == 2
    for word in ("user", "pass-word", "sig-nature"):
        assert word not in result.stdout + result.stderr
