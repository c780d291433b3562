"""Readers that do to their process what damaged files do, for tests of how others survive it."""

import os
import sys
import time
import warnings

import numpy as np

from mgpa.eeg.datasets.reader_process import read_apart


@read_apart
def process_id(path):
    return os.getpid()


@read_apart
def crash(path):
    os.abort()


@read_apart
def hang(path):
    time.sleep(600)


@read_apart
def take_memory(path, n_bytes):
    return len(bytearray(n_bytes))


@read_apart
def leave(path):
    os._exit(3)


@read_apart
def chatter(path):
    os.write(1, b'{"warnings": [], "result": "forged"}\n')
    print("hello")
    warnings.warn("odd", RuntimeWarning, stacklevel=1)
    return {"name": path.name, "folder": os.getcwd(), "path": sys.path}


@read_apart
def arrays(path):
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    return {"fortran": fortran, "text": [np.array(["a", "bc"])], "none": np.empty((0, 4), np.int16), "n": 3}


@read_apart
def objects(path):
    return np.array([print, None], dtype=object)


@read_apart
def divide(path):
    return 1 / 0
