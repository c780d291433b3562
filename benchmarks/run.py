"""Speed as ratios within one run against the physical work each operation must do.

    python benchmarks/run.py                     # everything on the CPU
    python benchmarks/run.py --device cuda       # the torch paths on a GPU
    python benchmarks/run.py transform row       # some of: transform row affine spread fit ...
    python benchmarks/run.py --history benchmarks/history.jsonl   # and keep the ratios, see history.py
    python benchmarks/run.py --json speed.json   # and every line, for page.py

Every line gives the time, the time of the bare work in the same process, their ratio, the aim and whether it
is met. An operation and its bare work take turns, and the shortest run of each counts. Cores and threads are
pinned; a ratio below .95 is "busy" (see quiet.py).
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import quiet
from quiet import shortest

if __name__ == "__main__":
    quiet.pin()

import numpy as np

import history

N, D, R, STAGES, HIDDEN = 10_000, 512, 64, 48, 128
# Rows of an array that no last-level cache holds (200 MB).
MANY = 100_000
LINES = []


def best(function, repeats=5, prepare=None):
    """Return the shortest of several runs, in seconds."""
    return shortest([function], repeats, prepare)[0]


def report(name, seconds, bare_name, bare, aim="-"):
    """Print and keep one line. The aim is a ratio ("1.7"), a time ("0.4 ms", "2 s") or none ("-")."""
    ratio = seconds / bare
    number, _, unit = aim.partition(" ")
    measured = seconds / {"ms": 1e-3, "s": 1.0}[unit] if unit else ratio
    met = quiet.verdict(ratio, measured, None if aim == "-" else float(number))
    LINES.append(
        {"name": name, "seconds": seconds, "bare_name": bare_name, "bare": bare, "ratio": round(ratio, 3),
         "aim": aim, "verdict": met}
    )  # fmt: skip
    print(
        f"{name:<52}{seconds * 1e3:>10.2f} ms  {bare_name:<34}{bare * 1e3:>9.2f} ms  "
        f"ratio {ratio:>6.2f}  (aim {aim}{', ' * bool(met)}{met})",
        flush=True,
    )


def simulated(n=N, seed=0):
    """Return rows, sources and pairs with a device effect of rank R inside D features."""
    rng = np.random.default_rng(seed)
    response = rng.normal(size=(R, D)) / np.sqrt(D)
    X = rng.normal(size=(n, D)).astype(np.float32)
    source = rng.integers(0, 2, n)
    X += (source[:, None] * (0.5 + rng.normal(size=(n, R)) @ response)).astype(np.float32)
    A = rng.normal(size=(500, D)).astype(np.float32)
    B = A + (0.5 + rng.normal(size=(500, R)) @ response).astype(np.float32)
    return X, source, (A, B)


def staged_map(seed=0, n_stages=STAGES):
    """Return a map of the benchmark's size with random weights of realistic scale."""
    import mgpa

    rng = np.random.default_rng(seed)

    def weights(*shape):
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    return mgpa.maps.StagedMap(
        center=np.zeros(D),
        scale=np.ones(D),
        basis=np.linalg.qr(rng.normal(size=(D, R)))[0],
        linear_weight=weights(n_stages, 1, D),
        linear_bias=weights(n_stages, 1),
        hidden_weight=weights(n_stages, HIDDEN, D),
        hidden_bias=weights(n_stages, HIDDEN),
        output_weight=weights(n_stages, 1, HIDDEN),
        output_bias=weights(n_stages, 1),
        anchor_weight=0.1 * weights(n_stages, 2, D),
        anchor_bias=weights(n_stages, 2),
        damping=1e-3,
        radius=0.05 * D**0.5,
        stabilizer=0.1,
    )


def on_device(function):
    """Return a function that waits for the GPU, too."""
    import torch

    return lambda: (function(), torch.cuda.synchronize())


def bench_transform(device):
    m = staged_map()
    X = np.random.default_rng(1).normal(size=(N, D)).astype(np.float32)
    first = m._weights(X.dtype).first[:-1]
    product = f"one product {N}x{D}x{first.shape[1]}"
    if device == "cpu":
        times = shortest([lambda: m.transform(X), lambda: X @ first])
        report(f"staged transform, {N} x {D}, {STAGES} stages", times[0], product, times[1], "1.5")
        with tempfile.TemporaryDirectory() as folder:
            size = m.save(f"{folder}/map.safetensors").stat().st_size
        print(f"  stages {how_stages_run()}; the map's file has {size / 1e6:.1f} MB")
        return
    import torch

    for n in (N, 10 * N):
        rows = torch.randn(n, D, device=device)
        weights = torch.as_tensor(first, device=device)
        times = shortest(
            [
                on_device(lambda rows=rows: m.transform(rows)),
                on_device(lambda rows=rows, weights=weights: rows @ weights),
            ]
        )
        product = f"one product {n}x{D}x{first.shape[1]}"
        report(f"staged transform on {device}, {n} rows", times[0], product, times[1], "2")


def how_stages_run():
    from mgpa.maps.runtime.compiled import unavailable_reason

    reason = unavailable_reason()
    return "run compiled" if reason is None else f"run in numpy ({reason})"


def bench_row(device):
    if device != "cpu":
        return
    from threadpoolctl import threadpool_limits

    m = staged_map().warm_up()
    x = np.random.default_rng(1).normal(size=(1, D)).astype(np.float32)
    first = m._weights(x.dtype).first[:-1]
    with threadpool_limits(1):
        times = shortest([lambda: m.transform(x), lambda: x @ first], 400)
    product = f"one product 1x{D}x{first.shape[1]}"
    report(f"one row, {STAGES} stages, one core", times[0], product, times[1], "1.3")


def bench_affine(device):
    import mgpa

    rng = np.random.default_rng(0)
    m = mgpa.maps.AffineMap(
        center=rng.normal(size=D), scale=np.ones(D), readout=rng.normal(size=(D, 1)),
        direction=rng.normal(size=(D, 1)), offset=np.zeros(1),
    )  # fmt: skip
    if device == "cpu":
        for n, aim in ((N, "-"), (MANY, "2.5")):
            X = rng.normal(size=(n, D)).astype(np.float32)
            times = shortest([lambda X=X: m.transform(X), X.copy], 20)
            report(f"closed-form transform, {n} x {D}", times[0], "copy", times[1], aim)
        out = np.empty_like(X)
        times = shortest([lambda: m.transform(X, out=out), lambda: np.copyto(out, X)], 20)
        report(f"closed-form transform into out=, {n} x {D}", times[0], "copy into an array", times[1], "2.5")
        times = shortest([lambda: m.transform(out, out=out), lambda: np.copyto(out, X)], 20)
        report(f"closed-form transform in place, {n} x {D}", times[0], "copy into an array", times[1], "2.5")
        return
    import torch

    rows = torch.randn(50 * N, D, device=device)
    times = shortest([on_device(lambda: m.transform(rows)), on_device(rows.clone)])
    report(f"closed-form transform on {device}, {50 * N} rows", times[0], "copy", times[1], "2.5")


def bench_spread(device):
    """A map of two sources: readings whose squares tell them apart, and edits in all or in few directions."""
    import mgpa
    from mgpa.maps.runtime.folding import fold_spread

    rng = np.random.default_rng(0)

    def weights(*shape):
        return rng.normal(size=shape) / np.sqrt(D)

    for rank in (R, D):
        m = mgpa.maps.PosteriorMap(
            center=rng.normal(size=D), scale=np.ones(D), square=weights(R, D), square_weight=weights(R, 2),
            linear=weights(2, D), bias=weights(2), edit=weights(2, D, rank), edit_offset=weights(2, rank),
            direction=None if rank == D else weights(rank, D),
        )  # fmt: skip
        for dtype in ("float32", "float64"):
            folded = fold_spread(m).cast(lambda array, dtype=dtype: array.astype(dtype))
            X, edits = rng.normal(size=(N, D)).astype(dtype), np.ones((N, rank), dtype)
            if device != "cpu":
                import torch

                folded = folded.cast(lambda array: torch.as_tensor(array, device=device))
                X, edits = (torch.as_tensor(array, device=device) for array in (X, edits))

            def products(n, X=X, edits=edits, folded=folded):
                X[:n] @ folded.first
                if folded.back is not None:
                    edits[:n] @ folded.back

            wait = on_device if device != "cpu" else lambda function: function
            times = shortest([wait(lambda m=m, X=X: m.transform(X)), wait(lambda: products(N))])
            name = f"spread transform, {N} x {D}, rank {rank}, {dtype}"
            report(name, times[0], "its products", times[1], "1.5" if device == "cpu" else "2")
            if device == "cpu":
                times = shortest([lambda m=m, X=X: m.transform(X[:1]), lambda: products(1)], 400)
                report(f"one row, spread, rank {rank}, {dtype}", times[0], "its products", times[1], "0.2 ms")


def spread_world(rng, n=N, n_pairs=500, n_sources=2):
    """Return rows, sources, pairs (two sources) or ids (more) of sources that differ in gain and shift."""
    mixing = rng.normal(size=(D, D)) * np.geomspace(2, 0.2, D)[:, None]  # strong and weak directions
    gain = [np.where(np.arange(D) < R, 1.0 + k / (n_sources - 1), 1.0) for k in range(n_sources)]
    shift = [k * rng.normal(size=D) / np.sqrt(D) for k in range(n_sources)]

    def seen(events, source):
        return events * np.take(gain, source, axis=0) + np.take(shift, source, axis=0)

    source = rng.integers(0, n_sources, n)
    X, events = seen(rng.normal(size=(n, D)) @ mixing, source), rng.normal(size=(n_pairs, D)) @ mixing
    if n_sources == 2:
        sides = (seen(events, np.full(n_pairs, side)) for side in (0, 1))
        return X, source, tuple(sides)
    ids = np.full(n, -1)
    rows = np.arange(n_sources * n_pairs).reshape(n_sources, n_pairs)
    for k in range(n_sources):
        X[rows[k]] = seen(events + 0.1 * rng.normal(size=events.shape), np.full(n_pairs, k))
        source[rows[k]], ids[rows[k]] = k, np.arange(n_pairs)
    return X, source, ids


def gram_of_sources(X, source):
    """Return a function that makes the Gram product of every source's rows in float64."""
    parts = [np.ascontiguousarray(X[source == k], dtype=np.float64) for k in np.unique(source)]

    def gram():
        for rows in parts:
            rows.T @ rows  # which a BLAS knows to be symmetric

    return gram


def bench_fit(device):
    import mgpa

    if device == "cpu":
        X, source, pairs = spread_world(np.random.default_rng(0))
        models, gram = (mgpa.MGPA(), mgpa.ClosedFormMGPA()), gram_of_sources(X, source)
        fits = [lambda m=m: m.fit(X, source=source, pairs=pairs) for m in models]
        spread, closed, product = shortest([*fits, gram], 5)
        assert isinstance(models[0].map_, mgpa.maps.PosteriorMap)
        report("MGPA() fit that corrects spread, 500 pairs", spread, "closed-form fit", closed, "2.5")
        report(f"closed-form fit, {N} x {D}, 500 pairs", closed, "Gram products (float64)", product, "2")
        X, source, ids = spread_world(np.random.default_rng(0), 20_000, 3_000, 3)
        models = (mgpa.MGPA(), mgpa.ClosedFormMGPA())
        fits = [lambda m=m: m.fit(X, source=source, pair_id=ids) for m in models]
        spread, closed = shortest(fits, 1)
        report(
            "MGPA() fit, 20 000 rows, three sources, 9 000 contrasts",
            spread,
            "closed-form fit",
            closed,
            "3 s",
        )
        return
    X, source, pairs = simulated()
    import torch

    closed = mgpa.ClosedFormMGPA.paper(gate=mgpa.MeasurementGate(rank=R))
    for n in (N, 100 * N):
        rows = torch.as_tensor(X, device=device).repeat(n // N, 1)
        labels, wide = np.tile(source, n // N), rows.double()
        fit, gram = shortest(
            [
                lambda rows=rows, labels=labels: closed.fit(rows, source=labels, pairs=pairs),
                lambda wide=wide: (wide.T @ wide).cpu(),
            ],
            3,
        )
        aim = "15 ms" if n == N else "60 ms"
        report(f"closed-form fit on {device}, {n} x {D}", fit, "Gram product there (float64)", gram, aim)


def bench_iterative(device):
    import torch

    import mgpa
    from mgpa.critics import fit_linear, fit_network

    X, source, pairs = simulated()
    H = torch.as_tensor((X - X.mean(0)) / X.std(0), device=device)
    stages = STAGES if device != "cpu" else STAGES // 4

    def training_steps():
        for k in range(stages):
            fit_linear(H, source, 2)
            fit_network(H, source, 2, seeds=[k], epochs=12, learning_rate=1e-3)
        if device != "cpu":
            torch.cuda.synchronize()

    def plain_torch():
        """The same number of AdamW steps written as a tutorial would."""
        net = torch.nn.Sequential(torch.nn.Linear(D, 128), torch.nn.GELU(), torch.nn.Linear(128, 2)).to(
            device
        )
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-3)
        target = torch.as_tensor(source, device=device)
        for _ in range(12):
            for rows in torch.randperm(N, device=device).split(256):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(H[rows]), target[rows]).backward()
                optimizer.step()
        if device != "cpu":
            torch.cuda.synchronize()

    model = mgpa.IterativeMGPA.paper(gate=mgpa.MeasurementGate(rank=R), n_stages=stages, device=device)
    fitting = best(lambda: model.fit(X, source=source, pairs=pairs), 1)
    report(
        f"iterative fit on {device}, {stages} stages",
        fitting,
        "its critics' training alone",
        best(training_steps, 1),
        "1.3" if device == "cpu" else "2.5 s",
    )
    tutorial = stages * best(plain_torch, 2)
    report(f"iterative fit on {device}, {stages} stages", fitting, "same GELU steps, plain torch", tutorial)


def bench_tokens(device):
    if device != "cpu":
        return
    import mgpa

    rng = np.random.default_rng(0)
    n, t, d = 200, 60, 512
    shift = np.zeros((t, d), np.float32)
    shift[:, :3] = 0.5
    source = np.repeat([0, 1], n // 2)
    X = rng.normal(size=(n, t, d)).astype(np.float32) + source[:, None, None] * shift
    A = rng.normal(size=(n // 2, t, d)).astype(np.float32)
    pairs = (A, A + shift + 0.1 * rng.normal(size=A.shape).astype(np.float32))
    model = mgpa.JointTokens(mgpa.ClosedFormMGPA(anchor="within"))
    wide = X.reshape(n, -1).astype(np.float64)
    report(
        f"closed-form fit of all tokens, {n} x {t} x {d}",
        best(lambda: model.fit(X, source=source, pairs=pairs), 2),
        "products of rows (float64)",
        best(lambda: wide @ wide.T, 3),
        "0.3 s",
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of the process {peak:.0f} MiB; d x d numbers take {(t * d) ** 2 / 2**17:.0f}")


def bench_stream(device):
    if device != "cpu":
        return
    import mgpa

    n, chunk = 1_000_000, 20_000
    X, source, pairs = simulated(chunk)
    model = mgpa.ClosedFormMGPA.paper(gate=mgpa.MeasurementGate(rank=R))
    gram, fitting, bare = gram_of_sources(X, source), 0.0, 0.0
    model.partial_fit(X, source=source, pairs=pairs)
    for _ in range(n // chunk):  # in turns
        start = time.perf_counter()
        model.partial_fit(X, source=source)
        middle = time.perf_counter()
        gram()
        fitting, bare = fitting + middle - start, bare + time.perf_counter() - middle
        time.sleep(quiet.BUSY_AFTER)
    start = time.perf_counter()
    model.to_map()
    fitting += time.perf_counter() - start
    report(f"closed-form fit streamed, {n} x {D}", fitting, "Gram products (float64)", bare, "1.3")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of the process {peak:.0f} MiB; the rows would need {n * D * 4 / 2**20:.0f} MiB")


IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def bench_import(device):
    if device != "cpu":
        return

    def seconds(what):
        command = [sys.executable, "-c", IMPORT.format(what)]
        return min(float(subprocess.check_output(command)) for _ in range(3))

    times = seconds("mgpa.audit; mgpa.audit.run"), seconds("sklearn.linear_model")
    report("import mgpa.audit and its run", times[0], "import sklearn.linear_model", times[1], "1.5 s")


def bench_table(device):
    """A Parquet table of many people, a tenth of 3 million rows x 256: streamed fits against its Gram."""
    if device != "cpu":
        return
    import mgpa
    import scale
    from mgpa.tables import fit_table

    n, d, n_people, n_pairs = 300_000, 256, 15_000, 6_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        scale.write_people(path, n, d, n_people=n_people, n_pairs=n_pairs)
        block = np.random.default_rng(0).normal(size=(n // 30, d))
        gram = 30 * best(lambda: block.T @ block, 3)
        for name, model in (("MGPA()", mgpa.MGPA()), ("closed-form", mgpa.ClosedFormMGPA())):
            seconds = best(lambda model=model: fit_table(model, path).to_map(), 1)
            report(f"{name} fit of Parquet, {n} x {d}, {n_people} people", seconds, "Gram products (float64)",
                   gram, "3")  # fmt: skip


BENCHES = {
    "transform": bench_transform,
    "row": bench_row,
    "affine": bench_affine,
    "spread": bench_spread,
    "fit": bench_fit,
    "tokens": bench_tokens,
    "stream": bench_stream,
    "table": bench_table,
    "import": bench_import,
    "iterative": bench_iterative,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"some of: {' '.join(BENCHES)}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--history", metavar="FILE", help="append the ratios, and compare with the last ones")
    parser.add_argument("--json", metavar="FILE", help="write all lines and the machine's state")
    arguments = parser.parse_args()
    print(f"{history.machine(arguments.device)}, mgpa at {history.commit()}")
    watch = quiet.Watch()
    for name in arguments.names or BENCHES:
        BENCHES[name](arguments.device)
        state = watch.state()
        if arguments.json:  # what there is so far
            facts = {"machine": history.machine(arguments.device), "commit": history.commit()}
            quiet.save(arguments.json, **facts, date=str(date.today()), state=state, lines=LINES)
    print(f"Others used {state['others']:.0%} of the machine, load {state['load']}.")
    if arguments.history:
        ratios = {f"{line['name']} / {line['bare_name']}": line["ratio"] for line in LINES}
        history.record(arguments.history, ratios, arguments.device, state)
        print(history.verdict(history.read(arguments.history)))


if __name__ == "__main__":
    main()
