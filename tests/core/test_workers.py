"""Work in several processes ends, whatever happens to the processes."""

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


def test_results_come_in_the_order_of_the_calls():
    calls = [delayed(time.sleep)(0.2), delayed(abs)(-1)]
    assert list(in_processes(calls, n_jobs=2)) == [None, 1]
