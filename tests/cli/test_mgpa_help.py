"""What commands say about themselves, and what the documentation says about them."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mgpa
from terminal import done

pytest.importorskip("cyclopts")


@pytest.mark.parametrize(
    "command",
    [
        *("fit", "apply", "audit", "compare", "select", "inspect", "export", "convert", "demo", "methods"),
        *("doctor", "simulate", "simulate ssvep", "simulate flex", "data list", "data fetch", "data verify"),
        *("study list", "study run", "study plan", "study new", "study theory"),
    ],
)
def test_every_command_teaches_by_an_example(command, capsys):
    from mgpa.cli import main

    assert main([*command.split(), "--help"]) == 0
    assert f"Example: mgpa {command}" in " ".join(capsys.readouterr().out.split())


def test_the_program_lists_its_commands_methods_and_packages():
    listed = done("--help").stdout
    for command in ("fit", "apply", "audit", "compare", "select", "data", "study", "simulate"):
        assert command in listed
    assert "leace" in done("methods").stdout
    assert json.loads(done("methods", "--json").stdout)["methods"][0]["name"] == "closed_form_mgpa"
    assert json.loads(done("doctor", "--json").stdout)["packages"]["numpy"] == np.__version__
    assert done("--version").stdout.strip() == mgpa.__version__


def test_the_documented_commands_and_settings_are_understood(tmp_path, monkeypatch):
    from mgpa.cli import app
    from mgpa.cli.settings import load_settings

    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("mgpa ") and "--install" not in line]
    assert len(lines) > 15
    monkeypatch.chdir(tmp_path)
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        function, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        assert callable(function), line
        assert bound is not None
    settings = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mgpa.toml").write_text(settings.group(1))
    assert load_settings()


def test_help_loads_no_large_library():
    """It answers at once: numpy and what needs it are loaded by the commands that compute."""
    code = "import sys, mgpa.cli; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "sklearn", "pandas", "torch"} & set(done.stdout.split())
