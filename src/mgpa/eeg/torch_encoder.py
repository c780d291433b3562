"""Use any torch module as a frozen encoder of trials, in batches, on any device.

While the device computes one batch, threads prepare the next batch and copy the tokens of the last one, so
that encoding takes little longer than the network alone.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._common.extras import torch_device
from .._common.progress import progress
from .trials import as_trials

Scaling = float | Literal["zscore"]

#: In volts, a millionth of a microvolt: flatter channels, such as the reference, become zero.
FLAT = 1e-12
#: Default number of rows per batch.
BATCH = {"cpu": 48, "cuda": 512}
#: Number of batches prepared ahead in threads; one thread cannot resample as fast as a large GPU encodes.
THREADS = 4


class TorchEncoder:
    """A frozen torch module that converts trials to tokens.

    Parameters
    ----------
    module : torch.nn.Module
        A module with float32 input (batch, channels, samples). It is set to evaluation mode and never
        trained.
    channels : sequence of str
        Channel names in the order of the module's input. They are selected from the trials by name; other
        channels are ignored.
    n_times : int
        Number of samples of its input.
    sfreq : float
        Sampling rate of its input.
    tokens : callable or None
        A function of the module and the tensor that returns tokens (batch, tokens, d) or one embedding
        (batch, d). None uses the output of the module.
    scaling : "zscore" or float
        "zscore" subtracts the mean from each channel of each trial and divides by its standard deviation. A
        number is a divisor in volts.
    resample : (int, int) or None
        Up- and downsampling factors of the trials (polyphase filter, ends extended linearly): (2, 1)
        resamples trials of 128 Hz to 256 Hz. None requires trials with the rate and length of the input.
    device : str
        "auto" is CUDA if available.
    batch_size : int or None
        Number of trials per batch; it affects tokens only by rounding. None is 48, or 512 on CUDA.
    precision : {"float32", "float16", "bfloat16"}
        Precision of matrix products; half precision is five times as fast on a large GPU.
    dtype : {"float32", "float16"}
        Type of the returned tokens; the paper stored float16.
    identity : dict or None
        Further identification of the module: its name, its checkpoint.
    """

    def __init__(
        self,
        module: Any,
        channels: Sequence[str],
        n_times: int,
        *,
        sfreq: float,
        tokens: Callable[[Any, Any], Any] | None = None,
        scaling: Scaling = "zscore",
        resample: tuple[int, int] | None = None,
        device: str = "auto",
        batch_size: int | None = None,
        precision: Literal["float32", "float16", "bfloat16"] = "float32",
        dtype: Literal["float32", "float16"] = "float32",
        identity: dict[str, Any] | None = None,
    ) -> None:
        self.device = torch_device(device, "An encoder")
        self.module = module.to(self.device).eval().requires_grad_(False)
        self.channels, self.n_times, self.sfreq = tuple(map(str, channels)), int(n_times), float(sfreq)
        if scaling != "zscore" and not (isinstance(scaling, (int, float)) and 0 < scaling < np.inf):
            raise ValueError(f"scaling is {scaling!r}; expected 'zscore' or a positive number of volts.")
        up, down = resample or (1, 1)
        if not (isinstance(up, int) and isinstance(down, int) and min(up, down) >= 1) or n_times * down % up:
            raise ValueError(
                f"resample is {resample!r}; expected None, or positive integers (up, down) such as (2, "
                f"1), with {n_times} * down divisible by up."
            )
        self.scaling, self.resample = scaling, None if resample is None else (up, down)
        self.batch_size = BATCH.get(self.device.type, BATCH["cpu"]) if batch_size is None else batch_size
        self.precision, self.dtype = precision, np.dtype(dtype)
        self._tokens, self._identity = tokens, dict(identity or {})
        check_choice("precision", precision, ("float32", "float16", "bfloat16"))
        check_choice("dtype", dtype, ("float32", "float16"))
        self._one_token = False  # whether the module returns one embedding instead of tokens
        self.shape = self._measure_shape()

    @property
    def identity(self) -> dict[str, Any]:
        """The settings of the tokens; device and batch size affect only rounding."""
        return {
            "name": type(self.module).__name__,
            **self._identity,
            "channels": list(self.channels),
            "n_times": self.n_times,
            "sfreq": self.sfreq,
            "resample": None if self.resample is None else list(self.resample),
            "scaling": self.scaling,
            "tokens": self.shape[0],
            "width": self.shape[1],
            "precision": self.precision,
            "dtype": self.dtype.name,
        }

    def embed(self, trials: Any, *, verbose: bool = False) -> NDArray[Any]:
        """Return tokens (n, tokens, d), or embeddings (n, d), of trials or epochs at the encoder's rate."""
        import torch

        trials = as_trials(trials)
        self._check(trials)
        index = trials.index(self.channels)
        columns: Any = slice(None) if index == list(range(len(trials.channels))) else index
        out = np.empty((len(trials), *self.shape), self.dtype)
        starts = range(0, len(trials), self.batch_size)
        finite = torch.ones((), dtype=torch.bool, device=self.device)
        sent: deque[tuple[int, Any, Any]] = deque()

        def prepare(start: int) -> Any:
            return self._prepare(trials.data[start : start + self.batch_size], columns)

        self.module.eval()
        steps = progress(range(len(starts)), "encoding", verbose and sys.stderr.isatty())
        with torch.inference_mode():
            for i, batch in zip(steps, _ahead(prepare, starts), strict=True):
                batch = batch.to(self.device, non_blocking=True)
                tokens = self._compute(batch).to(getattr(torch, self.dtype.name))
                finite &= torch.isfinite(tokens).all()
                sent.append((starts[i], *self._to_host(tokens)))
                while len(sent) > (i + 1 < len(starts)):
                    start, host, copied = sent.popleft()
                    if copied is not None:
                        copied.synchronize()
                    out[start : start + len(host)] = host.numpy()
        # Checked once at the end, because a check after each batch would make the device wait.
        if not bool(finite):
            rows = np.flatnonzero(~np.isfinite(out).all(axis=(1, 2)))
            raise ValueError(
                f"The tokens of {len(rows)} trials, the first of them {rows[0]}, are not finite as "
                f"{self.dtype.name}; use dtype='float32', and check the scaling."
            )
        return out[:, 0] if self._one_token else out

    def _check(self, trials: Any) -> None:
        up, down = self.resample or (1, 1)
        n_times, sfreq = self.n_times * down // up, self.sfreq * down / up
        n_samples = trials.data.shape[2]
        if n_samples == n_times and np.isclose(trials.sfreq, sfreq, rtol=1e-6, atol=0):
            return
        name = self._identity.get("name", "the encoder")
        raise ValueError(
            f"The trials have {n_samples} samples at {trials.sfreq:g} Hz; {name} was set up for {n_times} at "
            f"{sfreq:g} Hz. Set resample=(up, down), such as (2, 1) for twice the rate, or sfreq= and "
            "n_times= to those of the trials."
        )

    def _prepare(self, block: NDArray[Any], columns: Any) -> Any:
        """Return a batch in pinned memory."""
        import torch

        block = block[:, columns]
        if self.resample is not None:
            from scipy.signal import resample_poly

            block = resample_poly(block, *self.resample, axis=2, padtype="line")
        batch = torch.empty(block.shape, dtype=torch.float32, pin_memory=self.device.type == "cuda")
        np.copyto(batch.numpy(), block, casting="same_kind")
        return batch

    def _compute(self, batch: Any) -> Any:
        """Return the tokens of a batch, in float32."""
        with arithmetic(self.device.type, self.precision):
            batch = scaled(batch, self.scaling)
            tokens = self.module(batch) if self._tokens is None else self._tokens(self.module, batch)
        self._one_token = tokens.ndim == 2
        return (tokens[:, None] if tokens.ndim == 2 else tokens).float()

    def _to_host(self, tokens: Any) -> tuple[Any, Any]:
        """Start copying tokens to the host; return the target array and the event to wait for."""
        import torch

        if self.device.type != "cuda":
            return tokens.cpu(), None
        host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        host.copy_(tokens, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        return host, copied

    def _measure_shape(self) -> tuple[int, int]:
        import torch

        with torch.inference_mode():
            silence = torch.zeros((1, len(self.channels), self.n_times), device=self.device)
            tokens = self._compute(silence)
        if tokens.ndim != 3 or len(tokens) != 1:
            raise ValueError(
                f"The module returns shape {tuple(tokens.shape)} for one trial; expected (1, d) or "
                "(1, tokens, d). Pass tokens= to convert its output."
            )
        return int(tokens.shape[1]), int(tokens.shape[2])


def scaled(batch: Any, scaling: Scaling) -> Any:
    """Return signals (batch, channels, samples), in volts, scaled for the network."""
    if scaling == "zscore":
        # Subtract the first sample first, so that constant channels become exactly zero.
        batch = batch - batch[..., :1]
        batch = batch - batch.mean(-1, keepdim=True)
        return batch / batch.square().mean(-1, keepdim=True).sqrt().clamp_min(FLAT)
    return batch / scaling


def arithmetic(device: str, precision: str) -> Any:
    """Return the autocast context for a device and a precision."""
    import torch

    if precision != "float32":
        return torch.autocast(device, dtype=getattr(torch, precision))
    # By default, convolutions on CUDA use TF32 with a mantissa of ten bits.
    return torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False)


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Raise unless the value is allowed."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(allowed)}.")


def _ahead(function: Callable[[int], Any], steps: Iterable[int]) -> Iterator[Any]:
    """Yield ``function(step)`` in order, computed in threads ahead of the caller."""
    with ThreadPoolExecutor(THREADS) as pool:
        pending: deque[Future[Any]] = deque()
        for step in steps:
            pending.append(pool.submit(function, step))
            if len(pending) > THREADS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
