"""What commands say about themselves and this machine, and what the documentation says about them."""

import importlib.util
import json
import os
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
from mgpa.cli import app, main

COMMANDS = (
    "fit apply adapt pairs-needed leave-one-out audit select inspect export convert check-pairs demo methods "
    "doctor simulate bench"
)
GROUPS = {"data": "list fetch verify", "study": "list show run plan paper attack beyond"}


@pytest.mark.parametrize(
    "command", [*COMMANDS.split(), *(f"{group} {name}" for group in GROUPS for name in GROUPS[group].split())]
)
def test_every_command_teaches_by_an_example(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    assert f"Example: mgpa {command}" in " ".join(capsys.readouterr().out.split())


def test_the_program_lists_its_commands_methods_and_packages():
    listed = done("--help").stdout
    assert all(command in listed for command in (*COMMANDS.split(), *GROUPS))
    assert json.loads(done("methods", "--json").stdout)["methods"][0]["name"] == "mgpa"
    assert "leace" in done("methods").stdout
    assert done("--version").stdout.strip() == mgpa.__version__


def test_help_lists_options_in_groups_and_without_their_negations():
    commands = [(c,) for c in COMMANDS.split()] + [(g, c) for g, cs in GROUPS.items() for c in cs.split()]
    for words in commands:
        text = done(*words, "--help").stdout
        noise = set(re.findall(r"--(?:no|empty)-[a-z-]+", text))
        assert noise == ({"--no-open"} if words == ("demo",) else set()), words
        assert ("How to read the table" in text) == ("--skip-rows" in text), words


def test_the_doctor_lists_packages_that_do_not_load_and_whether_stages_are_compiled(monkeypatch, tmp_path):
    (tmp_path / "pooch.py").write_text("import os; os._exit(3)")
    (tmp_path / "edfio.py").write_text("raise OSError('no codec')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("mgpa.cli.machine.PURPOSES", {"some": ("numpy", "edfio", "pooch", "scipy", "leer")})
    facts = json.loads(done("doctor", "--json").stdout)
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["packages"]["leer"] is None
    assert facts["broken"] == {"edfio": "OSError: no codec", "pooch": "Python ended with exit code 3"}
    assert facts["stages"].startswith("compiled" if importlib.util.find_spec("numba") else "in numpy, not")
    monkeypatch.setenv("MGPA_NUMBA", "0")
    text = done("doctor").stdout
    assert "\nstages            in numpy, not compiled (MGPA_NUMBA is 0)\n" in text
    assert "installed, does not load by itself: Python ended with exit code 3" in text
    assert text.splitlines()[-1].startswith("Does not load: edfio, pooch.")


def test_the_doctor_says_that_braindecode_loads_through_mgpa_alone(monkeypatch):
    monkeypatch.setattr("mgpa.cli.machine.PURPOSES", {"some": ("numpy", "braindecode")})
    monkeypatch.setattr("mgpa.cli.machine._version", lambda name: "1")
    monkeypatch.setattr(
        "mgpa.cli.machine.import_failures",
        lambda names: {"braindecode": "OSError: torchaudio"} if "braindecode" in names else {},
    )
    text = done("doctor").stdout
    assert "call mgpa.eeg.braindecode.import_braindecode()" in " ".join(text.split())
    assert "loads, braindecode through mgpa only." in text
    assert json.loads(done("doctor", "--json").stdout)["broken"] == {}


@pytest.mark.parametrize(("page", "n"), [("command_line", 15), ("reproduce", 10), ("attack", 2)])
def test_the_documented_commands_are_understood(tmp_path, monkeypatch, page, n):
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("mgpa ") and "--install" not in line]
    assert len(lines) > n
    monkeypatch.chdir(tmp_path)
    for line in lines:
        words = shlex.split(line.partition(" | ")[0], comments=True)[1:]
        function, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        assert callable(function), line
        assert bound is not None


def test_help_loads_no_large_library():
    code = "import sys, mgpa.cli; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "sklearn", "pandas", "torch"} & set(done.stdout.split())
