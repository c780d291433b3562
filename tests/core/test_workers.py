"""Work in several processes ends, whatever happens to the processes."""

import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from joblib import delayed

from mgpa._common.progress import in_processes

kept = []


def grow(megabytes):
    """Keep so much memory, as a process does that loads a large library; longer than joblib looks away."""
    kept.append(np.ones(megabytes * 2**17))
    time.sleep(1.1)
    return megabytes


def test_processes_that_grow_are_replaced_and_nothing_is_lost_or_said():
    pytest.importorskip("psutil")  # which joblib looks at processes with
    # What pytest does here too: a warning in the thread that awaits results would end it.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(in_processes([delayed(grow)(600)] * 6, n_jobs=2)) == [600] * 6


WORK = """
import sys, time
from pathlib import Path
from joblib import delayed
from mgpa._common.progress import in_processes

def work(file):
    while True:
        Path(file).touch()
        time.sleep(0.1)

if __name__ == "__main__":
    list(in_processes([delayed(work)(file) for file in sys.argv[1:]], n_jobs=2))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process there keeps the number of its dead parent")
def test_workers_end_with_a_killed_parent(tmp_path):
    (tmp_path / "work.py").write_text(WORK)
    files = [tmp_path / "a", tmp_path / "b"]
    parent = subprocess.Popen([sys.executable, tmp_path / "work.py", *files], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: all(file.exists() for file in files))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: time.time() - max(file.stat().st_mtime for file in files) > 5)


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_results_come_in_the_order_of_the_calls():
    calls = [delayed(time.sleep)(0.2), delayed(abs)(-1)]
    assert list(in_processes(calls, n_jobs=2)) == [None, 1]
