"""Frozen encoders of braindecode: EEGPT, LaBraM, BIOT and CBraMod, with trained weights, as token encoders.

Each takes a ``layout``: "all" keeps every token the network makes, "mean" averages those of one stretch of
time (over summaries, or over channels), which leaves one token a stretch.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from ._braindecode import import_braindecode, quiet
from .checkpoints import EEGPT_WEIGHTS, HubFile, load_checkpoint
from .torch_encoder import Precision, Scaling, TorchEncoder, check_choice

__all__ = ["EEGPT_WEIGHTS", "HubFile", "TorchEncoder", "biot", "cbramod", "eegpt", "labram"]

Layout = Literal["all", "mean"]
Checkpoint = str | os.PathLike[str] | HubFile
# The order of tokens that are patches of a channel, by layout.
PATCHES = {"mean": "patch", "all": "channel, patch"}


class Options(TypedDict, total=False):
    """What every encoder takes besides its own parameters.

    ``sha256``, ``weights`` ("checkpoint" or "random"), ``random_state`` and ``architecture`` are described at
    :func:`eegpt`, the others at :class:`~mgpa.eeg.torch_encoder.TorchEncoder`.
    """

    sha256: str | None
    weights: Literal["checkpoint", "random"]
    random_state: int
    architecture: Mapping[str, Any] | None
    resample: tuple[int, int] | None
    device: str
    batch_size: int | None
    precision: Precision
    dtype: Literal["float32", "float16"]


def eegpt(
    channels: Sequence[str],
    n_times: int,
    *,
    checkpoint: Checkpoint | None = None,
    layout: Layout = "mean",
    scaling: Scaling = "zscore",
    sfreq: float = 256.0,
    **options: Unpack[Options],
) -> TorchEncoder:
    """Return EEGPT (Wang et al., 2024), the paper's encoder.

    Windows of 64 samples, 32 apart, do not see each other; each gives four summary tokens of 512 numbers.
    Zeros at the end fill up the last window. Tokens are in order of windows, and of summaries in a window.

    Parameters
    ----------
    channels : sequence of str
        Names among the 62 of the 10-10 system that EEGPT was trained with. Their order does not matter.
    n_times : int
        Samples that EEGPT sees: 500 make 15 windows, 256 make 7.
    checkpoint : path, HubFile or None
        Trained weights: a file, or :data:`EEGPT_WEIGHTS` to download the paper's. There is no default.
    layout : {"mean", "all"}
        "mean": the four summaries of a window averaged, (windows, 512). "all": (windows × 4, 512).
    scaling : {"zscore", "percentile"} or float
        Of the input; the paper's are "zscore" and, for reuse, 20e-6 V.
    sfreq : float
        Samples per second to feed it with. It was trained at 256; the paper fed it 250 as they were.
    **options
        ``sha256``: the file's checksum; a file here must have the one of the paper's weights unless this says
        otherwise, and ``"any"`` accepts every file. ``weights="random"`` with a ``random_state`` makes an
        untrained network for tests and simulations, without a checkpoint, and warns. ``architecture``:
        the braindecode model's own parameters, as ``{"depth": 2}``. ``resample``, ``device``,
        ``batch_size``, ``precision`` and ``dtype`` as for :class:`~mgpa.eeg.torch_encoder.TorchEncoder`.

    Examples
    --------
    >>> from mgpa.eeg.encoders import EEGPT_WEIGHTS, eegpt
    >>> encoder = eegpt(["O1", "Oz", "O2"], 500, sfreq=250.0, checkpoint=EEGPT_WEIGHTS)  # doctest: +SKIP
    >>> eegpt(["O1", "Oz", "O2"], 500)
    Traceback (most recent call last):
    ...
    ValueError: EEGPT needs trained weights: pass checkpoint=, a file or a HubFile to download. ...
    """

    def build(models: Any, architecture: dict[str, Any]) -> Any:
        table = importlib.import_module("braindecode.models.eegpt").EEGPT_CHANNELS
        _check_names(channels, table, "EEGPT")
        settings = {"chan_proj_type": "none", "return_encoder_output": True, **architecture}
        return models.EEGPT(chs_info=_positions(channels), n_times=n_times, sfreq=256.0, **settings)

    def tokens(model: Any, batch: Any) -> Any:
        summaries = model(batch)  # (batch, windows, 4, d)
        return summaries.mean(2) if layout == "mean" else summaries.flatten(1, 2)

    order = {"mean": "window", "all": "window, summary"}
    unused = ("predictor.", "reconstructor.", "final_layer.")
    how: dict[str, Any] = {"scaling": scaling, "sfreq": sfreq, **options}
    how |= {"pinned": EEGPT_WEIGHTS.sha256, "unused": unused}
    return _encoder("EEGPT", build, tokens, channels, n_times, layout, order, checkpoint, **how)


def labram(
    channels: Sequence[str],
    n_times: int,
    *,
    checkpoint: Checkpoint | None = None,
    layout: Layout = "all",
    scaling: Scaling = 100e-6,
    sfreq: float = 200.0,
    **options: Unpack[Options],
) -> TorchEncoder:
    """Return LaBraM (Jiang et al., 2024): a token of 200 numbers for every channel and second at 200 Hz.

    The weights are in ``braindecode/labram-pretrained`` on the hub. A checkpoint trained on longer
    windows will do: the model uses as many of its times as there are patches.

    Parameters
    ----------
    channels : sequence of str
        Names among LaBraM's 128. The group normalisation of its first layers runs over all of them.
    n_times : int
        Samples, in whole patches of 200.
    checkpoint, sfreq, **options
        As for :func:`eegpt`.
    layout : {"all", "mean"}
        "all": (channels × patches, 200), all patches of the first channel first. "mean": (patches, 200).
    scaling : {"zscore", "percentile"} or float
        The authors divide microvolts by 100.
    """

    def build(models: Any, architecture: dict[str, Any]) -> Any:
        import torch

        table = importlib.import_module("braindecode.models.labram").LABRAM_CHANNEL_ORDER
        _check_names(channels, table, "LaBraM")
        _check_patches(n_times, architecture.get("patch_size", 200), "LaBraM")
        model = models.Labram(
            n_chans=len(channels), n_times=n_times, n_outputs=1, sfreq=200.0, **architecture
        )
        model.final_layer = torch.nn.Identity()
        return model

    def tokens(model: Any, batch: Any) -> Any:
        names = [str(name) for name in channels]
        features = model(batch, return_features=True, ch_names=names)["features"]
        return _over_channels(features, len(names), layout)

    how: dict[str, Any] = {"scaling": scaling, "sfreq": sfreq, "leading": ("temporal_embedding",), **options}
    return _encoder("LaBraM", build, tokens, channels, n_times, layout, PATCHES, checkpoint, **how)


def biot(
    channels: Sequence[str],
    n_times: int,
    *,
    checkpoint: Checkpoint | None = None,
    layout: Layout = "all",
    scaling: Scaling = "percentile",
    sfreq: float = 200.0,
    **options: Unpack[Options],
) -> TorchEncoder:
    """Return BIOT (Yang et al., 2023): a token of 256 numbers for every channel and second, half overlapping.

    The weights are in ``braindecode/biot-pretrained-six-datasets-18chs`` and others on the hub; for those of
    16 channels pass ``architecture={"n_chans": 16}``.

    Parameters
    ----------
    channels : sequence of str
        Names among BIOT's 18 bipolar derivations, as "FP1-F7": some or all, in any order.
    n_times : int
        Samples: 200, and as many times 100 as you like.
    checkpoint, sfreq, **options
        As for :func:`eegpt`.
    layout : {"all", "mean"}
        "all": (channels × spectra, 256), all spectra of the first channel first. "mean": (spectra, 256).
    scaling : {"zscore", "percentile"} or float
        The authors divide by the 95th percentile of each channel's magnitude.
    """

    def build(models: Any, architecture: dict[str, Any]) -> Any:
        import torch

        table = importlib.import_module("braindecode.models.biot").BIOT_CHANNEL_ORDER
        n_known = architecture.pop("n_chans", len(table))
        places = _check_names(channels, table[:n_known], "BIOT")
        hop = architecture.get("hop_length", 100)
        if n_times < 200 or (n_times - 200) % hop:
            raise ValueError(
                f"n_times is {n_times}; BIOT takes 200 samples and any number of times {hop} more, and would "
                "leave the rest out."
            )
        model = models.BIOT(n_chans=n_known, n_times=n_times, n_outputs=1, sfreq=200, **architecture)
        # Which learned channel token goes with which channel of the input.
        model.encoder.index = torch.tensor(places)
        model.final_layer = torch.nn.Identity()
        return model

    def tokens(model: Any, batch: Any) -> Any:
        # BIOT returns the mean of its tokens only; they are what its transformer returns.
        outputs: list[Any] = []
        hook = model.encoder.transformer.register_forward_hook(lambda *call: outputs.append(call[-1]))
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "A window was not provided")
                model.encoder(batch)
        finally:
            hook.remove()
        return _over_channels(outputs[0], len(channels), layout)

    order = {"mean": "spectrum", "all": "channel, spectrum"}
    how: dict[str, Any] = {"scaling": scaling, "sfreq": sfreq, **options}
    return _encoder("BIOT", build, tokens, channels, n_times, layout, order, checkpoint, **how)


def cbramod(
    channels: Sequence[str],
    n_times: int,
    *,
    checkpoint: Checkpoint | None = None,
    layout: Layout = "all",
    scaling: Scaling = 100e-6,
    sfreq: float = 200.0,
    **options: Unpack[Options],
) -> TorchEncoder:
    """Return CBraMod (Wang et al., 2025): a token of 200 numbers for every channel and second at 200 Hz.

    The weights are in ``braindecode/cbramod-pretrained`` on the hub. Tokens are those after the network's
    output projection, as in braindecode.

    Parameters
    ----------
    channels : sequence of str
        Any names: CBraMod knows channels by their neighbours in the order given, so order matters.
    n_times : int
        Samples, in whole patches of 200.
    checkpoint, sfreq, **options
        As for :func:`eegpt`.
    layout : {"all", "mean"}
        "all": (channels × patches, 200), all patches of the first channel first. "mean": (patches, 200).
    scaling : {"zscore", "percentile"} or float
        The authors divide microvolts by 100.
    """

    def build(models: Any, architecture: dict[str, Any]) -> Any:
        _check_patches(n_times, architecture.get("patch_size", 200), "CBraMod")
        settings = {"return_encoder_output": True, **architecture}
        return models.CBraMod(n_chans=len(channels), n_times=n_times, sfreq=200.0, **settings)

    def tokens(model: Any, batch: Any) -> Any:
        patches = model(batch)  # (batch, channels, patches, d)
        return patches.mean(1) if layout == "mean" else patches.flatten(1, 2)

    how: dict[str, Any] = {"scaling": scaling, "sfreq": sfreq, **options}
    return _encoder("CBraMod", build, tokens, channels, n_times, layout, PATCHES, checkpoint, **how)


def _encoder(
    name: str,
    build: Callable[[Any, dict[str, Any]], Any],
    tokens: Callable[[Any, Any], Any],
    channels: Sequence[str],
    n_times: int,
    layout: Layout,
    order: Mapping[str, str],
    checkpoint: Checkpoint | None,
    *,
    pinned: str | None = None,
    unused: Sequence[str] = ("final_layer.",),
    leading: Sequence[str] = (),
    sha256: str | None = None,
    weights: Literal["checkpoint", "random"] = "checkpoint",
    random_state: int = 0,
    architecture: Mapping[str, Any] | None = None,
    **settings: Any,
) -> TorchEncoder:
    """Build a braindecode model, load its weights, and wrap it; ``order`` has that of tokens, by layout."""
    check_choice("layout", layout, tuple(order))
    check_choice("weights", weights, ("checkpoint", "random"))
    if (weights == "random") != (checkpoint is None):
        raise ValueError(
            f"{name} needs trained weights: pass checkpoint=, a file or a HubFile to download. For tests and "
            f"simulations, weights='random' makes an untrained network. Got {checkpoint=} and {weights=}."
        )
    braindecode = import_braindecode()
    import torch

    # Building draws random weights; nobody else's random numbers should change by it.
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(random_state)
        model = build(braindecode.models, dict(architecture or {}))
    record: Any
    if checkpoint is None:
        record = f"random weights, seed {random_state}"
        warnings.warn(
            f"{name} has {record}: what it makes of signals means nothing. For tests and simulations only.",
            stacklevel=3,
        )
    else:
        # What a HubFile should be, it says itself.
        expected = pinned if sha256 is None and not isinstance(checkpoint, HubFile) else sha256
        record = load_checkpoint(
            model,
            checkpoint,
            sha256=None if expected == "any" else expected,
            allow_extra=unused,
            leading=leading,
        )
    identity = {
        "name": name,
        "architecture": {
            key: repr(value) if callable(value) else value for key, value in (architecture or {}).items()
        },
        "braindecode": str(braindecode.__version__),
        "checkpoint": record,
        "layout": layout,
        "token_order": order[layout],
    }
    return TorchEncoder(model, channels, n_times, tokens=tokens, identity=identity, **settings)


def _positions(channels: Sequence[str]) -> list[Any]:
    """Return channels as braindecode wants them, with standard 10-05 positions."""
    import mne

    from .trials import standard_montage

    info = mne.create_info([str(name) for name in channels], 256.0, "eeg", verbose="error")
    info.set_montage(standard_montage(), match_case=False, on_missing="ignore", verbose="error")
    return list(info["chs"])


def _check_names(channels: Sequence[str], table: Sequence[str], model: str) -> list[int]:
    """Return the places of channels in a model's table, or raise and say which have none."""
    places = {name.upper(): i for i, name in enumerate(table)}
    unknown = [str(name) for name in channels if str(name).upper() not in places]
    if unknown:
        raise ValueError(
            f"{model} was not trained with {', '.join(unknown)}; leave them out, or rename them where they "
            f"are another name for one of its {len(places)}: {', '.join(table)}."
        )
    chosen = [places[str(name).upper()] for name in channels]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"channels name one channel twice: {', '.join(map(str, channels))}.")
    return chosen


def _check_patches(n_times: int, patch: int, model: str) -> None:
    if n_times < patch or n_times % patch:
        raise ValueError(
            f"n_times is {n_times}; {model} takes whole patches of {patch} samples; cut or resample them."
        )


def _over_channels(tokens: Any, n_channels: int, layout: Layout) -> Any:
    """Return tokens in channel-major order as they are, or their mean over channels."""
    return tokens.unflatten(1, (n_channels, -1)).mean(1) if layout == "mean" else tokens
