"""One embedding at a time: what a headset's decoder does between two samples.

    python examples/real_time.py                 # fits a small map first
    python examples/real_time.py adapter.safetensors

Opening a stored map needs numpy and safetensors; correcting one row costs less than a millisecond or so.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import mgpa


def example_map(folder: str) -> Path:
    """Fit and store a correction of two headsets."""
    rng = np.random.default_rng(0)
    source = rng.integers(2, size=2000)
    effect = rng.normal(size=64)
    X = rng.normal(size=(2000, 64)) + source[:, None] * effect
    calibration = rng.normal(size=(50, 64))
    pairs = calibration, calibration + effect + 0.1 * rng.normal(size=(50, 64))
    model = mgpa.ClosedFormMGPA().fit(X, source=source, pairs=pairs)
    return model.to_map().save(Path(folder) / "adapter.safetensors")


def stream(n_features: int, n: int):
    """Stand in for the encoder: yield one embedding after another."""
    rng = np.random.default_rng(1)
    for _ in range(n):
        yield rng.normal(size=(1, n_features)).astype(np.float32)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else example_map(folder)
        m = mgpa.load_map(path)
    print(m.summary())
    waits = []
    for embedding in stream(m.n_features, 1000):
        start = time.perf_counter()
        m.transform(embedding)  # the source of the row is not known, and not needed
        waits.append(1e3 * (time.perf_counter() - start))
    median, late = np.percentile(waits[10:], [50, 99])
    print(f"\nlatency of one row: median {median:.3f} ms, 99th percentile {late:.3f} ms")


if __name__ == "__main__":
    main()
