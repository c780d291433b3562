"""The file `mgpa.toml`: defaults of options, and mistakes in it."""

import os
import sys
from pathlib import Path

import pytest

import mgpa
from terminal import done, in_process, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")


def test_a_toml_file_gives_defaults(folder, tmp_path):
    (tmp_path / "mgpa.toml").write_text('[fit]\nmethod = "leace"\n')
    done("fit", folder / "rec ördings.parquet", "--out", "m.safetensors", run=in_process, folder=tmp_path)
    assert mgpa.load_map(tmp_path / "m.safetensors").info.method == "LEACE"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[fti]\nmethod = "leace"',
            "mgpa.toml has a section 'fti', which is no command of mgpa. Did you mean fit?",
        ),
        ("[audit]\nquik = true", "[audit] in mgpa.toml has a key 'quik', which is no option of mgpa audit."),
        ("[data.fech]\nout = 'x'", "[data] in mgpa.toml has a section 'fech'"),
        ("quick = true", "mgpa.toml has a key 'quick', which is no command"),
        ("fit = 3", "fit is a command and wants a section"),
        ("[fit", "mgpa.toml is not a TOML file"),
    ],
)
def test_a_mistake_in_the_toml_file_is_named(tmp_path, text, message):
    (tmp_path / "mgpa.toml").write_text(text)
    result = in_process("methods", folder=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_toml_file_may_have_sections_of_any_command(folder, tmp_path):
    text = '[fit]\nmethod = "leace"\n[fit.set]\nridge = 0.25\n'
    text += "[data.fetch]\ndry_run = true\n[simulate.flex]\nseed = 1"
    (tmp_path / "mgpa.toml").write_text(text)
    done("fit", folder / "rec ördings.parquet", "--out", "m.safetensors", run=in_process, folder=tmp_path)
    assert mgpa.load_map(tmp_path / "m.safetensors").info.parameters["ridge"] == 0.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fit]\nscheduler = 'tcp://10.0.0.1:8786'", "sets scheduler, which hands the work to a cluster"),
        ("[apply]\nscheduler = 'local'", "sets scheduler"),
        ("[study.run]\nscheduler = 'tcp://10.0.0.1:8786'", "[study.run] in mgpa.toml sets scheduler"),
        ("[apply]\noverwrite = true", "sets overwrite, which lets files be replaced"),
        ("[apply]\nno-overwrite = true", "sets no-overwrite"),
        ("[apply]\nforce = true", "sets force, which switches a check off"),
        ("[data.fetch]\nfrom = 'https://example.org/SHA256SUMS'", "sets from, which names an address"),
        ("[audit]\nout = '/tmp/audit'", "out = '/tmp/audit', which leads out of the folder"),
        ("[audit]\ncache = '../cells'", "leads out of the folder"),
        ("[audit]\ncache = '~/cells'", "leads out of the folder"),
        ("[audit]\nmethods = ['leace', '../m.safetensors']", "leads out of the folder"),
        ("[convert.rename]\na = '//server/share'", "leads out of the folder"),
        ("[fit]\npairs = 'away/pairs.npz'", "leads out of the folder"),
        ("[study.run]\nwhich = 'https://example.org/study.toml'", "leads out of the folder"),
    ],
)
def test_settings_beside_data_cannot_reach_outside(tmp_path, text, message):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "away").symlink_to(tmp_path)
    (folder / "mgpa.toml").write_text(text)
    assert message in refused("methods", folder=folder)


def test_settings_of_the_user_may_reach_outside_and_give_way_to_those_beside_the_data(
    tmp_path, monkeypatch, folder
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("APPDATA", str(tmp_path / "config"))
    (tmp_path / "config" / "mgpa").mkdir(parents=True)
    text = f"[fit]\noverwrite = true\nmethod = 'mean_centering'\nout = '{tmp_path.as_posix()}/m.safetensors'"
    (tmp_path / "config" / "mgpa" / "mgpa.toml").write_text(text)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mgpa.toml").write_text("[fit]\nmethod = 'leace'")
    (tmp_path / "m.safetensors").write_text("old")
    done("fit", folder / "rec ördings.parquet", folder=tmp_path / "data")
    assert mgpa.load_map(tmp_path / "m.safetensors").info.method == "LEACE"


def test_somebody_without_a_home_has_no_settings(tmp_path, monkeypatch):
    """As in a container, under a number that has no name there."""

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for variable in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert "closed_form_mgpa" in done("methods", folder=tmp_path).stdout
    (tmp_path / "mgpa.toml").write_text("[apply]\nforce = true")
    assert refused("methods", folder=tmp_path).endswith("Pass it on the command line.")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes in folders")
def test_a_pipe_or_a_device_in_place_of_settings_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "mgpa.toml")
    result = in_process("methods", folder=tmp_path, timeout=60)
    assert (result.returncode, "mgpa.toml is a named pipe" in result.stderr) == (2, True)
    (tmp_path / "mgpa.toml").unlink()
    (tmp_path / "mgpa.toml").symlink_to("/dev/zero")
    assert "mgpa.toml is a device" in refused("methods", folder=tmp_path)


def test_settings_larger_than_any_are_refused(tmp_path):
    (tmp_path / "mgpa.toml").write_text("#" * 2**21)
    assert "more than 1048576 bytes" in refused("methods", folder=tmp_path)
