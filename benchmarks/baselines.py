"""Fit and transform times of every method on embeddings, beside the packages that have the same method.

    python benchmarks/baselines.py                    # 10 000 rows, 512 features
    python benchmarks/baselines.py leace coral        # some of them
    python benchmarks/baselines.py --device cuda      # networks on a GPU
    python benchmarks/baselines.py --full             # IGBP with all its stages (long on a CPU)
    python benchmarks/baselines.py --corn corn_nir.npz  # errors of calibration transfer instead of times

The bare work for a fit is the Gram product of the rows in float64, for a transform a copy of them.
"""

import argparse
import time

import numpy as np

from run import D, N, best, simulated  # the other benchmark's data and clock

# A tenth of its stages unless --full; the table says so.
SHORT = {"igbp": {"n_stages": 10}, "mance": {"n_rounds": 2, "reference_size": 1000}}
SETTINGS = {
    "iterative_mgpa": {"random_state": 17, "do_no_harm": False},
    "augmentation_invariance": {"random_state": 17},
    "igbp": {"random_state": 17},
    "mance": {"random_state": 17},
    "inlp": {"n_rounds": 35},
}


def timed(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def row(name, fit, transform, gram, copy, note=""):
    transform_text = f"{transform:>11.4f} s {transform / copy:>9.1f}" if transform else " " * 23
    print(f"{name:<34}{fit:>10.3f} s {fit / gram:>9.1f}{transform_text}   {note}", flush=True)


def ours(names, data, device, full, gram, copy):
    from mgpa.baselines import list_methods, make_method

    X, y, source, pairs = data
    held = slice(0, 2000)
    for method in list_methods():
        if method.acts_on != "embeddings" or (names and method.name not in names):
            continue
        short = {} if full else SHORT.get(method.name, {})
        settings = SETTINGS.get(method.name, {}) | short
        model = make_method(method.name, **settings)
        if "device" in model.get_params():
            model.set_params(device=device)
        validation = {"X_val": X[held], "source_val": source[held]}

        def fit(model=model, validation=validation):
            return model.fit(X, y, source=source, pairs=pairs, **validation)

        slow = method.name in ("iterative_mgpa", "igbp", "inlp", "mance", "augmentation_invariance", "pds")
        fit_time = timed(fit)[0] if slow else best(fit, 3)
        known = {} if method.source_blind else {"source": source}
        if method.name in ("igbp", "mance"):
            transform_time = timed(lambda model=model: model.transform(X))[0]
        else:
            transform_time = best(lambda model=model, known=known: model.transform(X, **known), 5)
        row(
            method.name, fit_time, transform_time, gram, copy, ", ".join(f"{k}={v}" for k, v in short.items())
        )


def packages(names, data, gram, copy):
    X, _, source, _ = data
    if not names or {"leace", "oracle_leace", "quadratic_leace"} & set(names):
        concept_erasure(X, source, gram, copy)
    if not names or "coral" in names:
        skada_coral(X, source, gram, copy)
    if not names or "combat" in names:
        neurocombat(X, source, gram, copy)


def concept_erasure(X, source, gram, copy):
    import torch
    from concept_erasure import LeaceEraser, OracleEraser, QuadraticEraser

    T, codes = torch.from_numpy(X), torch.from_numpy(source)
    onehot = torch.nn.functional.one_hot(codes).float()
    for dtype in (torch.float32, torch.float64):
        rows = T.to(dtype)
        for eraser, labels in ((LeaceEraser, onehot), (OracleEraser, onehot), (QuadraticEraser, codes)):
            labels = labels.to(dtype) if eraser is not QuadraticEraser else labels
            fit_time = best(lambda e=eraser, r=rows, z=labels: e.fit(r, z), 3)
            fitted = eraser.fit(rows, labels)
            arguments = (T.to(dtype),) if eraser is LeaceEraser else (T.to(dtype), labels)
            transform_time = best(lambda f=fitted, a=arguments: f(*a), 5)
            name = f"concept-erasure {eraser.__name__}"
            row(name, fit_time, transform_time, gram, copy, str(dtype).removeprefix("torch."))


def skada_coral(X, source, gram, copy):
    from skada import CORALAdapter

    rows, domain = X.astype(np.float64), np.where(source == 0, -1, 2)
    for reg in (None, "auto"):
        adapter = CORALAdapter(reg=reg)
        fit_time = best(lambda a=adapter: a.fit(rows, sample_domain=domain), 3)
        transform_time = best(lambda a=adapter: a.transform(rows, sample_domain=domain, allow_source=True), 5)
        row(f"skada CORALAdapter(reg={reg!r})", fit_time, transform_time, gram, copy, "float64")


def neurocombat(X, source, gram, copy):
    import contextlib
    import io

    import pandas as pd
    from neuroCombat import neuroCombat

    covars = pd.DataFrame({"batch": source})

    def both():
        with contextlib.redirect_stdout(io.StringIO()):
            neuroCombat(dat=X.T, covars=covars, batch_col="batch")

    row("neuroCombat (fit and transform)", best(both, 2), None, gram, copy)


def corn(path, names):
    """Print the error of a model of one instrument on spectra of another, for every method that maps to it.

    Six directions between three spectrometers, four targets, three halves of the samples: the model and the
    transfer are fitted on 40 samples, or the transfer on 20 or 10 of them; errors are of the other 40, in
    standard deviations of the target.
    """
    from itertools import permutations

    from sklearn.cross_decomposition import PLSRegression

    from mgpa.baselines import FEATMAP, SlopeBias, make_method

    with np.load(path) as data:
        spectra, targets = data["spectra"][:, :, ::4], data["targets"]
    methods = {
        "no correction": None,
        "slope and bias of predictions": "slope_bias",
        "PDS, window 3, 3 components": lambda: make_method("pds", window=3, n_components=3),
        "PDS": lambda: make_method("pds"),
        "SST, 5 components": lambda: make_method("sst", n_components=5),
        "SST": lambda: make_method("sst"),
        "DS, 3 components": lambda: make_method("ds", n_components=3),
        "DS": lambda: make_method("ds"),
        "FEATMAP.paper()": FEATMAP.paper,
        "FEATMAP": FEATMAP,
        "travelling subjects": lambda: make_method("traveling_subjects", reference="master"),
    }
    unknown = set(names) - methods.keys()
    if unknown:
        raise SystemExit(f"No method {unknown.pop()!r}. Methods: {', '.join(methods)}.")
    methods = {name: methods[name] for name in names or methods}
    print(f"{'RMSEP / SD, pairs':<32}{'':>4}moisture     oil protein  starch    mean")
    for n in (40, 20, 10):
        for name, make_model in methods.items():
            errors = []
            for master, slave in permutations(range(3), 2):
                for seed in range(3):
                    order = np.random.default_rng(seed).permutation(80)
                    train, test, few = order[:40], order[40:], order[:n]
                    A, B, new = spectra[few, master], spectra[few, slave], spectra[test, slave]
                    X, source = np.concatenate([A, B]), np.repeat(["master", "slave"], n)
                    if callable(make_model):
                        fitted = make_model().set_params(reference="master")
                        fitted.fit(X, source=source, pairs=(A, B))
                        new = fitted.transform(new, source="slave")
                    row = []
                    for target in targets.T:
                        head = PLSRegression(8).fit(spectra[train, master], target[train])
                        if make_model == "slope_bias":
                            model = SlopeBias(head, reference="master").fit(X, source=source, pairs=(A, B))
                            predicted = model.predict(new, source="slave")
                        else:
                            predicted = head.predict(new).ravel()
                        row.append(np.sqrt(np.mean((predicted - target[test]) ** 2)) / target.std())
                    errors.append(row)
            means = np.mean(errors, axis=0)
            print(
                f"{name:<32}{n:>4}" + "".join(f"{value:8.3f}" for value in [*means, means.mean()]), flush=True
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rows", type=int, default=N)
    parser.add_argument("--corn", metavar="FILE", help="corn_nir.npz")
    options = parser.parse_args()
    if options.corn:
        corn(options.corn, options.names)
        return
    X, source, pairs = simulated(options.rows)
    y = np.random.default_rng(1).integers(2, size=len(X))
    data = X, y, source, pairs
    gram = best(lambda: (rows := X.astype(np.float64)).T @ rows)
    copy = best(lambda: X.copy())
    print(f"{len(X)} rows, {D} features, float32; Gram product {gram * 1e3:.0f} ms, copy {copy * 1e3:.2f} ms")
    print(f"{'':<34}{'fit':>12} {'/ Gram':>9}{'transform':>13} {'/ copy':>9}")
    ours(options.names, data, options.device, options.full, gram, copy)
    try:
        packages(options.names, data, gram, copy)
    except ImportError as error:
        print(f"(not compared: {error})")


if __name__ == "__main__":
    main()
