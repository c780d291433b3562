"""PYTHONPATH=src python benchmarks/walk.py [--functions]

What a fit runs through: modules, functions and calls of this package in one `fit` of 400 rows, 16 features
and 60 pairs (docs/maintainers/architecture.md). Comprehensions and lambdas are left out.
"""

import sys
import warnings
from collections import Counter

import numpy as np

import mgpa

PARTS = {
    "statistics and their algebra": ("statistics", "moments", "linalg", "pairs.", "labels"),
    "gate, evidence and position": ("gate", "evidence", "effect", "position"),
    "reading and edits": ("reading/",),
    "tests of the pairs": ("pair_checks/",),
    "estimators": ("estimators/",),
    "checks of arguments": ("_common/",),
    "maps": ("maps/",),
}


def world(gain):
    """Return rows, their sources and pairs; the second device shifts a feature, and stretches three."""
    rng, n, d, m = np.random.default_rng(0), 400, 16, 60
    source, mix = np.repeat([0, 1], n // 2), rng.normal(size=(d, d)) / 4 + 0.5 * np.eye(d)
    stretch, shift = np.ones(d), 2.0 * np.eye(d)[0]
    stretch[1:4] = gain

    def see(content, device):
        seen = np.where(np.reshape(device, (-1, 1)) == 1, content * stretch + shift, content)
        return seen + 0.1 * rng.normal(size=content.shape)

    both = rng.normal(size=(m, d)) @ mix
    rows = see(rng.normal(size=(n, d)) @ mix, source)
    return rows, source, (see(both, [0]), see(both, [1]))


def walk(model, gain):
    """Return how often each function is called in a second fit."""
    X, source, pairs = world(gain)
    calls = Counter()

    def count(frame, event, _):
        code = frame.f_code
        if event == "call" and "/mgpa/" in code.co_filename and "<" not in code.co_name:
            calls[code.co_filename.split("/mgpa/")[-1], code.co_qualname] += 1

    model.fit(X, source=source, pairs=pairs)  # which also loads modules
    sys.setprofile(count)
    model.fit(X, source=source, pairs=pairs)
    sys.setprofile(None)
    return calls


def main():
    """Print the counts."""
    warnings.simplefilter("ignore")
    fits = {
        "MGPA(), a shift": (mgpa.MGPA(), 1.0),
        "MGPA(), a gain": (mgpa.MGPA(), 2.0),
        "ClosedFormMGPA()": (mgpa.ClosedFormMGPA(), 1.0),
        "IterativeMGPA(n_stages=3)": (mgpa.IterativeMGPA(n_stages=3), 1.0),
    }
    for name, (model, gain) in fits.items():
        calls = walk(model, gain)
        modules = {module for module, _ in calls}
        print(f"{name}: {len(modules)} modules, {len(calls)} functions, {sum(calls.values())} calls")
        split = (f"{part} {sum(m.startswith(starts) for m, _ in calls)}" for part, starts in PARTS.items())
        print("   ", ", ".join(split))
        for (module, function), n in sorted(calls.items()) if "--functions" in sys.argv else ():
            print(f"    {n:5d}  {module} {function}")


if __name__ == "__main__":
    main()
