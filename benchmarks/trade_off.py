"""What each method buys and costs in open settings: the tables of docs/do_no_harm.md.

    python benchmarks/trade_off.py --tools ../shared/tools --out trade_off.json
    python benchmarks/trade_off.py --table trade_off.json

Fifteen simulated worlds, eight settings of real epochs seen by two simulated amplifiers, fifteen real ones,
and, with ``--electrodes``, twelve of electrodes. The measuring is not ours: scripts beside the data judge all
corrections alike. Finished cells are kept, so that a run can be interrupted.

    pip download --no-deps --no-binary :all: neurokit2==0.2.13 && tar xzf neurokit2-0.2.13.tar.gz
    python benchmarks/trade_off.py --electrodes neurokit2-0.2.13/studies/complexity_eeg/data_complexity.csv
"""

import argparse
import importlib
import itertools
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import mgpa
from mgpa.baselines import available, make

METHODS = {
    "identity": lambda: make("identity"),
    "LEACE": lambda: make("leace"),
    "CORAL (told)": lambda: make("coral"),
    "FEATMAP (told)": lambda: make("featmap"),
    "published closed form": mgpa.ClosedFormMGPA.paper,
    "published 48 stages": mgpa.IterativeMGPA.paper,
    "closed form": lambda: mgpa.ClosedFormMGPA(on_missing="warn"),
    "MGPA": mgpa.MGPA,
}
if "epo" in {method.name for method in available()}:
    METHODS["EPO"] = lambda: make("epo")

# Electrodes that are one view of a recording, and those that are the other.
VIEWS = {
    "left-right": ("Fp1 F3 C3 P3 O1 T7", "Fp2 F4 C4 P4 O2 T8"),
    "front-back": ("Fp1 F3 F4 Fp2 Fz", "O1 P3 P4 O2 Pz"),
    "Fp1-O1": ("Fp1", "O1"),
    "Cz-T7": ("Cz", "T7"),
}


def fitter(make_model):
    def fit(X, source, pairs):
        model = make_model().fit(X, source=source, pairs=pairs)
        if model.tags.source_blind:
            return lambda rows, _: model.transform(rows)
        return lambda rows, told: model.transform(rows, source=np.full(len(rows), told))

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


def settings(electrodes):
    """Yield the group and name of every setting, and a function from a fit to its measures."""
    worlds, tool = (importlib.import_module(name) for name in ("worlds", "trade_off"))  # beside the data

    def real(data):
        return lambda fit: tool.evaluate(data, {"": fit})[""]

    def world(arguments, options):
        def run(fit):
            runs = [
                worlds.trial(worlds.World(seed, **arguments), {"": fit}, **options)[""] for seed in range(3)
            ]
            runs = [found for found in runs if not isinstance(found, str)]  # what a method refuses
            return {key: float(np.mean([found[key] for found in runs])) for key in runs[0]} if runs else {}

        return run

    for name, arguments, options in worlds.worlds():
        yield "world", name, world(arguments, options)
    for name, data in worlds.amplifiers():
        yield "amplifiers", name, real(data)
    for name, data in tool.open_sets():
        yield "real", name, real(data)
    for name, data in electrode_sets(tool, electrodes) if electrodes else ():
        yield "electrodes", name, real(data)


def measure(out, methods, electrodes, groups):
    results = json.loads(out.read_text()) if out.exists() else {}
    for group, name, run in settings(electrodes):
        for method in methods if group in groups else ():
            if method in results.setdefault(group, {}).setdefault(name, {}):
                continue
            start = time.time()
            results[group][name][method] = found = run(fitter(METHODS[method]))
            out.write_text(json.dumps(results, indent=1))
            numbers = "  ".join(f"{key} {value:.3f}" for key, value in found.items())
            print(f"{name:34s} {method:22s} {numbers}  ({time.time() - start:.0f} s)", flush=True)


def table(results):
    """Print S / T_f of every setting (in worlds also accuracy), means with M, and changes of T_f."""

    def cell(found, keys):
        return " / ".join(f"{found[key]:.3f}".removeprefix("0") for key in keys) if found else "refused"

    for group, settings in results.items():
        methods = [m for m in METHODS if any(m in cells for cells in settings.values())]
        keys = ("S", "T_f", "A") if group == "world" else ("S", "T_f")
        print(f"\n| {group} | " + " | ".join(methods) + " |\n" + "|---" * (len(methods) + 1) + "|")
        for name, cells in settings.items():
            print(f"| {name} | " + " | ".join(cell(cells.get(m), keys) for m in methods) + " |")
        means, changes = [], []
        for m in methods:
            found = [c[m] for c in settings.values() if c.get(m)]
            means.append(cell({k: np.mean([f[k] for f in found]) for k in found[0]}, (*keys, "M")))
            change = [c[m]["T_f"] - c["identity"]["T_f"] for c in settings.values() if c.get(m)]
            changes.append(f"{np.mean(change):+.3f}, worst {min(change):+.3f}")
        print("| **mean** | " + " | ".join(means) + " |\n| T_f | " + " | ".join(changes) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=Path, default=Path("../shared/tools"))
    parser.add_argument("--electrodes", type=Path, help="data_complexity.csv")
    parser.add_argument("--out", type=Path, default=Path("trade_off.json"))
    parser.add_argument("--groups", nargs="+", default=["world", "amplifiers", "real", "electrodes"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--table", type=Path, help="print the table of these results, and measure nothing")
    asked = parser.parse_args()
    if asked.table is not None:
        return table(json.loads(asked.table.read_text()))
    if not (asked.tools / "worlds.py").exists():
        raise SystemExit(f"There is no {asked.tools}/worlds.py: measuring scripts and data are not here.")
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(asked.tools))
    sys.modules.pop("trade_off", None)
    return measure(asked.out, asked.methods, asked.electrodes, asked.groups)


if __name__ == "__main__":
    main()
