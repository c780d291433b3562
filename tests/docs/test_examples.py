"""The examples run as a reader would run them, and say what they promise."""

import errno
import importlib
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

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
def cluster_example(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "cluster"))
    monkeypatch.delitem(sys.modules, "correct_table", raising=False)
    return importlib.import_module("correct_table")


@pytest.fixture
def parts(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("distributed")
    from mgpa.tables import TableWriter
    from simulated import simulated_table

    table = simulated_table(n_people=10)
    size = len(table) // 5
    with TableWriter(tmp_path / "parts", table, rows=[size] * 5) as writer:
        for i in range(5):
            writer.write(i, table.take(slice(i * size, (i + 1) * size)))
    return tmp_path / "parts"


def test_the_cluster_example_on_local_workers_gives_what_one_process_gives(parts, tmp_path):
    from mgpa import ClosedFormMGPA, load_map
    from mgpa.maps.io.mapfile import map_digest
    from mgpa.tables import correct_file, fit_table, open_table

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
    correct_file(m, parts, tmp_path / "expected")
    assert (open_table(tmp_path / "out").read().X == open_table(tmp_path / "expected").read().X).all()
    assert f"corrected {open_table(parts).n_rows} rows" in done.stdout


def test_the_cluster_example_tries_again_when_a_cluster_is_lost_or_a_disk_full(
    parts, cluster_example, tmp_path, monkeypatch, capsys
):
    from mgpa.errors import ClusterError
    from mgpa.tables import open_table

    correct_file = cluster_example.correct_file
    failures = [OSError(errno.ENOSPC, "No space left on device"), ClusterError("The cluster did not finish.")]

    def disturbed(*arguments, **settings):
        if failures:
            raise failures.pop()
        return correct_file(*arguments, **settings)

    monkeypatch.setattr(cluster_example, "client_of", lambda options: nullcontext())
    monkeypatch.setattr(cluster_example, "correct_file", disturbed)
    where = ["--map", str(tmp_path / "m.safetensors"), "--pause", "0"]
    assert cluster_example.main([str(parts), str(tmp_path / "out"), *where]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("fitted") == 1  # the map is kept
    assert "No space left on device; trying again in 0 s" in printed.err
    assert open_table(tmp_path / "out").n_rows == open_table(parts).n_rows
