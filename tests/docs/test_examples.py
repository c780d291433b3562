"""The examples run as a reader would run them, and say what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROMISES = {
    "real_time.py": "latency of one row",
    "sklearn_pipeline.py": "MGPA         task AUROC",
    "raw_eeg.py": "floor: the same from what the gate preserves",
    "onnx_deployment.py": "modules of ours in the deployed process: []",
}


@pytest.mark.parametrize("name", PROMISES)
def test_example(name):
    needed = {"onnx_deployment.py": "onnxruntime", "raw_eeg.py": "mne"}
    if name in needed:
        pytest.importorskip(needed[name])
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert PROMISES[name] in done.stdout
