"""Small random embeddings, estimators and maps for tests."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgpa import IterativeMGPA
from mgpa.maps import AffineMap, MapInfo, PosteriorMap, ProjectiveMap, RoutedMap, StagedMap


def embeddings(n: int = 50, dtype: Any = np.float32, seed: int = 1, d: int = 10) -> np.ndarray:
    """Return rows that a random map takes."""
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


@dataclass(frozen=True)
class Data:
    """What an estimator is fitted on."""

    X: np.ndarray
    source: np.ndarray
    pairs: tuple[np.ndarray, np.ndarray] | None = None
    pair_id: np.ndarray | None = None
    sample_weight: np.ndarray | None = None

    def fit(self, model: Any) -> Any:
        return model.fit(self.X, **self.evidence())

    def evidence(self) -> dict[str, Any]:
        names = ("source", "pairs", "pair_id", "sample_weight")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def rows(self, chosen: Any) -> "Data":
        """Return the data of these rows; pairs given as arrays stay whole."""
        arrays = {
            name: value[chosen]
            for name in ("X", "source", "pair_id", "sample_weight")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **arrays)

    def map_features(self, function: Any) -> "Data":
        pairs = None if self.pairs is None else tuple(map(function, self.pairs))
        return replace(self, X=function(self.X), pairs=pairs)


def two_sources(
    seed: int = 0, n: int = 80, d: int = 6, m: int = 30, effect: float = 1.5, dtype: Any = np.float64
) -> Data:
    """Return rows of two sources, shifted by about ``effect`` in every feature, and pairs as two arrays.

    Pairs differ by that shift and by a response of their own in two directions.
    """
    rng = np.random.default_rng(seed)
    shift, mix = effect * rng.normal(size=d), rng.normal(size=(d, d)) + 2 * np.eye(d)
    source = rng.permutation(np.arange(n) % 2)
    X = rng.normal(size=(n, d)) @ mix + np.outer(source, shift) + rng.normal(size=d)
    first = rng.normal(size=(m, d)) @ mix
    second = first + shift + 0.5 * rng.normal(size=(m, 2)) @ rng.normal(size=(2, d))
    return Data(X.astype(dtype), source, (first.astype(dtype), second.astype(dtype)))


def several_sources(seed: int = 0, events: int = 25, d: int = 6, K: int = 3, unpaired: int = 10) -> Data:
    """Return rows of K sources, shuffled: every event has one view per source, some rows have no event."""
    rng = np.random.default_rng(seed)
    effects, mix = 1.5 * rng.normal(size=(K, d)), rng.normal(size=(d, d)) + 2 * np.eye(d)
    source = np.concatenate([np.tile(np.arange(K), events), rng.integers(K, size=unpaired)])
    pair_id = np.concatenate([np.repeat(np.arange(events), K), np.full(unpaired, -1)])
    content = np.concatenate([np.repeat(rng.normal(size=(events, d)), K, 0), rng.normal(size=(unpaired, d))])
    X = content @ mix + effects[source] + 0.3 * rng.normal(size=(len(source), d))
    order = rng.permutation(len(source))
    return Data(X[order], source[order], pair_id=pair_id[order])


def new_rows(data: Data, seed: int = 0, n: int = 40) -> np.ndarray:
    """Return rows that were not fitted on."""
    rng = np.random.default_rng(seed)
    d = data.X.shape[1]
    return (data.X.mean(0) + 3 * rng.normal(size=(n, d))).astype(data.X.dtype)


def linear(n_stages: int = 3, **changes: Any) -> IterativeMGPA:
    """Return a small iterative estimator without networks."""
    return IterativeMGPA.paper(critics=("linear",), n_stages=n_stages, **changes)


def both(n_stages: int = 2, **changes: Any) -> IterativeMGPA:
    """Return a small iterative estimator with both critics."""
    return IterativeMGPA.paper(n_stages=n_stages, **{"critic_epochs": 2, "device": "cpu"} | changes)


def refused(*words: str, error: Any = (ValueError, TypeError)) -> Any:
    """Expect an error whose message has these words in this order."""
    return pytest.raises(error, match=r"[\s\S]*".join(map(re.escape, words)))


def spoilt(rows: Any, where: Any, value: float = np.nan) -> np.ndarray:
    """Return a copy with other values in some places."""
    bad = np.array(rows)
    bad[where] = value
    return bad


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Compare relative to the size of the whole array."""
    size = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * size)


def same_tensors(a: Any, b: Any) -> bool:
    """Return whether two maps have the same numbers."""
    one, other = a.tensors, b.tensors
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


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
    anchored: bool = False,
    **changes: Any,
) -> StagedMap:
    """Return a map with random weights.

    If ``anchored``, scores aim for those at a point off its gate too, and the first stage has a start.
    """
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
    if anchored:
        arguments |= {
            "anchor_weight": np.zeros((stages, 0, d), dtype),
            "anchor_bias": np.zeros((stages, 0), dtype),
            "anchor_readout": normal(d, r + 1),
            "anchor_offset": normal(r + 1),
            "anchor_direction": 0.3 * normal(d, r + 1),
            "start_readout": 0.3 * normal(d, r),
            "start_offset": normal(r),
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


def random_posterior_map(
    seed: int = 0, d: int = 7, r: int | None = None, n_sources: int = 2, readings: int = 4, **changes: Any
) -> PosteriorMap:
    """Return a map far from zero; ``r`` None moves rows in all d features."""
    rng = np.random.default_rng(seed)
    rank = d if r is None else r
    arguments = {
        "center": 20 + rng.normal(size=d),
        "scale": 0.5 + rng.random(d),
        "square": rng.normal(size=(readings, d)) / np.sqrt(d),
        "square_weight": rng.normal(size=(readings, n_sources)) / 4,
        "linear": rng.normal(size=(n_sources, d)) / np.sqrt(d),
        "bias": rng.normal(size=n_sources),
        "edit": rng.normal(size=(n_sources, d, rank)) / 3,
        "edit_offset": rng.normal(size=(n_sources, rank)),
        "direction": None if r is None else np.linalg.qr(rng.normal(size=(d, r)))[0].T,
    }
    return PosteriorMap(**(arguments | changes))


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


def random_spread_map(
    seed: int = 0, d: int = 10, r: int | None = 3, K: int = 3, fades: bool = True, **changes: Any
) -> PosteriorMap:
    """Return a map of posterior and edits; without ``r``, its edits are of features."""
    rng = np.random.default_rng(seed)
    width = d if r is None else r
    arguments = {
        "center": rng.normal(size=d),
        "scale": rng.uniform(0.5, 2.0, size=d),
        "square": 0.3 * rng.normal(size=(2, d)),
        "square_weight": rng.normal(size=(2, K)),
        "linear": rng.normal(size=(K, d)),
        "bias": rng.normal(size=K),
        "edit": rng.normal(size=(K, d, width)),
        "edit_offset": rng.normal(size=(K, width)),
        "direction": None if r is None else rng.normal(size=(r, d)),
        "info": random_info(d),
    }
    if fades:
        arguments |= {
            "unseen_whiten": 0.2 * rng.normal(size=(d, 4)),
            "unseen_means": 2.0 * rng.normal(size=(K, 4)),
            "unseen_edit": rng.normal(size=(d, width)),
            "unseen_offset": rng.normal(size=width),
            "unseen_odds": np.array([1.0]),
        }
    return PosteriorMap(**(arguments | changes))


def edge_cases(staged: Any, scores: Any) -> dict[str, Any]:
    """Return, by name, functions that make maps which every runtime has to get right.

    ``staged(L, N, **changes)`` makes a map of stages with L linear and N network scores.
    """
    return {
        **{f"affine-{k}": lambda k=k: random_affine_map(k=k).with_strength(1.3) for k in (0, 1, 3, 8)},
        **{f"anchored-{L}-{N}": lambda L=L, N=N: staged(L, N, anchored=True) for L, N in scores},
        "spread": lambda: random_spread_map(fades=False).with_strength(1.3),
        **{f"spread-unseen-{r}": lambda r=r: random_spread_map(r=r).with_strength(0.7) for r in (3, None)},
        "staged-float64": lambda: staged(dtype=np.float64),
        "anchored-float64": lambda: staged(dtype=np.float64, anchored=True),
        "anchored-first-stage": lambda: staged(anchored=True).prefix(1, 0.4),
        "no-stages": lambda: random_staged_map()[:0],
        "no-rank": lambda: random_staged_map(r=0),
        "no-strength": lambda: random_staged_map().with_strength(0),
    }


class Payload:
    """Pickles to code that leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))
