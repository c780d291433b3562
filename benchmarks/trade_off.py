"""What each method buys and costs in open settings: the tables of docs/do_no_harm.md.

    python benchmarks/trade_off.py --tools ../shared/tools --out trade_off.json --jobs 2
    python benchmarks/trade_off.py --table trade_off.json
    python benchmarks/trade_off.py --small      # some settings of mgpa bench, no scripts or data needed

Simulated worlds, eight settings of real epochs seen by two simulated amplifiers, fifteen real ones, and, with
``--electrodes``, twelve of electrodes. S, T_f, T_r and M are measured by scripts beside the data, which treat
all corrections alike. ``home`` and ``away`` are the balanced accuracy of a decoder of one device, at its own
threshold, on corrected rows of that device and of the other one; methods that take a ``reference`` are told
which device the decoder has. Finished cells are kept, so that a run can be interrupted.

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
from joblib import Parallel, delayed
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa.baselines import list_methods, make_method

METHODS = {
    "identity": lambda: make_method("identity"),
    "LEACE": lambda: make_method("leace"),
    "CORAL (told)": lambda: make_method("coral"),
    "FEATMAP (told)": lambda: make_method("featmap"),
    "published closed form": mgpa.ClosedFormMGPA.paper,
    "published 48 stages": mgpa.IterativeMGPA.paper,
    "closed form": lambda: mgpa.ClosedFormMGPA(on_missing="warn"),
    "MGPA": mgpa.MGPA,
    "paired regression (told)": None,
}
if "epo" in {method.name for method in list_methods()}:
    METHODS["EPO"] = lambda: make_method("epo")

# Electrodes that are one view of a recording, and those that are the other.
VIEWS = {
    "left-right": ("Fp1 F3 C3 P3 O1 T7", "Fp2 F4 C4 P4 O2 T8"),
    "front-back": ("Fp1 F3 F4 Fp2 Fz", "O1 P3 P4 O2 Pz"),
    "Fp1-O1": ("Fp1", "O1"),
    "Cz-T7": ("Cz", "T7"),
}


def paired_regression(pairs, reference):
    """Return a ridge regression of one view on the other, for rows whose source is told."""
    maps = []
    for source in (0, 1):
        target = (pairs[0] + pairs[1]) / 2 if reference is None else pairs[reference]
        center, offset = pairs[source].mean(axis=0), target.mean(axis=0)
        x, y = pairs[source] - center, target - pairs[source]
        G = x.T @ x
        G[np.diag_indices_from(G)] += 0.1 * np.trace(G) / len(G)
        maps.append((center, np.linalg.solve(G, x.T @ (y - y.mean(axis=0))), offset - center))
    if reference is not None:
        center, slope, offset = maps[reference]
        maps[reference] = center, 0 * slope, 0 * offset
    return lambda rows, told: rows + (rows - maps[told][0]) @ maps[told][1] + maps[told][2]


def fitter(make_model, reference=None):
    """Return a fit; with a reference, methods that take one correct to that source."""

    def fit(X, source, pairs):
        if make_model is None:
            return paired_regression(pairs, reference)
        model = make_model()
        if reference is not None and "reference" in model.get_params():
            model.set_params(reference=reference)
        model.fit(X, source=source, pairs=pairs)
        if model.tags.source_blind:
            return lambda rows, _: model.transform(rows)
        return lambda rows, told: model.transform(rows, source=np.full(len(rows), told))

    return fit


def home_and_away(data, make_model, association=0.9):
    """Return the balanced accuracy of a decoder on corrected rows of its own device and of the other one."""
    first, second, task, who, rotations, gamma = data
    middle, half = (first + second) / 2, (second - first) / 2
    views = (first, second) if gamma is None else (middle - gamma * half, middle + gamma * half)
    home, away = [], []
    for number, roles in enumerate(rotations):
        rng = np.random.default_rng(number)
        fit, head, judged = (np.isin(who, roles[role]) for role in ("FIT", "HEAD", "EVAL"))
        from_second = rng.random(fit.sum()) < np.where(task[fit] == 1, association, 1 - association)
        X = np.where(from_second[:, None], views[1][fit], views[0][fit])
        center, scale = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1)

        def standard(rows, center=center, scale=scale):
            return (rows - center) / scale

        pairs = standard(first[fit]), standard(second[fit])
        for device in (0, 1):
            correct = fitter(make_model, device)(standard(X), from_second.astype(int), pairs)
            decoder = make_pipeline(StandardScaler(), RidgeClassifier(alpha=10, class_weight="balanced"))
            decoder.fit(standard(views[device][head]), task[head])
            for scores, source in ((home, device), (away, 1 - device)):
                predicted = decoder.predict(correct(standard(views[source][judged]), source))
                scores.append(balanced_accuracy_score(task[judged], predicted))
    return {"home": float(np.mean(home)), "away": float(np.mean(away))}


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
    """Yield the group and name of every setting, and a function from a method to its measures."""
    worlds, tool = (importlib.import_module(name) for name in ("worlds", "trade_off"))  # beside the data

    def real(data):
        return lambda make_model: (
            tool.evaluate(data, {"": fitter(make_model)})[""] | home_and_away(data, make_model)
        )

    def world(arguments, options):
        def mean(make_model, reference=None):
            runs = [
                worlds.trial(
                    worlds.World(seed, **arguments),
                    {"": fitter(make_model, reference)},
                    **options,
                    reference=reference,
                )[""]
                for seed in range(3)
            ]
            runs = [run for run in runs if not isinstance(run, str)]  # what a method refuses
            return {key: float(np.mean([run[key] for run in runs])) for key in runs[0]} if runs else {}

        def run(make_model):
            found = mean(make_model)
            ends = [end for end in (mean(make_model, device) for device in (0, 1)) if end]
            if not found or not ends:
                return {}
            found["home"], found["away"] = (
                float(np.mean([end[key] for end in ends])) for key in ("home", "A")
            )
            return found

        return run

    for name, arguments, options in worlds.worlds():
        yield "world", name, world(arguments, options)
    for name, data in worlds.amplifiers():
        yield "amplifiers", name, real(data)
    for name, data in tool.open_sets():
        yield "real", name, real(data)
    for name, data in electrode_sets(tool, electrodes) if electrodes else ():
        yield "electrodes", name, real(data)


def measure(out, methods, electrodes, groups, jobs, tools):
    results = json.loads(out.read_text()) if out.exists() else {}
    cells = [
        (group, name, method)
        for group, name, _ in settings(electrodes)
        for method in methods
        if group in groups and method not in results.get(group, {}).get(name, {})
    ]
    tasks = (delayed(one)(cell, electrodes, tools) for cell in cells)
    for (group, name, method), found, seconds in Parallel(jobs, return_as="generator_unordered")(tasks):
        results.setdefault(group, {}).setdefault(name, {})[method] = found
        out.write_text(json.dumps(results, indent=1))
        numbers = "  ".join(f"{key} {value:.3f}" for key, value in found.items())
        print(f"{name:34s} {method:22s} {numbers}  ({seconds:.0f} s)", flush=True)


def measure_small(out, methods):
    """Measure the quick settings of ``mgpa bench``, whose readers and decoders are the audit's."""
    from mgpa.bench import Method, estimator, find_methods, find_settings
    from mgpa.bench.protocol import measure_cell

    results = {}
    for setting in find_settings([], None, quick=True)[0]:
        named = results.setdefault("world" if setting.data == "worlds" else setting.data, {})
        for name in methods:
            if METHODS[name] is None:
                entry = find_methods(["told regression"])[0]
            else:
                model = METHODS[name]()
                told = not model.tags.source_blind
                entry = Method(
                    name, estimator(METHODS[name], told=told), told, "reference" in model.get_params()
                )
            cell = measure_cell(setting, entry, True)
            found = {key: cell[key][0] for key in ("S", "T_f", "M", "home", "away") if key in cell}
            named.setdefault(setting.name, {})[name] = found | {"A": found["away"]} if found else {}
    out.write_text(json.dumps(results, indent=1))
    table(results)


def one(cell, electrodes, tools):
    """Measure one method in one setting."""
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(tools))
    sys.modules.pop("trade_off", None)
    start = time.time()
    run = next(run for group, name, run in settings(electrodes) if (group, name) == cell[:2])
    return cell, run(METHODS[cell[2]]), time.time() - start


def table(results):
    """Print S / T_f of every setting (in worlds also accuracy), then home / away, with means."""

    def cell(found, keys):
        return " / ".join(f"{found[key]:.3f}".removeprefix("0") for key in keys) if found else "refused"

    for group, named in results.items():
        methods = [m for m in METHODS if any(m in cells for cells in named.values())]
        for keys in (("S", "T_f", "A") if group == "world" else ("S", "T_f"), ("home", "away")):
            title = f"{group}: {' / '.join(keys)}"
            print(f"\n| {title} | " + " | ".join(methods) + " |\n" + "|---" * (len(methods) + 1) + "|")
            for name in sorted(named):
                print(f"| {name} | " + " | ".join(cell(named[name].get(m), keys) for m in methods) + " |")
            means, changes = [], []
            measured = (*keys, "M") if keys[0] == "S" else keys
            for m in methods:
                found = [cells[m] for cells in named.values() if cells.get(m)]
                means.append(cell({k: np.mean([f[k] for f in found]) for k in measured}, measured))
                change = [
                    cells[m][keys[1]] - cells["identity"][keys[1]]
                    for cells in named.values()
                    if cells.get(m) and "identity" in cells
                ]
                changes.append(f"{np.mean(change):+.3f}, worst {min(change):+.3f}" if change else "")
            print(
                "| **mean** | "
                + " | ".join(means)
                + f" |\n| change of {keys[1]} | "
                + " | ".join(changes)
                + " |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=Path, default=Path("../shared/tools"))
    parser.add_argument("--electrodes", type=Path, help="data_complexity.csv")
    parser.add_argument("--out", type=Path, default=Path("trade_off.json"))
    parser.add_argument("--groups", nargs="+", default=["world", "amplifiers", "real", "electrodes"])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--small", action="store_true", help="some settings of mgpa bench")
    parser.add_argument("--table", type=Path, help="print the table of these results, and measure nothing")
    asked = parser.parse_args()
    if asked.table is not None:
        return table(json.loads(asked.table.read_text()))
    if asked.small:
        return measure_small(asked.out, asked.methods)
    if not (asked.tools / "worlds.py").exists():
        raise SystemExit(
            f"There is no {asked.tools}/worlds.py. --small, or mgpa bench, need no scripts or data."
        )
    sys.path.insert(0, str(asked.tools))
    sys.modules.pop("trade_off", None)
    return measure(asked.out, asked.methods, asked.electrodes, asked.groups, asked.jobs, asked.tools)


if __name__ == "__main__":
    main()
