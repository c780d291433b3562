"""What can be found: the most powerful test of wrong pairs, which knows the covariances of signal and noise.

    python benchmarks/pair_limits.py

A fifth of the pairs is shuffled. The likelihood of a mixture of right pairs, of right pairs with 2, 4 or 8
times the noise, and of wrong ones is compared with that of the mixture without wrong ones; the threshold is
the 98 % quantile without any. No test that has to estimate the covariances finds more.
"""

import numpy as np

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


def main():
    """Print the power for numbers of pairs and sizes of noise."""
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
