"""The file `mgpa.toml`: defaults of options, and mistakes in it."""

import pytest

import mgpa
from terminal import done, in_process

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
