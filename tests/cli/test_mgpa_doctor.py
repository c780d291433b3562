"""`mgpa doctor`."""

import importlib.util
import json
import subprocess
import sys

import pytest

from terminal import ENVIRONMENT, done

pytest.importorskip("cyclopts")


def doctor(tmp_path, torchaudio):
    (tmp_path / "torchaudio").mkdir()
    for name, text in torchaudio.items():
        (tmp_path / "torchaudio" / name).write_text(text)
    code = "import sys; from mgpa.cli import main; sys.exit(main(['doctor']))"
    environment = ENVIRONMENT | {"PYTHONPATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert said.returncode == 0, said.stderr
    return {line.split()[0]: line for line in said.stdout.splitlines()}


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
