"""Speed as ratios within one run against the physical work each operation must do.

    python benchmarks/run.py                     # everything on the CPU
    python benchmarks/run.py --device cuda       # the torch paths on a GPU
    python benchmarks/run.py transform row       # some of: transform row affine spread fit tokens stream
    python benchmarks/run.py --history benchmarks/history.jsonl   # and keep the ratios, see history.py

Every line gives the time, the time of the bare work in the same process, their ratio, the aim and whether it
is met. An operation and its bare work take turns, and the shortest run of each counts.
"""

import argparse
import resource
import tempfile
import time

import numpy as np

import history

N, D, R, STAGES, HIDDEN = 10_000, 512, 64, 48, 128
# Rows of an array that no last-level cache holds (200 MB).
MANY = 100_000
RATIOS = {}


def best(function, repeats=5, prepare=None):
    """Return the shortest of several runs, in seconds."""
    return shortest([function], repeats, prepare)[0]


def shortest(functions, repeats=5, prepare=None):
    """Return the shortest run of each function, in seconds; they take turns, of which the first is no run."""
    times = []
    for _ in range(repeats + 1):
        turn = []
        for function in functions:
            if prepare is not None:
                prepare()
            start = time.perf_counter()
            function()
            turn.append(time.perf_counter() - start)
        times.append(turn)
    return [min(column) for column in zip(*times[1:], strict=True)]


def report(name, seconds, bare_name, bare, aim="-"):
    """Print and keep one line. The aim is a ratio ("1.7"), a time ("0.4 ms", "2 s") or none ("-")."""
    ratio = seconds / bare
    RATIOS[f"{name} / {bare_name}"] = round(ratio, 3)
    number, _, unit = aim.partition(" ")
    measured = seconds / {"ms": 1e-3, "s": 1.0}[unit] if unit else ratio
    met = "" if aim == "-" else ", met" if measured <= float(number) else ", NOT MET"
    print(
        f"{name:<48}{seconds * 1e3:>10.2f} ms  {bare_name:<30}{bare * 1e3:>9.2f} ms  "
        f"ratio {ratio:>6.2f}  (aim {aim}{met})",
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


def staged_map(seed=0):
    """Return a map of the benchmark's size with random weights of realistic scale."""
    import mgpa

    rng = np.random.default_rng(seed)

    def weights(*shape):
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    return mgpa.maps.StagedMap(
        center=np.zeros(D),
        scale=np.ones(D),
        basis=np.linalg.qr(rng.normal(size=(D, R)))[0],
        linear_weight=weights(STAGES, 1, D),
        linear_bias=weights(STAGES, 1),
        hidden_weight=weights(STAGES, HIDDEN, D),
        hidden_bias=weights(STAGES, HIDDEN),
        output_weight=weights(STAGES, 1, HIDDEN),
        output_bias=weights(STAGES, 1),
        anchor_weight=0.1 * weights(STAGES, 2, D),
        anchor_bias=weights(STAGES, 2),
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
        report(f"staged transform on {device}, {n} rows", times[0], product, times[1], "2.5")


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
    report(f"one row, {STAGES} stages, one core", times[0], product, times[1], "0.4 ms")


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
            report(name, times[0], "its products", times[1], "1.5")
            if device == "cpu":
                times = shortest([lambda m=m, X=X: m.transform(X[:1]), lambda: products(1)], 400)
                report(f"one row, spread, rank {rank}, {dtype}", times[0], "its products", times[1], "0.2 ms")
    if device == "cpu":
        mixing = rng.normal(size=(D, D)) * np.geomspace(2, 0.2, D)[:, None]  # strong and weak directions
        gain, shift = np.where(np.arange(D) < R, 2, 1), weights(D)
        source, A = rng.integers(0, 2, N)[:, None], rng.normal(size=(500, D)) @ mixing
        X = rng.normal(size=(N, D)) @ mixing * np.where(source, gain, 1) + source * shift
        pairs, models = (A, A * gain + shift), (mgpa.MGPA(), mgpa.ClosedFormMGPA())
        fits = [lambda m=m: m.fit(X, source=source[:, 0], pairs=pairs) for m in models]
        times = shortest(fits, 3)
        report("MGPA() fit that corrects spread, 500 pairs", times[0], "closed-form fit", times[1], "2")
        assert isinstance(models[0].map_, mgpa.maps.PosteriorMap)


def bench_fit(device):
    import torch

    import mgpa
    from mgpa.critics import fit_linear, fit_network

    X, source, pairs = simulated()
    H = torch.as_tensor((X - X.mean(0)) / X.std(0), device=device)
    stages = STAGES

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
        "1.3" if device == "cpu" else "4 s",
    )
    tutorial = stages * best(plain_torch, 2)
    report(f"iterative fit on {device}, {stages} stages", fitting, "same GELU steps, plain torch", tutorial)
    closed = mgpa.ClosedFormMGPA.paper(gate=mgpa.MeasurementGate(rank=R))
    for n in (N,) if device == "cpu" else (N, 100 * N):
        rows = torch.as_tensor(X, device=device).repeat(n // N, 1)
        rows = rows.numpy() if device == "cpu" else rows
        labels = np.tile(source, n // N)
        wide = rows.astype(np.float64) if device == "cpu" else rows.double()

        def gram(wide=wide):
            product = wide.T @ wide
            return product if device == "cpu" else product.cpu()

        report(
            f"closed-form fit, {n} x {D}",
            best(lambda rows=rows, labels=labels: closed.fit(rows, source=labels, pairs=pairs), 3),
            "Gram product (float64)" if device == "cpu" else "Gram product there (float64)",
            best(gram, 3),
        )


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
        "2 s",
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
    wide = X.astype(np.float64)

    def gram():
        total = np.zeros((D, D))
        for _ in range(n // chunk):
            total += wide.T @ wide

    start = time.perf_counter()
    for i in range(n // chunk):
        model.partial_fit(X, source=source, pairs=pairs if i == 0 else None)
    model.to_map()
    seconds = time.perf_counter() - start
    report(f"closed-form fit streamed, {n} x {D}", seconds, "Gram products (float64)", best(gram, 1), "1.3")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  peak memory of the process {peak:.0f} MiB; the rows would need {n * D * 4 / 2**20:.0f} MiB")


BENCHES = {
    "transform": bench_transform,
    "row": bench_row,
    "affine": bench_affine,
    "spread": bench_spread,
    "fit": bench_fit,
    "tokens": bench_tokens,
    "stream": bench_stream,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"some of: {' '.join(BENCHES)}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--history", metavar="FILE", help="append the ratios, and compare with the last ones")
    arguments = parser.parse_args()
    print(f"{history.machine(arguments.device)}, mgpa at {history.commit()}")
    for name in arguments.names or BENCHES:
        BENCHES[name](arguments.device)
    if arguments.history:
        history.record(arguments.history, RATIOS, arguments.device)
        print(history.verdict(history.read(arguments.history)))


if __name__ == "__main__":
    main()
