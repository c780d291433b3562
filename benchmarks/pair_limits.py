"""What can be found: the most powerful test of wrong pairs, which knows the covariances of signal and noise.

    python benchmarks/pair_limits.py
    python benchmarks/pair_limits.py --real shared/real     # and what is found among real pairs

A fifth of the pairs is shuffled. The likelihood of a mixture of right pairs, of right pairs with 2, 4 or 8
times the noise, and of wrong ones is compared with that of the mixture without wrong ones; the threshold is
the 98 % quantile without any. No test that has to estimate the covariances finds more.
"""

import argparse
from itertools import combinations
from pathlib import Path

import numpy as np

from mgpa.pair_checks import doubt, examine_pairs

FEATURES, SIMULATIONS = 16, 100
SCALES = (1.0, 2.0, 4.0, 8.0)


def log_normal(x, variance):
    """Return log densities of independent normals, up to a constant."""
    return -0.5 * np.sum(x * x / variance + np.log(variance), axis=1)


def likelihood(logs):
    """Return the largest log likelihood of a mixture of these densities (components, pairs), by EM."""
    density = np.exp(np.minimum(np.array(logs), 60.0))
    share = np.full(len(density), 1.0 / len(density))
    for _ in range(200):
        joint = share[:, None] * density
        share = (joint / joint.sum(axis=0)).mean(axis=1)
    return np.log(share @ density).sum()


def evidence(noise, m, is_shuffled, rng):
    """Return twice the log likelihood ratio for wrong pairs, in one simulation."""
    mix = rng.normal(size=(FEATURES, FEATURES))
    events = rng.normal(size=(m, FEATURES)) @ mix
    size = events.std()
    first, second = (events / size + noise * rng.normal(size=events.shape) for _ in range(2))
    if is_shuffled:
        some = rng.choice(m, m // 5, replace=False)
        second[some] = second[np.roll(some, 1)]
    signal, axes = np.linalg.eigh(mix.T @ mix / size**2)
    sums, differences = (first + second) @ axes, (second - first) @ axes

    def right(scale):
        own = 2.0 * scale * noise**2 * np.ones(FEATURES)
        return log_normal(differences, own) + log_normal(sums, 4.0 * signal + own)

    apart = 2.0 * (signal + noise**2)
    wrong = log_normal(differences, apart) + log_normal(sums, apart)
    relative = [right(scale) - right(1.0) for scale in SCALES]
    return 2.0 * (likelihood([*relative, wrong - right(1.0)]) - likelihood(relative))


def real_pairs(folder):
    """Yield names, both views and participants of real pairs."""
    corn = np.load(folder / "corn_nir.npz")["spectra"]
    for i, j in combinations(range(3), 2):
        yield f"corn {i + 1}, {j + 1}", corn[:, i], corn[:, j], None
    worn = np.load(folder / "phone_watch.npz")
    yield "phone and watch", worn["phone"], worn["watch"], worn["participant"]
    tokens = np.load(folder / "kalunga_gssc_tokens.npz")
    yield "EEG, two references", tokens["car"].mean(axis=1), tokens["oz"].mean(axis=1), tokens["participant"]
    boards = np.load(folder / "gas_boards.npz")
    X = np.sign(boards["X"]) * np.log1p(np.abs(boards["X"]))
    events = np.array(["|".join(map(str, e)) for e in zip(
        boards["gas"], boards["concentration"], boards["replicate"], strict=True)])  # fmt: skip
    first, *others = np.unique(boards["board"])
    for board in others:
        rows = [np.flatnonzero(boards["board"] == each) for each in (first, board)]
        _, i, j = np.intersect1d(*(events[some] for some in rows), return_indices=True)
        yield f"boards {first}, {board}", X[rows[0][i]], X[rows[1][j]], None


def examine_real(folder, m=60, draws=20):
    """Print how often right pairs are doubted, and pairs of which a fifth was shuffled."""
    for name, A, B, participants in real_pairs(folder):
        doubted = np.zeros((draws, 2))
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            rows = np.sort(rng.choice(len(A), m, replace=False))
            a, b = (side[rows].astype(float) for side in (A, B))
            people = None if participants is None else participants[rows]
            doubted[seed, 0] = bool(doubt(examine_pairs(a, b, people)))
            some = rng.choice(m, m // 5, replace=False)
            b[some] = b[np.roll(some, 1)]
            doubted[seed, 1] = bool(doubt(examine_pairs(a, b, people)))
        right, shuffled = doubted.mean(axis=0)
        print(f"{name}: right pairs doubted {right:.2f}, shuffled ones {shuffled:.2f}", flush=True)


def main():
    """Print the power for numbers of pairs and sizes of noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--real", type=Path, help="folder of real pairs: only these")
    options = parser.parse_args()
    if options.real:
        examine_real(options.real)
        return
    rng = np.random.default_rng(0)
    for noise in (0.5, 1.0, 1.5, 2.0):
        for m in (20, 60, 200):
            without, shuffled = (
                np.array([evidence(noise, m, some, rng) for _ in range(SIMULATIONS)])
                for some in (False, True)
            )
            threshold = max(np.quantile(without, 0.98), 2.0)
            print(f"noise {noise:g}, {m} pairs: found {np.mean(shuffled > threshold):.2f}", flush=True)


if __name__ == "__main__":
    main()
