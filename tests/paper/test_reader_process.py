"""A file that crashes or stalls its reader is one clear error, and the next file is read."""

import io
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.io import savemat

from mgpa.errors import RecordingError
from mgpa.paper.datasets import raw_files
from mgpa.paper.datasets.raw_files import read_apart, read_cell


@pytest.fixture
def path(tmp_path):
    (tmp_path / "S001.mat").write_bytes(b"0" * 100)
    return tmp_path / "S001.mat"


def test_one_process_reads_all_files_and_errors_come_back(path):
    reader = read_apart(os.getpid, path)
    assert reader != os.getpid()
    assert read_apart(os.getpid, path) == reader
    with pytest.raises(ZeroDivisionError):
        read_apart(divmod, path, 1, 0)


def test_a_file_that_ends_its_reader_is_an_error_and_the_next_is_read(path):
    with pytest.raises(RecordingError, match=r"S001.mat crashed the library that reads it.*Fetch it again"):
        read_apart(os.abort, path)
    assert read_apart(len, path, "abc") == 3


def test_a_file_that_stalls_its_reader_is_an_error_and_the_next_is_read(path, monkeypatch):
    read_apart(os.getpid, path)
    monkeypatch.setattr(raw_files, "SECONDS", 0.5)
    begun = time.monotonic()
    with pytest.raises(RecordingError, match="was not read within 1 s"):
        read_apart(time.sleep, path, 600)
    assert time.monotonic() - begun < 20
    monkeypatch.undo()
    assert read_apart(len, path, "abc") == 3


def test_scripts_need_no_main_guard(tmp_path):
    savemat(tmp_path / "S001.mat", {"data": np.ones((1, 2))})
    script = "from mgpa.paper.datasets.raw_files import read_array as r\nfrom pathlib import Path\n"
    (tmp_path / "script.py").write_text(script + "print(r(Path('S001.mat'), 'data', (1, 2)).sum())")
    run = [sys.executable, "script.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "2.0\n", done.stderr


def test_a_matlab_file_that_crashes_scipy_is_an_error(tmp_path):
    cell = np.array([[float(i), f"ab{i}", f"ab{i}"] for i in range(2)], dtype=object)
    stream = io.BytesIO()
    savemat(stream, {"Subjects_Information": cell})
    content = bytearray(stream.getvalue())
    (tmp_path / "good.mat").write_bytes(content)
    for position, value in ((396, 1), (450, 1), (488, 82)):  # scipy 1.17 reads where nothing is
        content[position] = value
    (tmp_path / "bad.mat").write_bytes(content)
    with pytest.raises(RecordingError, match=r"bad\.mat"):
        read_cell(tmp_path / "bad.mat", "Subjects_Information")
    assert read_cell(tmp_path / "good.mat", "Subjects_Information")[1] == [1.0, "ab1", "ab1"]
