"""Make tests/data/parity.npz: enough of the authors' outputs to check every one of them on any machine.

    python tools/make_parity_fixture.py shared/fixtures/open_a tests/data/parity.npz

The folder holds what the authors' released code gave on seeded data. All fitting rows stay, because every
fit depends on all of them, and all new rows, because the movement budget does; both are rounded to float32.
Outputs are those of the first new rows only, in the type they came in. Of the stored maps the linear one
stays whole, and of the one with networks the stages that its published outputs and its budget need.
"""

import argparse
from pathlib import Path

import numpy as np

from mgpa import load_map

OUTPUT_ROWS = 8  # rows, and trust-region problems of each size, whose outputs are kept
N_STAGES = {"iterative_both": 4, "iterative_linear": None}
INPUTS = ("X", "pairs", "X_new")
LIMIT = 500_000  # bytes: this file is in the repository


def parity(folder: Path) -> dict[str, np.ndarray]:
    """Return the arrays to keep of a fixture folder."""
    with np.load(folder / "fixture.npz") as file:
        arrays = dict(file)
    kept = {name: arrays[name].astype(np.float32) for name in INPUTS}
    # Raw units are one centre and scale away from standardised ones.
    kept["center"], kept["scale"] = arrays["X_raw"].mean(axis=0), arrays["X_raw"].std(axis=0)
    kept["source"], kept["source_new"] = (
        arrays["source"].astype(np.int8),
        arrays["source_new"].astype(np.int8),
    )
    for name, values in arrays.items():
        if name.startswith(("gate_", "budget", "tr_damping", "tr_radius")):
            kept[name] = values
        elif name.startswith(("closed_form", "leace", "coral", "featmap", "iterative", "tr_")):
            kept[name] = values[:OUTPUT_ROWS]
    for name, stages in N_STAGES.items():
        m = load_map(folder / name)[:stages]
        for field in (*m.tensor_names, "damping", "radius", "stabilizer"):
            kept[f"{name}/{field}"] = np.asarray(getattr(m, field))
    return kept


def main() -> None:
    """Read a fixture folder and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    np.savez_compressed(arguments.out, **parity(arguments.folder))
    size = arguments.out.stat().st_size
    if size > LIMIT:
        raise SystemExit(f"{arguments.out} has {size} bytes, more than {LIMIT}: keep fewer OUTPUT_ROWS.")
    print(f"{arguments.out}: {size} bytes")


if __name__ == "__main__":
    main()
