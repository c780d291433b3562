"""Store finished cells on disk under names derived from their inputs; files are complete or absent."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import warnings
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from .. import __version__
from .._common.files import write_atomically
from ..maps import CorrectionMap, load_map
from ..maps.info import KINDS
from ..maps.io.mapfile import map_digest

Arrays = dict[str, NDArray[Any]]

# Increase this number when the content of cells changes meaning, so that old caches are not reused.
CELL_VERSION = 9
#: The libraries that compute.
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")
# Entries in each file: name of the cell, checksum of its arrays, checksum of the map beside it.
SEAL = "_cell"


def versions() -> dict[str, str | None]:
    """Return the versions of the libraries that the numbers depend on; None if one is not installed."""
    return {"mgpa": __version__, **dict.fromkeys(LIBRARIES), **installed(*LIBRARIES)}


def installed(*packages: str) -> dict[str, str]:
    """Return the versions of the installed packages."""
    present = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            present[name] = version(name)
    return present


def resolve_device(device: str) -> str:
    """Return the device for "auto", so that cells of different devices have different keys."""
    if device == "auto" and find_spec("torch") is not None:
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cpu" if device == "auto" else device


def cell_key(kind: str, *parts: Any) -> str:
    """Return the name of a cell, from its kind, its inputs and the library versions."""
    return key_of(kind, CELL_VERSION, versions(), parts)


def key_of(*parts: Any) -> str:
    """Return a key for a computation from all inputs that determine its result."""
    return hashlib.sha256(json.dumps(_describe(parts)).encode()).hexdigest()[:32]


def array_digest(*arrays: NDArray[Any]) -> str:
    """Return a checksum of arrays, their types and shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _describe(value: Any) -> Any:
    """Return a value in a JSON form that is the same in every process for equal values."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [_describe(item) for item in value]
    if isinstance(value, dict):
        return ["dict", sorted([repr(key), _describe(item)] for key, item in value.items())]
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return array_digest(value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "get_params") and not isinstance(value, type):
        return [type(value).__module__, type(value).__qualname__, _describe(value.get_params())]
    # Use the content, because equal reprs may mean different objects, and reprs may contain addresses.
    try:
        return joblib.hash(value)
    except pickle.PicklingError:  # lambdas get a random key: never reused, but never confused
        return repr(value)


class Store:
    """A folder with one ``.npz`` file per cell; without a folder nothing is stored.

    Files contain only arrays and are read without pickle, so opening one never runs code. A map is stored
    beside its cell.
    """

    def __init__(self, folder: Any = None) -> None:
        self.folder = None if folder is None else Path(folder)

    def get(self, key: str) -> Arrays | None:
        """Return a finished cell, or None; a damaged or wrong file gives a warning and None."""
        cell = self.get_fit(key, with_map=False)
        return cell and cell[1]

    def get_fit(self, key: str, *, with_map: bool = True) -> tuple[Any, Arrays] | None:
        """Return the map of a finished cell and its arrays, or None, as :meth:`get` does."""
        path = None if self.folder is None else self.folder / f"{key}.npz"
        if path is None or not path.is_file():
            return None
        try:
            with open(path, "rb") as stream:
                arrays = dict(np.load(stream, allow_pickle=False))
            m = load_map(path.with_suffix(".safetensors")) if with_map else None
            name, digest, map_sum = arrays.pop(SEAL).tolist()
            if (name, digest) != (key, _digest(arrays)) or (m is not None and map_digest(m) != map_sum):
                raise ValueError("its content, or the map beside it, belongs to another cell")
        except Exception as error:  # truncated, altered or foreign file
            warnings.warn(f"{path} cannot be read ({error}); computing it again.", stacklevel=3)
            return None
        return m, arrays

    def put(self, key: str, arrays: Arrays, m: CorrectionMap | None = None) -> Arrays:
        """Store a finished cell, with its map if any, and return the arrays.

        Without a folder, or a file format for the map, nothing is stored.
        """
        if self.folder is None or (m is not None and m.kind not in KINDS):
            return arrays
        path, buffer = self.folder / f"{key}.npz", io.BytesIO()
        seal = [key, _digest(arrays), "" if m is None else map_digest(m)]
        np.savez(buffer, **arrays | {SEAL: np.array(seal)})  # type: ignore[arg-type]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Write the map first: the file of the cell marks both as complete.
            if m is not None:
                m.save(path.with_suffix(".safetensors"))
            write_atomically(path, buffer.getvalue())
        except OSError as error:  # a full or read-only disk must not lose computed results
            warnings.warn(f"{path} cannot be written ({error}); continuing without it.", stacklevel=2)
        return arrays


def _digest(arrays: Arrays) -> str:
    names = sorted(arrays)
    return key_of(names, array_digest(*(np.asarray(arrays[name]) for name in names)))
