"""`mgpa doctor`."""

import json
import subprocess
import sys

import pytest

from terminal import ENVIRONMENT, done

pytest.importorskip("cyclopts")


def test_the_doctor_says_what_is_installed_and_does_not_load(tmp_path):
    pytest.importorskip("braindecode")
    assert json.loads(done("doctor", "--json").stdout)["broken"] == {}
    # As beside a torch that it was not built for.
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio" / "__init__.py").write_text("raise OSError('libcudart.so.13: no such file')")
    code = "import sys; from mgpa.cli import main; sys.exit(main(['doctor']))"
    environment = ENVIRONMENT | {"PYTHONPATH": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr
    for name in ("torchaudio", "braindecode"):
        line = next(line for line in found.stdout.splitlines() if line.split()[0] == name)
        assert "installed, does not load: OSError: libcudart.so.13: no such file" in line
    assert "python tools/mend_torchaudio.py" in found.stdout
