"""`mgpa doctor`."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from terminal import ENVIRONMENT, done

pytest.importorskip("cyclopts")
from mgpa.cli.machine import _conclusion, _failures


def doctor(tmp_path, torchaudio):
    (tmp_path / "torchaudio").mkdir()
    for name, text in torchaudio.items():
        (tmp_path / "torchaudio" / name).write_text(text)
    code = "import sys; from mgpa.cli import main; sys.exit(main(['doctor']))"
    environment = ENVIRONMENT | {"PYTHONPATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert said.returncode == 0, said.stderr
    return {line.split()[0]: line for line in said.stdout.splitlines() if line}


@pytest.mark.skipif(importlib.util.find_spec("braindecode") is None, reason="braindecode is not installed")
def test_the_doctor_says_what_is_installed_and_does_not_load(tmp_path):
    assert json.loads(done("doctor", "--json").stdout)["broken"] == {}
    lines = doctor(tmp_path, {"__init__.py": "raise OSError('libcudart.so.13: no such file')"})
    assert "installed, does not load: ImportError: braindecode could not be imported" in lines["braindecode"]
    assert "libcudart.so.13: no such file" in lines["braindecode"]


def test_the_doctor_says_whether_stages_run_compiled(monkeypatch):
    expected = "compiled" if importlib.util.find_spec("numba") else "in numpy, not compiled (pip install"
    assert json.loads(done("doctor", "--json").stdout)["stages"].startswith(expected)
    monkeypatch.setenv("MGPA_NUMBA", "0")
    assert "\nstages            in numpy, not compiled (MGPA_NUMBA is 0)\n" in done("doctor").stdout


def test_the_doctor_says_that_what_is_missing_is_fine_unless_something_is_broken():
    versions = {"numpy": "2.0", "numba": None, "s3fs": None}
    assert _conclusion(versions, {}).startswith("All that is installed loads. Not installed, which is fine")
    assert _conclusion(versions, {}).endswith(": numba, s3fs.")
    assert _conclusion({"numpy": "2.0"}, {}) == "Everything is installed and loads."
    assert _conclusion(versions, {"braindecode": "OSError"}).startswith("To be mended: braindecode.")
    assert done("doctor").stdout.splitlines()[-1] == _conclusion(
        json.loads(done("doctor", "--json").stdout)["packages"], {}
    )


def test_the_doctor_names_a_package_that_brings_python_down(tmp_path, monkeypatch):
    (tmp_path / "pooch.py").write_text("import os; os._exit(3)")
    (tmp_path / "edfio.py").write_text("raise OSError('no codec')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert _failures(["numpy", "edfio", "pooch", "scipy"]) == {
        "edfio": "OSError: no codec",
        "pooch": "Python ended with exit code 3",
    }
