"""Finished cells on disk: named by what they were computed from, complete or absent, never computed twice."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np
from numpy.typing import NDArray

from .. import __version__
from .._common.files import write_atomically
from ..errors import MapError
from ..maps import CorrectionMap, load_map
from ..maps.io.mapfile import map_digest

Arrays = dict[str, NDArray[Any]]

# Raised when a cell's content changes meaning, so that old caches are not mistaken for new ones.
CELL_VERSION = 7
#: The libraries that compute.
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")
# In every file: the name of the cell, a checksum of its arrays, and one of the map beside it.
SEAL = "_cell"


def versions() -> dict[str, str | None]:
    """Return the libraries whose rounding, or more, is in the numbers; None: it is not installed."""
    return {"mgpa": __version__, **dict.fromkeys(LIBRARIES), **installed(*LIBRARIES)}


def installed(*packages: str) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def resolve_device(device: str) -> str:
    """Return the device that "auto" means, so that cells of different devices are different cells."""
    if device != "auto":
        return device
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Everything that the numbers of a cell depend on.

    Each kind of cell is a subclass. Its name and all its fields are the key, so that what is added to a cell
    cannot be left out of its name.
    """

    libraries: dict[str, str | None] = field(default_factory=versions)
    version: int = CELL_VERSION

    @property
    def key(self) -> str:
        """The name of the cell."""
        return key_of(type(self).__name__, {f.name: getattr(self, f.name) for f in fields(self)})


def key_of(*parts: Any) -> str:
    """Return a name for a computation from everything that determines its result."""
    return hashlib.sha256(json.dumps(_describe(parts)).encode()).hexdigest()[:32]


def array_digest(*arrays: NDArray[Any] | None) -> str:
    """Return a checksum of arrays, their types and shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none;")
            continue
        digest.update(f"{array.dtype.str}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _describe(value: Any) -> Any:
    """Return a value as JSON can hold it, alike for equal values in every process."""
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
    # Its content, not its repr: that may be the same for different objects, or differ with the address.
    try:
        return joblib.hash(value)
    except pickle.PicklingError:  # a lambda: never found again, but never mistaken either
        return repr(value)


class Store:
    """A folder of ``.npz`` files, one a cell; without a folder nothing is kept.

    Files hold arrays only and are read without pickle, so opening one never runs code.
    """

    def __init__(self, folder: Any = None) -> None:
        self.folder = None if folder is None else Path(folder)

    def create(self) -> Self:
        """Make the folder; looking for cells needs none."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def path(self, key: str) -> Path | None:
        """Return where a cell's arrays are or would be kept."""
        return None if self.folder is None else self.folder / f"{key}.npz"

    def get(self, key: str) -> Arrays | None:
        """Return a finished cell, or None. A file that is damaged or another's is none, and that is said."""
        path = self.path(key)
        if path is None or not path.is_file():
            return None
        try:
            arrays, _ = _opened(path, key)
        except Exception as error:  # truncated, altered or something else entirely
            warnings.warn(f"{path} cannot be read ({error}); computing it again.", stacklevel=2)
            return None
        return arrays

    def get_map(self, key: str) -> CorrectionMap | None:
        """Return the map kept with a cell, or None; damaged, absent or another's, as for :meth:`get`."""
        path = self.path(key)
        if path is None:
            return None
        place = path.with_suffix(".safetensors")
        try:
            m = load_map(place)
            if map_digest(m) != _opened(path, key)[1]:
                raise MapError(f"{place} is not the map of this cell.")
        except (MapError, OSError) as error:
            warnings.warn(f"{error} Computing it again.", stacklevel=2)
            return None
        return m

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note how long something took, beside the cells: for plans, never for results."""
        started = time.monotonic()
        yield
        if self.folder is not None:
            line = json.dumps([what, round(time.monotonic() - started, 3)]) + "\n"
            with suppress(OSError), open(self.folder / "timings.jsonl", "a") as stream:
                stream.write(line)

    def timings(self) -> dict[str, float]:
        """Return what everything that was timed took, on average, in seconds."""
        found: dict[str, list[float]] = {}
        with suppress(OSError), open(self.folder / "timings.jsonl" if self.folder else os.devnull) as stream:
            for line in stream:
                with suppress(ValueError):  # a line that was cut off
                    what, seconds = json.loads(line)
                    found.setdefault(what, []).append(float(seconds))
        return {what: sum(values) / len(values) for what, values in found.items()}

    def put(self, key: str, arrays: Arrays, m: CorrectionMap | None = None) -> Arrays:
        """Keep a finished cell, and its map if there is one, and return the arrays."""
        path = self.path(key)
        if path is None:
            return arrays
        buffer = io.BytesIO()
        seal = [key, _digest(arrays), "" if m is None else map_digest(m)]
        np.savez(buffer, **arrays | {SEAL: np.array(seal)})  # type: ignore[arg-type]
        try:
            # The map first: the cell's own file says that both are complete.
            if m is not None:
                m.save(path.with_suffix(".safetensors"))
            write_atomically(path, buffer.getvalue())
        except OSError as error:  # a full or read-only disk should not cost what was computed
            warnings.warn(f"{path} cannot be written ({error}); going on without it.", stacklevel=2)
        return arrays


def time_left(steps: Iterable[str], took: Mapping[str, float]) -> float | None:
    """Return how many seconds some steps take, by what they took before; None if one has not been timed."""
    seconds = [took.get(step) for step in steps]
    return None if None in seconds else sum(s for s in seconds if s is not None)


def _opened(path: Path, key: str) -> tuple[Arrays, str]:
    """Return a cell's arrays and the checksum of its map, or raise if they are not those that were kept."""
    with open(path, "rb") as stream:
        arrays = dict(np.load(stream, allow_pickle=False))
    name, digest, of_map = arrays.pop(SEAL).tolist()
    if name != key or digest != _digest(arrays):
        raise ValueError("its content is not that of this cell")
    return arrays, of_map


def _digest(arrays: Arrays) -> str:
    names = sorted(arrays)
    return key_of(names, array_digest(*(np.asarray(arrays[name]) for name in names)))
