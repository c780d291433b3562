"""Small random maps for tests, and rows to correct with them."""

from typing import Any

import numpy as np

from mgpa.maps import AffineMap, MapInfo, ProjectiveMap, RoutedMap, StagedMap


def embeddings(n: int = 50, dtype: Any = np.float32, seed: int = 1, d: int = 10) -> np.ndarray:
    """Return rows that a random map takes."""
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def random_info(d: int) -> MapInfo:
    return MapInfo(
        method="random",
        parameters={"rank": 0.9, "ridge": 10, "gate": None, "critics": ["linear", "gelu"]},
        random_state=7,
        feature_names=tuple(f"f{i}" for i in range(d)),
        source_names=("wet", "dry"),
        n_rows=100,
        n_contrasts=40,
        fingerprint="sha256:0123",
        gate_rank=3,
        gate_energy=0.91,
        n_tokens=5,
        notes="two devices, one lab: ‖Δz‖ ≤ ρ",
    )


def random_staged_map(
    seed: int = 0,
    d: int = 10,
    r: int = 3,
    stages: int = 4,
    hidden: int = 6,
    n_linear: int = 1,
    n_network: int = 1,
    dtype: Any = np.float32,
    **changes: Any,
) -> StagedMap:
    rng = np.random.default_rng(seed)
    n_hidden = hidden if n_network else 0

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(dtype)

    basis = np.linalg.qr(rng.normal(size=(d, r)))[0]
    anchor = rng.normal(size=(stages, n_linear + n_network, d))
    arguments = {
        "center": normal(d),
        "scale": np.exp(normal(d)),
        "basis": basis.astype(dtype),
        "linear_weight": normal(stages, n_linear, d),
        "linear_bias": normal(stages, n_linear),
        "hidden_weight": normal(stages, n_hidden, d),
        "hidden_bias": normal(stages, n_hidden),
        "output_weight": normal(stages, n_network, n_hidden),
        "output_bias": normal(stages, n_network),
        "anchor_weight": (anchor - anchor @ basis @ basis.T).astype(dtype),
        "anchor_bias": normal(stages, n_linear + n_network),
        "damping": 0.001,
        "radius": 0.05 * d**0.5,
        "stabilizer": 0.1,
        "info": random_info(d),
    }
    return StagedMap(**(arguments | changes))


def random_affine_map(
    seed: int = 0, d: int = 10, k: int = 1, dtype: Any = np.float64, **changes: Any
) -> AffineMap:
    rng = np.random.default_rng(seed)
    arguments = {
        "center": rng.normal(size=d).astype(dtype),
        "scale": rng.uniform(0.5, 2.0, size=d).astype(dtype),
        "readout": rng.normal(size=(d, k)).astype(dtype),
        "direction": rng.normal(size=(d, k)).astype(dtype),
        "offset": rng.normal(size=k).astype(dtype),
        "info": random_info(d),
    }
    return AffineMap(**(arguments | changes))


def random_projective_map(
    seed: int = 0,
    d: int = 10,
    stages: int = 4,
    hidden: int = 10,
    n_sources: int = 2,
    dtype: Any = np.float32,
    **changes: Any,
) -> ProjectiveMap:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(dtype)

    arguments = {
        "center": normal(d),
        "scale": np.exp(normal(d)),
        "hidden_weight": normal(stages, hidden, d),
        "hidden_bias": normal(stages, hidden),
        "output_weight": normal(stages, n_sources, hidden),
        "output_bias": normal(stages, n_sources),
        "info": random_info(d),
    }
    return ProjectiveMap(**(arguments | changes))


def random_routed_map(
    seed: int = 0, d: int = 10, diagonal: bool = False, dtype: Any = np.float64, **changes: Any
) -> RoutedMap:
    """Return a map of the sources "wet" and "dry"."""
    rng = np.random.default_rng(seed)
    arguments = {
        "center": rng.normal(size=d).astype(dtype),
        "scale": rng.uniform(0.5, 2.0, size=d).astype(dtype),
        "readout": rng.normal(size=(2, d) if diagonal else (2, d, d)).astype(dtype),
        "offset": rng.normal(size=(2, d)).astype(dtype),
        "info": random_info(d),
    }
    return RoutedMap(**(arguments | changes))
