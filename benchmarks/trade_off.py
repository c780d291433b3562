"""What each method buys and costs in open settings: the tables of docs/do_no_harm.md.

    python benchmarks/trade_off.py --tools ../shared/tools      # measures what trade_off.json lacks
    python benchmarks/trade_off.py --table                      # prints every table from that file
    python benchmarks/trade_off.py --table world --each         # one of them, with its settings
    python benchmarks/trade_off.py --small      # some settings of mgpa bench, no scripts or data needed

Groups of settings: simulated worlds; eight of real epochs seen by two simulated amplifiers; fifteen real
ones; ``spectra``, twelve in which a calibration of one spectrometer predicts a value; phone and watch; and,
with ``--electrodes``, twelve of electrodes. S, T_f, T_r and M are measured by scripts beside the data,
which treat all corrections alike. ``home`` and ``away`` are the balanced accuracy of a decoder of one
device, at its own threshold, on corrected rows of that device and of the other one (spectra: RMSEP in
standard deviations); methods that take a ``reference`` are told which device the decoder has. In worlds the
decoder is the first device's, and ``S_ref`` is S after a correction to it; elsewhere each device's decoder
has its turn.

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
from sklearn.cross_decomposition import PLSRegression
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
    "MGPA": lambda: mgpa.MGPA(on_missing="warn"),
    "MGPA(spread='always')": lambda: mgpa.MGPA(on_missing="warn", spread="always"),
    "paired regression (told)": None,
}
if "epo" in {method.name for method in list_methods()}:
    METHODS["EPO"] = lambda: make_method("epo")

STORED = Path(__file__).with_suffix(".json")

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


def classifier():
    return make_pipeline(StandardScaler(), RidgeClassifier(alpha=10, class_weight="balanced"))


def calibration():
    return PLSRegression(8)


def root_mean_square(truth, predicted):
    """Return RMSEP in standard deviations of the values; these are standardised."""
    return np.sqrt(np.mean((truth - predicted.ravel()) ** 2))


def home_and_away(data, make_model, decoder=classifier, score=balanced_accuracy_score, association=0.9):
    """Return the scores of decoders on corrected rows of their own device and of the other one."""
    first, second, task, who, rotations, gamma = data
    middle, half = (first + second) / 2, (second - first) / 2
    views = (first, second) if gamma is None else (middle - gamma * half, middle + gamma * half)
    favours = task == 1 if decoder is classifier else task > 0
    home, away = [], []
    for number, roles in enumerate(rotations):
        rng = np.random.default_rng(number)
        fit, head, judged = (np.isin(who, roles[role]) for role in ("FIT", "HEAD", "EVAL"))
        if decoder is calibration:
            head = ~judged  # few samples: a calibration has all others
        from_second = rng.random(fit.sum()) < np.where(favours[fit], association, 1 - association)
        X = np.where(from_second[:, None], views[1][fit], views[0][fit])
        center, scale = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1)

        def standard(rows, center=center, scale=scale):
            return (rows - center) / scale

        pairs = standard(first[fit]), standard(second[fit])
        for device in (0, 1):
            correct = fitter(make_model, device)(standard(X), from_second.astype(int), pairs)
            model = decoder().fit(standard(views[device][head]), task[head])
            for scores, source in ((home, device), (away, 1 - device)):
                rows = correct(standard(views[source][judged]), source)
                scores.append(score(task[judged], model.predict(rows)))
    return {"home": float(np.mean(home)), "away": float(np.mean(away))}


def phone_and_watch(tool, folder):
    """Return the setting of two devices that 23 people wore; walking was mostly recorded by the watch."""
    data = np.load(folder / "phone_watch.npz")
    who, views = data["participant"], [data[name].astype(float) for name in ("phone", "watch")]
    task = np.where(data["label"] == "WALKING", 1, 2 + np.unique(data["label"], return_inverse=True)[1])
    return *views, task, who, tool.rotate(np.unique(who), 5, 9, 0), None


def spectra(folder):
    """Yield settings in which a calibration of one spectrometer predicts a value of corn."""
    data = np.load(folder / "corn_nir.npz")
    for (i, j), t in itertools.product(((0, 1), (0, 2), (1, 2)), range(4)):
        values = data["targets"][:, t]
        values = (values - values.mean()) / values.std()
        parts = np.array_split(np.random.default_rng(3).permutation(len(values)), 8)
        who = np.empty(len(values), int)
        for number, part in enumerate(parts):
            who[part] = number
        rotations = [{"EVAL": [k], "HEAD": [], "FIT": [n for n in range(8) if n != k]} for k in range(8)]
        views = (data["spectra"][:, k].astype(float) for k in (i, j))
        name = f"{data['instruments'][i]} {data['instruments'][j]} {data['target_names'][t]}"
        yield name, (*views, values, who, rotations, None)


def tokens(tool, folder):
    """Yield settings of all channels' tokens together, whose rows keep a share of the contrast."""
    data = np.load(folder / "kalunga_gssc_tokens.npz")
    keep = np.isin(data["label"], ["13Hz", "21Hz"])
    views = [data[name][keep].reshape(keep.sum(), -1).astype(float) for name in ("car", "oz")]
    who, task = data["participant"][keep], (data["label"][keep] == "21Hz").astype(int)
    for share in (0.005, 0.02):
        yield f"all channels, {share:g}", (*views, task, who, tool.rotate(np.unique(who), 3, 3, 2), share)


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


def settings(tools, electrodes, decoders=False):
    """Yield the group and name of every setting, and a function from a method to its measures.

    With ``decoders``, no readers and no heads are trained where these take most of the time.
    """
    worlds, tool = (importlib.import_module(name) for name in ("worlds", "trade_off"))  # beside the data
    folder = tools.resolve().parent / "real"

    def real(data):
        if decoders:
            return lambda make_model: home_and_away(data, make_model)
        return lambda make_model: (
            tool.evaluate(data, {"": fitter(make_model)})[""] | home_and_away(data, make_model)
        )

    def mean(arguments, options, make_model, reference=None):
        runs = [
            worlds.trial(
                worlds.World(seed, **arguments), {"": fitter(make_model, reference)}, **options,
                reference=reference,
            )[""]
            for seed in range(3)
        ]  # fmt: skip
        runs = [run for run in runs if not isinstance(run, str)]  # what a method refuses
        return {key: float(np.mean([run[key] for run in runs])) for key in runs[0]} if runs else {}

    def world(arguments, options):
        def run(make_model):
            both = mean(arguments, options, make_model)
            first = mean(arguments, options, make_model, 0)
            if not both or not first:
                return {}
            return both | {"home": first["home"], "away": first["A"], "S_ref": first["S"]}

        return run

    for name, arguments, options in worlds.worlds():
        yield "world", name, world(arguments, options)
    for name, data in worlds.amplifiers():
        yield "amplifiers", name, real(data)
    for name, data in tool.open_sets():
        yield "real", name, real(data)
    for name, data in spectra(folder):
        yield (
            "spectra",
            name,
            lambda make_model, data=data: home_and_away(data, make_model, calibration, root_mean_square),
        )
    worn = phone_and_watch(tool, folder)
    yield "worn", "phone and watch", lambda make_model: home_and_away(worn, make_model)
    for name, data in tokens(tool, folder):
        yield "tokens", name, lambda make_model, data=data: home_and_away(data, make_model)
    for name, data in electrode_sets(tool, electrodes) if electrodes else ():
        yield "electrodes", name, real(data)


def measure(asked):
    out = asked.out
    results = json.loads(out.read_text()) if out.exists() else {}
    cells = [
        (group, name, method)
        for group, name, _ in settings(asked.tools, asked.electrodes, asked.decoders)
        for method in asked.methods
        if group in asked.groups and method not in results.get(group, {}).get(name, {})
    ]
    tasks = (delayed(one)(cell, asked.electrodes, asked.tools, asked.decoders) for cell in cells)
    for (group, name, method), found, seconds in Parallel(asked.jobs, return_as="generator_unordered")(tasks):
        rounded = {key: round(value, 4) for key, value in found.items()}
        results.setdefault(group, {}).setdefault(name, {})[method] = rounded
        out.write_text(json.dumps(results, indent=1) + "\n")
        numbers = "  ".join(f"{key} {value:.3f}" for key, value in found.items())
        print(f"{name:34s} {method:22s} {numbers}  ({seconds:.0f} s)", flush=True)


def measure_small(methods):
    """Measure the quick settings of ``mgpa bench``, whose readers and decoders are the audit's."""
    from mgpa.bench import Method, estimator, find_methods, find_settings
    from mgpa.bench.protocol import measure_cell

    results = {}
    for setting in find_settings([], None, quick=True)[0]:
        named = results.setdefault("world" if setting.data == "worlds" else setting.data, {})
        for name in methods:
            if METHODS[name] is None:
                entry = find_methods(["told regression (ceiling)"])[0]
            else:
                model = METHODS[name]()
                told = not model.tags.source_blind
                entry = Method(
                    name, estimator(METHODS[name], told=told), told, "reference" in model.get_params()
                )
            cell = measure_cell(setting, entry, True)
            found = {key: cell[key][0] for key in ("S", "T_f", "M", "home", "away") if key in cell}
            named.setdefault(setting.name, {})[name] = found | {"A": found["away"]} if found else {}
    return results


def one(cell, electrodes, tools, decoders):
    """Measure one method in one setting."""
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(tools))
    sys.modules.pop("trade_off", None)
    start = time.time()
    run = next(run for group, name, run in settings(tools, electrodes, decoders) if (group, name) == cell[:2])
    return cell, run(METHODS[cell[2]]), time.time() - start


COLUMNS = {
    "world": ("home", "away", "S_ref", "S", "T_f", "A", "M"),
    "spectra": ("home", "away"),
    "worn": ("home", "away"),
    "tokens": ("home", "away"),
}


def write(value):
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def shown(method):
    """Return the name of a method as the page writes it."""
    return method.replace("(told)", "(source given)")


def table(results, group):
    """Return a group's table: the mean of every method, and the worst change of T_f in one setting.

    A cell is empty where not all settings were measured.
    """
    named = results[group]
    columns = COLUMNS.get(group, ("home", "away", "S", "T_f", "T_r", "M"))
    measured = {key for cells in named.values() for cell in cells.values() for key in cell}
    columns = [key for key in columns if key in measured]
    worst = "T_f" in columns
    head = ["method", *columns, *["worst change of T_f"] * worst]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for method in METHODS:
        found = [cells[method] for cells in named.values() if cells.get(method)]  # others: refused
        if not found or not all(method in cells for cells in named.values()):
            continue
        of = {key: [cell[key] for cell in found] for key in columns if all(key in cell for cell in found)}
        row = [shown(method), *(write(np.mean(of[key])) if key in of else "" for key in columns)]
        if worst:
            before = [cells["identity"]["T_f"] for cells in named.values() if cells.get(method)]
            change = min(np.subtract(of["T_f"], before)) if "T_f" in of and method != "identity" else None
            row.append("" if change is None else f"{change:+.3f}".replace("0.", ".", 1))
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def each(results, group):
    """Return a group's settings, one a row: decoders at home and away, and S."""
    S = "S_ref" if group == "world" else "S"
    names = {"identity": "uncorrected", "MGPA": "MGPA", "paired regression (told)": "source given"}
    columns = [(key, method) for key in ("home", "away", S) for method in names]
    columns.remove(("home", "paired regression (told)"))  # as uncorrected
    columns.remove((S, "identity"))
    cells = results[group].values()
    columns = [(key, m) for key, m in columns if all(key in cell.get(m, {}) for cell in cells)]
    head = ["setting", *(f"{key.removesuffix('_ref')}, {names[method]}" for key, method in columns)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, cell in results[group].items():
        lines.append(f"| {name} | " + " | ".join(write(cell[m][key]) for key, m in columns) + " |")
    return "\n".join(lines)


def print_tables(results, groups, settings_too):
    for group in groups:
        print(f"\n{group}, mean of {len(results[group])} settings\n\n{table(results, group)}")
        if settings_too:
            print(f"\n{each(results, group)}")


def main():
    groups = ("world", "amplifiers", "real", "spectra", "worn", "tokens", "electrodes")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=Path, default=Path("../shared/tools"))
    parser.add_argument("--electrodes", type=Path, help="data_complexity.csv")
    parser.add_argument("--out", type=Path, default=STORED)
    parser.add_argument("--groups", nargs="+", default=groups, choices=groups)
    parser.add_argument("--decoders", action="store_true", help="home and away alone, in minutes")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--small", action="store_true", help="some settings of mgpa bench")
    parser.add_argument("--table", nargs="*", choices=groups, help="print tables of stored results instead")
    parser.add_argument("--each", action="store_true", help="and every setting")
    asked = parser.parse_args()
    if asked.small:
        results = measure_small(asked.methods)
        if asked.out != STORED:
            asked.out.write_text(json.dumps(results, indent=1) + "\n")
        return print_tables(results, results, asked.each)
    if asked.table is not None:
        results = json.loads(asked.out.read_text())
        return print_tables(results, asked.table or results, asked.each)
    if not (asked.tools / "worlds.py").exists():
        raise SystemExit(
            f"There is no {asked.tools}/worlds.py. --small, or mgpa bench, need no scripts or data."
        )
    sys.path.insert(0, str(asked.tools))
    sys.modules.pop("trade_off", None)
    return measure(asked)


if __name__ == "__main__":
    main()
