"""Files that crash, stall or bloat their reader are one clear error, and the next file is read."""

import io
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.io import savemat

import unruly_readers
from mgpa.eeg.datasets import reader_process
from mgpa.eeg.datasets.matlab import read_array, read_cell
from mgpa.errors import RecordingError

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux keeps the limit")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "S001.mat"
    path.write_bytes(b"0" * 100)
    return path


def test_one_process_reads_all_files(path):
    first = unruly_readers.process_id(path)
    assert first != os.getpid()
    assert unruly_readers.process_id(path) == first


@pytest.mark.parametrize(
    ("reader", "how"), [("crash", r"signal SIGABRT|exit code"), ("leave", "exit code 3")]
)
def test_a_file_that_ends_its_reader_is_an_error_and_the_next_is_read(path, reader, how):
    before = unruly_readers.process_id(path)
    with pytest.raises(RecordingError, match=rf"S001.mat brought its reader down \(({how})"):
        getattr(unruly_readers, reader)(path)
    assert unruly_readers.process_id(path) != before


def test_a_file_that_stalls_its_reader_is_an_error(path, monkeypatch):
    unruly_readers.process_id(path)
    monkeypatch.setattr(reader_process, "SECONDS", 0.5)
    begun = time.monotonic()
    with pytest.raises(RecordingError, match="was not read within 1 s"):
        unruly_readers.hang(path)
    assert time.monotonic() - begun < 20


@on_linux
def test_a_file_that_bloats_its_reader_is_an_error(path):
    with pytest.raises(RecordingError, match="takes more memory than files of its size"):
        unruly_readers.take_memory(path, 4 * 2**30)
    assert unruly_readers.take_memory(path, 2**20) == 2**20


def test_a_member_of_an_archive_that_unfolds_without_end_is_an_error(tmp_path):
    import zipfile

    with (
        zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("S001.mat", "w", force_zip64=True) as member,
    ):
        for _ in range(3 * 2**10):
            member.write(bytes(2**20))
    inside = zipfile.Path(tmp_path / "bomb.zip", "S001.mat")
    with pytest.raises((OSError, ValueError), match=r"bomb\.zip"):
        read_array(inside, "data", (1,))


def test_what_a_reader_prints_is_no_answer_and_its_warnings_arrive(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(RuntimeWarning, match="odd"):
        answer = unruly_readers.chatter(path)
    assert answer["name"] == "S001.mat"
    assert answer["folder"] == str(tmp_path)
    assert "" not in answer["path"]


def test_modules_in_a_data_folder_are_not_imported_by_the_reader(tmp_path):
    (tmp_path / "json.py").write_text("open('imported', 'w')")
    (tmp_path / "scipy.py").write_text("open('imported', 'w')")
    savemat(tmp_path / "S001.mat", {"data": np.ones((1, 2))})
    code = "from mgpa.eeg.datasets.matlab import read_array as r; from pathlib import Path; "
    code += "print(r(Path('S001.mat'), 'data', (1, 2)).sum())"
    run = [sys.executable, "-P", "-c", code]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "2.0\n", done.stderr
    assert not (tmp_path / "imported").exists()


def test_arrays_come_back_as_they_were(path):
    answer = unruly_readers.arrays(path)
    assert answer["fortran"].flags.f_contiguous
    assert answer["fortran"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert answer["text"][0].tolist() == ["a", "bc"]
    assert (answer["none"].shape, answer["none"].dtype) == ((0, 4), np.int16)
    assert answer["n"] == 3
    assert not os.listdir(reader_process._child._folder)


def test_objects_and_faults_of_a_reader_are_errors(path):
    with pytest.raises(RecordingError, match=r"S001.mat cannot be read \(TypeError: an array of object\)"):
        unruly_readers.objects(path)
    with pytest.raises(RecordingError, match=r"S001.mat cannot be read \(ZeroDivisionError"):
        unruly_readers.divide(path)


@pytest.mark.parametrize(
    "answer",
    [
        "no JSON",
        "[]",
        '{"warnings": []}',
        '{"warnings": 3, "result": 1}',
        '{"warnings": [], "error": 3}',
        '{"warnings": [], "result": {"__array__": [0, "|O8", [1], "C"]}}',
        '{"warnings": [], "result": {"__array__": ["../x", "<f8", [1], "C"]}}',
        '{"warnings": [], "result": {"__array__": [0, "<f8", [1000000000000], "C"]}}',
        "[" * 100_000,
    ],
)
def test_an_answer_that_no_reader_gives_is_an_error(path, monkeypatch, answer):
    unruly_readers.process_id(path)
    (reader_process._child._folder and open(reader_process._child._folder + "/0", "wb").close())
    monkeypatch.setattr(reader_process, "_line_for", lambda *_: answer + "\n")
    with pytest.raises(RecordingError, match="answer in a form that is not known here"):
        unruly_readers.process_id(path)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes in folders")
def test_a_pipe_is_no_recording(tmp_path):
    os.mkfifo(tmp_path / "S001.mat")
    with pytest.raises(RecordingError, match="is a named pipe"):
        read_array(tmp_path / "S001.mat", "data", (1,))


def test_a_matlab_file_that_crashes_scipy_is_an_error(tmp_path):
    cell = np.array([[float(i), f"ab{i}", f"ab{i}"] for i in range(2)], dtype=object)
    stream = io.BytesIO()
    savemat(stream, {"Subjects_Information": cell})
    content = bytearray(stream.getvalue())
    (tmp_path / "good.mat").write_bytes(content)
    for position, value in ((396, 1), (450, 1), (488, 82)):  # scipy 1.17 reads where nothing is
        content[position] = value
    (tmp_path / "bad.mat").write_bytes(content)
    with pytest.raises((OSError, ValueError), match=r"bad\.mat"):
        read_cell(tmp_path / "bad.mat", "Subjects_Information")
    assert read_cell(tmp_path / "good.mat", "Subjects_Information") == [[0, "ab0", "ab0"], [1, "ab1", "ab1"]]


def test_a_reader_ends_with_the_process_that_asked(tmp_path, path):
    code = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import os, pathlib, unruly_readers; "
    code += "print(unruly_readers.process_id(pathlib.Path(sys.argv[2])), flush=True); os.kill(os.getpid(), 9)"
    run = [sys.executable, "-c", code, json.dumps(sys.path), str(path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    reader = int(done.stdout)
    for _ in range(100):
        if not is_running(reader):
            break
        time.sleep(0.1)
    assert not is_running(reader)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not copied here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_copy_of_the_process_has_a_reader_of_its_own(path):
    ours = unruly_readers.process_id(path)
    receive, send = os.pipe()
    copy = os.fork()
    if copy == 0:
        os.write(send, str(unruly_readers.process_id(path)).encode())
        reader_process._child.stop()
        os._exit(0)
    os.waitpid(copy, 0)
    assert int(os.read(receive, 20)) != ours
    assert unruly_readers.process_id(path) == ours
