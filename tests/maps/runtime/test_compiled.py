"""Where stages run compiled, and who says so."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from factories import random_staged_map
from mgpa.linalg import n_threads, one_blas_thread
from mgpa.maps.runtime.compiled import VARIABLE, kernels, unavailable_reason


def test_the_environment_can_decline(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    assert kernels() is None
    assert unavailable_reason() == "MGPA_NUMBA is 0"
    monkeypatch.setenv(VARIABLE, "1")
    assert (kernels() is None) == (unavailable_reason() is not None)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("raise ModuleNotFoundError(\"No module named 'numba'\", name='numba')", "pip install 'numba"),
        ("raise ImportError('Numba needs NumPy 2.4 or less')", "numba does not load: Numba needs NumPy 2.4"),
    ],
)
def test_without_numba_numpy_does_the_work_and_the_reason_is_told(tmp_path, block, reason):
    (tmp_path / "numba.py").write_text(block)
    m = random_staged_map(dtype=np.float64)
    X = np.random.default_rng(0).normal(size=(5, m.n_features))
    m.save(tmp_path / "map")
    np.save(tmp_path / "X.npy", X)
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import numpy, mgpa
from mgpa.maps.runtime.compiled import unavailable_reason
numpy.save({str(tmp_path / "Y.npy")!r}, mgpa.load_map({str(tmp_path / "map")!r}).transform(
    numpy.load({str(tmp_path / "X.npy")!r})))
print(unavailable_reason())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(reason)
    np.testing.assert_allclose(np.load(tmp_path / "Y.npy"), m.transform(X), atol=1e-10)


@pytest.mark.parametrize(
    ("said", "threads"), [("1", 1), ("1,4", 1), ("", None), ("many", None), ("0", None), ("²", None)]
)
def test_threads_are_as_many_as_the_environment_allows(monkeypatch, said, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = n_threads()
    assert cores >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert n_threads() == (threads or cores)


def blas_threads():
    from threadpoolctl import threadpool_info

    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


LATE = """
from threadpoolctl import threadpool_info
from mgpa.linalg import one_blas_thread

with one_blas_thread():
    import scipy.linalg  # brings a BLAS of its own
with one_blas_thread():
    print(sorted(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"))
"""


def test_a_blas_that_is_loaded_later_is_limited_too():
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    said = subprocess.run([sys.executable, "-c", LATE], env=environment, capture_output=True, text=True)
    assert set(json.loads(said.stdout)) == {1}, said.stderr


def test_one_caller_at_a_time_limits_the_blas_and_leaves_it_as_it_was(monkeypatch):
    from threadpoolctl import threadpool_limits

    m = random_staged_map(dtype=np.float64)
    X = np.random.default_rng(0).normal(size=(700, m.n_features))
    expected = m.transform(X)
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread() as granted:
            assert granted
            assert blas_threads() == {1}
            with one_blas_thread() as granted:
                assert not granted
            with ThreadPoolExecutor(1) as pool:  # another's rows are corrected meanwhile
                np.testing.assert_array_equal(pool.submit(m.transform, X).result(), expected)
            assert blas_threads() == {1}
        assert blas_threads() == {2}
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            raise ZeroDivisionError
        assert blas_threads() == {2}
        monkeypatch.setattr("mgpa.linalg.n_threads", lambda: 2)
        with ThreadPoolExecutor(3) as pool:  # transforms at the same time
            for rows in pool.map(m.transform, [X] * 12):
                np.testing.assert_array_equal(rows, expected)
        assert blas_threads() == {2}
