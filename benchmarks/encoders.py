"""Throughput of encoding against the network's forward pass alone on the same batches.

    python benchmarks/encoders.py                        # EEGPT, untrained, on the CPU
    python benchmarks/encoders.py --device cuda
    python benchmarks/encoders.py --resample             # from trials at half the rate
    python benchmarks/encoders.py --stand-in             # a transformer of EEGPT's size, from torch alone

Encoding starts from trials in memory, in volts, and ends with tokens in memory: taking channels by name,
copying to the device, scaling, the network, averaging, copying back. The bare forward pass has its batches,
scaled, on the device and leaves its output there. 8 channels of 500 samples give 15 windows of 12 tokens.
"""

import argparse
import time
import warnings

import numpy as np

CHANNELS = ["POz", "PO3", "PO4", "PO5", "PO6", "Oz", "O1", "O2"]
SAMPLES, WINDOWS, SUMMARIES, WIDTH, DEPTH, AIM = 500, 15, 4, 512, 8, 0.85


def stand_in():
    """Return a plain transformer with EEGPT's windows, tokens, width and depth."""
    import torch
    from torch import nn

    class StandIn(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(1, WIDTH, (1, 64), (1, 32))
            self.summary = nn.Parameter(torch.randn(1, SUMMARIES, WIDTH))
            layers = [
                nn.TransformerEncoderLayer(
                    WIDTH, 8, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
                )
                for _ in range(DEPTH)
            ]
            self.layers, self.norm = nn.Sequential(*layers), nn.LayerNorm(WIDTH)

        def forward(self, x):
            x = self.patch(nn.functional.pad(x, (0, 12))[:, None])  # (batch, width, channels, windows)
            x = x.permute(0, 3, 2, 1).flatten(0, 1)
            x = torch.cat([x, self.summary.expand(len(x), -1, -1)], 1)
            return self.norm(self.layers(x)[:, -SUMMARIES:]).unflatten(0, (-1, WINDOWS))

    torch.manual_seed(0)
    return StandIn()


def make(arguments, layout, precision):
    from mgpa.eeg.torch_encoder import TorchEncoder

    settings = {
        "sfreq": 250.0,
        "device": arguments.device,
        "batch_size": arguments.batch,
        "precision": precision,
        "resample": (2, 1) if arguments.resample else None,
    }
    if arguments.stand_in:

        def tokens(module, batch):
            summaries = module(batch)
            return summaries.mean(2) if layout == "mean" else summaries.flatten(1, 2)

        return TorchEncoder(stand_in(), CHANNELS, SAMPLES, tokens=tokens, **settings)
    from mgpa.paper.encoder import eegpt

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*random weights")
        return eegpt(CHANNELS, SAMPLES, layout=layout, weights="random", **settings)


def bare(encoder, trials):
    """Return a function that runs the network alone on the trials' batches."""
    import torch

    from mgpa.eeg.torch_encoder import arithmetic, scaled

    data = trials.data.repeat(SAMPLES // trials.data.shape[2], axis=2)  # as long as resampled ones
    whole = torch.as_tensor(data, dtype=torch.float32, device=encoder.device)
    batches = scaled(whole, encoder.scaling).split(encoder.batch_size)

    def run():
        with torch.inference_mode(), arithmetic(encoder.device.type, encoder.precision):
            for batch in batches:
                encoder.module(batch)
        if encoder.device.type == "cuda":
            torch.cuda.synchronize()

    return run


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--stand-in", action="store_true")
    parser.add_argument("--resample", action="store_true")
    arguments = parser.parse_args()
    from mgpa.eeg.trials import Trials

    cuda = arguments.device.startswith("cuda")
    n = arguments.trials or (16_384 if cuda else 96)
    step = 2 if arguments.resample else 1
    shape = (n, len(CHANNELS), SAMPLES // step)
    data = 1e-5 * np.random.default_rng(0).normal(size=shape).astype(np.float32)
    trials = Trials(data, CHANNELS, 250.0 / step)
    for precision in ("float32", "bfloat16") if cuda else ("float32",):
        for layout in ("mean", "all"):
            encoder = make(arguments, layout, precision)
            encoder.embed(trials)  # warms up
            forward = bare(encoder, trials)
            forward()
            # In turns, so that a slower minute of the machine slows both.
            times = [
                (timed(lambda e=encoder: e.embed(trials)), timed(forward)) for _ in range(arguments.repeats)
            ]
            whole, alone = (min(column) for column in zip(*times, strict=True))
            print(
                f"{n} trials, {precision:<10} layout {layout:<5} {n / whole:>9.1f} a second, network alone "
                f"{n / alone:>9.1f}   ratio {alone / whole:.2f}   (aim {AIM})",
                flush=True,
            )


if __name__ == "__main__":
    main()
