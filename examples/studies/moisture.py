"""Print the errors of a moisture calibration of one spectrometer on spectra of another, as Markdown.

    python moisture.py corn_nir.npz
    python moisture.py corn_nir.npz --methods LEACE EPO --quick

A PLS calibration with eight components, in % of weight; every sample is a unit, five folds. Methods that know
the instrument bring the second one's spectra to the first.
"""

import argparse

import numpy as np
from sklearn.cross_decomposition import PLSRegression

from mgpa import audit
from mgpa.baselines import make_method
from mgpa.tables import Table

FIRST, SECOND = "m5", "mp6"
METHODS = {
    "LEACE": make_method("leace"),
    "MGPA, closed form": make_method("closed_form_mgpa"),
    "MGPA": make_method("mgpa"),
    f"MGPA → {FIRST}": make_method("mgpa", reference=FIRST),
    "EPO": make_method("epo"),
    f"FEATMAP → {FIRST}": make_method("featmap"),
    f"SST → {FIRST}": make_method("sst"),
    f"PDS → {FIRST}": make_method("pds"),
}
COLUMNS = {
    "S": "S",
    f"RMSEP {FIRST} → {SECOND}": f"RMSEP_f {FIRST} → {SECOND}",
    f"bias {FIRST} → {SECOND}": f"bias_f {FIRST} → {SECOND}",
    f"RMSEP {SECOND} → {FIRST}": f"RMSEP_f {SECOND} → {FIRST}",
    "RMSEP refitted": "RMSEP_r",
}


def moisture(data):
    """Return spectra of two instruments with their samples' moisture."""
    names = data["instruments"].tolist()
    moisture = data["targets"][:, data["target_names"].tolist().index("moisture")]
    n = len(moisture)
    return Table(
        np.concatenate([data["spectra"][:, names.index(name)] for name in (FIRST, SECOND)]).astype(
            np.float64
        ),
        source=np.repeat([FIRST, SECOND], n),
        participant=np.tile(np.arange(n), 2),
        label=np.tile(moisture, 2),
        pair_id=np.tile(np.arange(n), 2),
        info={"unit": "sample"},
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="corn_nir.npz")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--quick", action="store_true", help="no networks among the readers")
    asked = parser.parse_args()
    with np.load(asked.data) as data:
        table = moisture(data)
    readers = {"restarts": 0} if asked.quick else {}
    methods = {name: METHODS[name] for name in asked.methods}
    result = audit.run(table, methods, head=PLSRegression(8), readers=readers)
    print(f"|  | {' | '.join(COLUMNS)} |\n{'|---' * (len(COLUMNS) + 1)}|")
    for name in result:
        cells = [f"{result[name].estimate(metric):.3f}" for metric in COLUMNS.values()]
        if "→" in name:
            cells[3] = "not corrected"
        print(f"| {name.replace('identity', 'uncorrected')} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
