"""The examples run as a reader would run them, and say what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

PROMISES = {
    "real_time.py": "latency of one row",
    "sklearn_pipeline.py": "MGPA         task AUROC",
    "raw_eeg.py": "floor: the same from what the gate preserves",
    "onnx_deployment.py": "modules of ours in the deployed process: []",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "raw_eeg.py")) for name in PROMISES]
)
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


@pytest.fixture
def parts(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("distributed")
    from simulated import in_parts, simulated_table

    return in_parts(simulated_table(n_people=10), tmp_path / "parts", 5)


def test_the_cluster_example_on_local_workers_gives_what_one_process_gives(parts, tmp_path):
    from mgpa import ClosedFormMGPA, load_map
    from mgpa.maps.io.mapfile import map_digest
    from mgpa.tables import apply_to_file, fit_table, open_table

    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "cluster" / "correct_table.py"), "parts", "out"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    m = fit_table(ClosedFormMGPA(), parts).to_map()
    assert map_digest(load_map(tmp_path / "adapter.safetensors")) == map_digest(m)
    apply_to_file(m, parts, tmp_path / "expected")
    assert (open_table(tmp_path / "out").read().X == open_table(tmp_path / "expected").read().X).all()
    assert f"corrected {open_table(parts).n_rows} rows" in done.stdout


@pytest.mark.slow
def test_the_decoder_of_one_device_is_kept():
    from shared import SHARED

    if not (SHARED / "real" / "phone_watch.npz").exists():
        pytest.skip("the recordings of phone and watch are not on this machine")
    sys.path.insert(0, str(ROOT / "examples"))
    import keep_the_decoder
    from mgpa.bench.datasets import DATASETS

    found = keep_the_decoder.measure(DATASETS["phone_watch"].open(SHARED / "real"), n_rounds=1)
    mean = {}
    for (_, method), values in found.items():
        mean.setdefault(method.split("=")[0], []).extend(values)
    (home, away, _), (corrected_home, corrected_away, _), (_, told, _) = (
        sum(map(np.asarray, mean[name])) / len(mean[name])
        for name in ("uncorrected", "MGPA(reference", "told the device")
    )
    assert corrected_home > home - 0.015
    assert corrected_away > told - 0.02 > away
