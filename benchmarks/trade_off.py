"""What each method buys and costs in fifteen real settings where source goes with task.

    python benchmarks/trade_off.py --tool ../shared/tools/trade_off.py --out trade_off.json
    python benchmarks/trade_off.py --table trade_off.json

The measuring is not ours: a script beside the data judges every correction alike, by four source readers (two
of them networks) and by heads fitted before and after. Finished cells are kept, so that a run can be
interrupted. ``--table`` prints the table of docs/do_no_harm.md.

    pip download --no-deps --no-binary :all: neurokit2==0.2.13 && tar xzf neurokit2-0.2.13.tar.gz
    python benchmarks/trade_off.py --electrodes neurokit2-0.2.13/studies/complexity_eeg/data_complexity.csv

measures twelve settings that are not ours either: complexity of resting EEG at one set of electrodes and at
another, with open or closed eyes as the task.
"""

import argparse
import importlib.util
import itertools
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import mgpa
from mgpa.baselines import make

METHODS = {
    "identity": lambda: make("identity"),
    "LEACE": lambda: make("leace"),
    "closed form": lambda: mgpa.ClosedFormMGPA(on_missing="warn"),
    "closed form, pairs alone": lambda: mgpa.ClosedFormMGPA(do_no_harm=False, on_missing="warn"),
    "closed form, published": mgpa.ClosedFormMGPA.paper,
    "closed form, four directions": lambda: mgpa.ClosedFormMGPA(mgpa.MeasurementGate(rank=4), n_directions=4),
    "48 stages, published": mgpa.IterativeMGPA.paper,
}

# Electrodes that are one view of a recording, and those that are the other.
VIEWS = {
    "left-right": ("Fp1 F3 C3 P3 O1 T7", "Fp2 F4 C4 P4 O2 T8"),
    "front-back": ("Fp1 F3 F4 Fp2 Fz", "O1 P3 P4 O2 Pz"),
    "Fp1-O1": ("Fp1", "O1"),
    "Cz-T7": ("Cz", "T7"),
}


def load(tool):
    spec = importlib.util.spec_from_file_location("trade_off_tool", tool)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fitter(make_model):
    def fit(X, source, pairs):
        model = make_model().fit(X, source=source, pairs=pairs)
        return lambda rows, _: model.transform(rows)

    return fit


def electrode_sets(tool, path):
    """Yield settings like the tool's: people of two data sets, together and apart, in eight groups."""
    rows = pd.read_csv(path)
    rows["person"] = rows["Dataset"] + " " + rows["Participant"]
    features = ["SFD", "AttEn", "SVDEn", "Hjorth"]
    wide = rows.pivot_table(index=["Dataset", "person", "Condition"], columns="Channel", values=features)
    for recorded, (title, both) in itertools.product(("Lemon|Wang", "Lemon", "Wang"), VIEWS.items()):
        views = [wide[[(f, channel) for channel in names.split() for f in features]] for names in both]
        complete = views[0].notna().all(axis=1) & views[1].notna().all(axis=1)
        complete &= wide.index.get_level_values("Dataset").str.contains(recorded)
        people = wide.index.get_level_values("person").to_series(index=wide.index)
        complete &= people.map(people[complete].value_counts()) == 2  # open and closed
        names, person = np.unique(people[complete], return_inverse=True)
        group = np.random.default_rng(3).permutation(len(names)) % 8
        who = np.array([f"g{g}" for g in group[person]])
        task = (people[complete].index.get_level_values("Condition") == "Eyes-Open").astype(int)
        rotations = tool.rotate(np.unique(who), 2, 2, 1)
        first, second = (view[complete].to_numpy() for view in views)
        yield f"{recorded.replace('|', '+')}-{title}", (first, second, task, who, rotations, None)


def measure(tool, sets, out, methods, settings):
    results = json.loads(out.read_text()) if out.exists() else {}
    for name, data in sets:
        if not name.startswith(tuple(settings)):
            continue
        for method in methods:
            if method in results.get(name, {}):
                continue
            start = time.time()
            found = tool.evaluate(data, {method: fitter(METHODS[method])})[method]
            results.setdefault(name, {})[method] = found
            out.write_text(json.dumps(results, indent=1))
            numbers = "  ".join(f"{key} {value:.3f}" for key, value in found.items())
            print(f"{name:24s} {method:24s} {numbers}  ({time.time() - start:.0f} s)", flush=True)


def table(results):
    """Print S / T_f / T_r / M of every setting, and what is asked of the default."""
    methods = [m for m in METHODS if all(m in cells for cells in results.values())]
    print("| setting | " + " | ".join(methods) + " |")
    print("|---" * (len(methods) + 1) + "|")
    for name, cells in results.items():
        print(f"| {name.replace('-', ' ')} | " + " | ".join(_cell(cells[m]) for m in methods) + " |")
    mean = {m: {k: np.mean([c[m][k] for c in results.values()]) for k in cells[m]} for m in methods}
    print("| mean | " + " | ".join(_cell(mean[m]) for m in methods) + " |")
    for m in methods[1:]:
        change = np.array([c[m]["T_f"] - c["identity"]["T_f"] for c in results.values()])
        print(f"{m}: T_f within .01 of uncorrected in {np.sum(change >= -0.01)} of {len(change)}, ", end="")
        print(f"mean {change.mean():+.3f}, worst {change.min():+.3f}")


def _cell(found):
    return " / ".join(f"{found[key]:.3f}".removeprefix("0") for key in ("S", "T_f", "T_r", "M"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", default=[""], help="beginnings of the settings' names; all")
    parser.add_argument("--tool", type=Path, default=Path("../shared/tools/trade_off.py"))
    parser.add_argument("--electrodes", type=Path, help="data_complexity.csv: measure its settings instead")
    parser.add_argument("--out", type=Path, default=Path("trade_off.json"))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--table", type=Path, help="print the table of these results, and measure nothing")
    asked = parser.parse_args()
    if asked.table is not None:
        return table(json.loads(asked.table.read_text()))
    if not asked.tool.exists():
        raise SystemExit(
            f"There is no {asked.tool}: the measuring script and its data are not in this checkout."
        )
    warnings.filterwarnings("ignore")
    tool = load(asked.tool)
    sets = electrode_sets(tool, asked.electrodes) if asked.electrodes else tool.open_sets()
    return measure(tool, sets, asked.out, asked.methods, asked.settings)


if __name__ == "__main__":
    main()
