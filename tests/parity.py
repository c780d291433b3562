"""What the authors' code gave: the part of it in tests/data, and all of it on machines that have it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import mgpa
from mgpa.maps import StagedMap
from shared import FIXTURES

STORED = Path(__file__).parent / "data" / "parity.npz"
CASES = ("stored", "open_a", "open_b")
FIELDS = ("damping", "radius", "stabilizer")


@dataclass(frozen=True)
class Parity:
    """Inputs and outputs of the authors' code, by name, and the maps it stored.

    In the repository the inputs are rounded to float32, and outputs are those of the first new rows only:
    compare as many rows as an output has.
    """

    arrays: dict[str, np.ndarray]
    maps: dict[str, StagedMap]
    rounded: bool

    @property
    def pairs(self):
        return tuple(np.swapaxes(self.arrays["pairs"], 0, 1))

    @property
    def raw_pairs(self):
        return tuple(np.swapaxes(self.arrays["pairs_raw"], 0, 1))

    def fit(self, model):
        return model.fit(self.arrays["X"], source=self.arrays["source"], pairs=self.pairs)

    def fit_raw(self, model):
        return model.fit(self.arrays["X_raw"], source=self.arrays["source"], pairs=self.raw_pairs)

    def assert_output(self, actual, name, tolerance=1e-8):
        """Compare with an output of the authors; inputs rounded to float32 allow for 1e-6."""
        expected = self.arrays[name]
        atol = max(tolerance, 1e-6) if self.rounded else tolerance
        np.testing.assert_allclose(actual[: len(expected)], expected, rtol=0, atol=atol)


def load_parity(case: str) -> Parity:
    if case == "stored":
        return _stored()
    folder = FIXTURES / case
    if not folder.is_dir():
        pytest.skip("the authors' fixtures are not on this machine")
    with np.load(folder / "fixture.npz") as file:
        maps = {path.name: mgpa.load_map(path) for path in folder.glob("iterative_*")}
        return Parity(dict(file), maps, rounded=False)


def _stored() -> Parity:
    with np.load(STORED) as file:
        everything = dict(file)
    arrays = {name: values for name, values in everything.items() if "/" not in name}
    for name in ("X", "pairs", "X_new"):
        arrays[name] = arrays[name].astype(np.float64)
        arrays[f"{name}_raw"] = arrays[name] * arrays["scale"] + arrays["center"]
    maps = {}
    for name in sorted({name.partition("/")[0] for name in everything if "/" in name}):
        stored = {
            key.partition("/")[2]: value for key, value in everything.items() if key.startswith(f"{name}/")
        }
        maps[name] = StagedMap(**stored | {field: float(stored[field]) for field in FIELDS})
    return Parity(arrays, maps, rounded=True)
