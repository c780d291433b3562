"""Time of the source readers against the training they consist of.

    python benchmarks/readers.py                     # 10 000 HEAD rows of 512 features, 5 000 EVAL rows
    python benchmarks/readers.py --device cuda
    python benchmarks/readers.py --epochs 20         # shorter; the ratios are about the same

The bare work is the same number of the same training steps on tensors of the same sizes, on one fixed batch:
no shuffling, no gathering of rows, no checkpoints, no scoring. And the two logistic fits alone. Last, the
networks of several corrections as one batched program against one correction after another.
"""

import argparse
import time

import numpy as np

from run import HIDDEN, D, N, report, simulated  # the other benchmark's data and table

N_EVAL, RESTARTS, BATCH, CORRECTIONS = 5_000, 3, 256, 5


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def bare_step(device, rows):
    """Return one AdamW step of three networks on a fixed batch."""
    import torch
    import torch.nn.functional as F

    from mgpa.networks import CUDA_PARTS, AdamW

    shapes = [(RESTARTS, HIDDEN, D), (RESTARTS, 1, HIDDEN), (RESTARTS, 2, HIDDEN), (RESTARTS, 1, 2)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    flat = 0.04 * torch.randn(sum(sizes), device=device)
    gradient = torch.zeros_like(flat)
    W1, b1, W2, b2 = (p.view(s) for p, s in zip(flat.split(sizes), shapes, strict=True))
    gW1, gb1, gW2, gb2 = (p.view(s) for p, s in zip(gradient.split(sizes), shapes, strict=True))
    x = torch.randn(RESTARTS, rows, D, device=device)
    onehot = F.one_hot(torch.randint(0, 2, (RESTARTS, rows), device=device), 2).float()
    on_cuda = x.device.type == "cuda"
    optimizer = AdamW([flat], [gradient], CUDA_PARTS if on_cuda else 1, 1e-3, 1e-3)

    def step():
        u = torch.baddbmm(b1, x, W1.mT)
        g = F.gelu(u)
        error = torch.softmax(torch.baddbmm(b2, g, W2.mT), dim=2).sub_(onehot).div_(rows)
        torch.bmm(error.mT, g, out=gW2)
        torch.sum(error, 1, keepdim=True, out=gb2)
        back = torch.ops.aten.gelu_backward(torch.bmm(error, W2), u)
        torch.bmm(back.mT, x, out=gW1)
        torch.sum(back, 1, keepdim=True, out=gb1)
        optimizer.step()

    if x.device.type != "cuda":
        return step
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        step()

    def replay(keep=step):  # the graph reads and writes the step's tensors, so they must stay
        graph.replay()

    return replay


def bare_training(device, epochs):
    import torch

    full = bare_step(device, BATCH)
    last = bare_step(device, N % BATCH) if N % BATCH else None

    def train():
        with torch.no_grad():
            for _ in range(epochs):
                for _ in range(N // BATCH):
                    full()
                if last is not None:
                    last()
        if device != "cpu":
            torch.cuda.synchronize()

    return train


def plain_torch(device, X, source, epochs):
    """Return the training of one restart as a tutorial would write it."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def train():
        data = TensorDataset(torch.as_tensor(X), torch.as_tensor(source))
        net = torch.nn.Sequential(torch.nn.Linear(D, HIDDEN), torch.nn.GELU(), torch.nn.Linear(HIDDEN, 2)).to(
            device
        )
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-3)
        for _ in range(epochs):
            for x, target in DataLoader(data, BATCH, shuffle=True):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(x.to(device)), target.to(device)).backward()
                optimizer.step()

    return train


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    device, epochs = arguments.device, arguments.epochs

    from mgpa.audit.readers import run_readers, run_readers_on_each

    X, source, _ = simulated(N + N_EVAL)
    head, held = (X[:N], source[:N]), X[N:]
    checkpoints = sorted({max(1, epochs * c // 200) for c in (12, 50, 200)})
    bare = bare_training(device, epochs)
    bank, linear, steps = [], [], []
    run_readers(*head, held, device=device, checkpoints=[1])
    # In turns, so that whatever else the machine does falls on all of them alike.
    for _ in range(arguments.repeats):
        bank.append(timed(lambda: run_readers(*head, held, device=device, checkpoints=checkpoints)))
        linear.append(timed(lambda: run_readers(*head, held, restarts=0)))
        steps.append(timed(bare))
    whole, logistic, training = min(bank), min(linear), min(steps)
    name = f"reader bank on {device}, {N} x {D}, {epochs} epochs"
    report(name, whole, "bare steps + logistic readers", training + logistic, "1.5")
    report("  its networks", whole - logistic, "bare training steps", training, "1.5")
    short = min(epochs, 10)
    tutorial = RESTARTS * timed(plain_torch(device, *head, short)) * epochs / short
    report("  its networks", whole - logistic, "one by one, plain torch", tutorial, "-")
    sets = [head[0] * (1 + 0.1 * i) for i in range(CORRECTIONS)]
    how = {"device": device, "checkpoints": checkpoints}
    together = timed(lambda: run_readers_on_each(sets, head[1], [held] * CORRECTIONS, **how))
    report(f"{CORRECTIONS} corrections together", together, "one after another", CORRECTIONS * whole, "1")


if __name__ == "__main__":
    main()
