"""Frozen encoders of braindecode, EEGPT and LaBraM, with trained weights, as token encoders.

Each takes a ``layout``: "all" keeps every token the network makes, "mean" averages those of one stretch of
time (over summaries, or over channels), which leaves one token a stretch.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._braindecode import import_braindecode, quiet
from .checkpoints import EEGPT_WEIGHTS, HubFile, load_checkpoint
from .torch_encoder import TorchEncoder, check_choice

__all__ = ["EEGPT_WEIGHTS", "HubFile", "TorchEncoder", "eegpt", "labram"]


def eegpt(channels: Sequence[str], n_times: int, **options: Any) -> TorchEncoder:
    """Return EEGPT (Wang et al., 2024), the paper's encoder.

    Windows of 64 samples, 32 apart, do not see each other; each gives four summary tokens of 512 numbers.
    Zeros at the end fill up the last window. Tokens are in order of windows, and of summaries in a window.

    Parameters
    ----------
    channels : sequence of str
        Names among the 62 of the 10-10 system that EEGPT was trained with. Their order does not matter.
    n_times : int
        Samples that EEGPT sees: 500 make 15 windows, 256 make 7.
    **options
        ``checkpoint``: trained weights, a file or a :class:`HubFile` to download, as :data:`EEGPT_WEIGHTS`;
        there is no default. ``sha256``: the file's checksum; a file here must have the one of the paper's
        weights unless this says otherwise, and ``"any"`` accepts every file. ``weights="random"`` with a
        ``random_state`` makes an untrained network for tests and simulations, without a checkpoint, and
        warns. ``layout``: "mean" (the default) averages the four summaries of a window, (windows, 512);
        "all" gives (windows × 4, 512). ``scaling``: the paper's are "zscore" (the default) and, for reuse,
        20e-6 V. ``sfreq``: samples per second to feed it with; it was trained at 256 (the default), the
        paper fed it 250 as they were. ``architecture``: the braindecode model's own parameters, as
        ``{"depth": 2}``. ``resample``, ``device``, ``batch_size``, ``precision`` and ``dtype`` as for
        :class:`~mgpa.eeg.TorchEncoder`.

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

    order = {"mean": "window", "all": "window, summary"}
    settings: dict[str, Any] = {
        "layout": "mean",
        "scaling": "zscore",
        "sfreq": 256.0,
        "pinned": EEGPT_WEIGHTS.sha256,
    }
    settings["unused"] = ("predictor.", "reconstructor.", "final_layer.")
    # (batch, windows, 4, d): summaries are the third axis.
    return _encoder(
        "EEGPT", build, lambda model, batch: model(batch), 2, channels, n_times, order, **settings | options
    )


def labram(channels: Sequence[str], n_times: int, **options: Any) -> TorchEncoder:
    """Return LaBraM (Jiang et al., 2024): a token of 200 numbers for every channel and second at 200 Hz.

    The weights are in ``braindecode/labram-pretrained`` on the hub. A checkpoint trained on longer windows
    will do: the model uses as many of its times as there are patches.

    Parameters
    ----------
    channels : sequence of str
        Names among LaBraM's 128. The group normalisation of its first layers runs over all of them.
    n_times : int
        Samples, in whole patches of 200.
    **options
        As for :func:`eegpt`. ``layout``: "all" (the default) gives (channels × patches, 200), all patches of
        the first channel first; "mean" (patches, 200). ``scaling``: the authors divide microvolts by 100.
    """

    def build(models: Any, architecture: dict[str, Any]) -> Any:
        import torch

        table = importlib.import_module("braindecode.models.labram").LABRAM_CHANNEL_ORDER
        _check_names(channels, table, "LaBraM")
        patch = architecture.get("patch_size", 200)
        if n_times < patch or n_times % patch:
            raise ValueError(
                f"n_times is {n_times}; LaBraM takes whole patches of {patch} samples; cut them so."
            )
        model = models.Labram(
            n_chans=len(channels), n_times=n_times, n_outputs=1, sfreq=200.0, **architecture
        )
        model.final_layer = torch.nn.Identity()
        return model

    def tokens(model: Any, batch: Any) -> Any:
        features = model(batch, return_features=True, ch_names=[str(name) for name in channels])["features"]
        return features.unflatten(1, (len(channels), -1))

    order = {"mean": "patch", "all": "channel, patch"}
    settings: dict[str, Any] = {
        "layout": "all",
        "scaling": 100e-6,
        "sfreq": 200.0,
        "leading": ("temporal_embedding",),
    }
    return _encoder("LaBraM", build, tokens, 1, channels, n_times, order, **settings | options)


def _encoder(
    name: str,
    build: Callable[[Any, dict[str, Any]], Any],
    tokens: Callable[[Any, Any], Any],
    axis: int,
    channels: Sequence[str],
    n_times: int,
    order: Mapping[str, str],
    *,
    layout: str,
    checkpoint: Any = None,
    pinned: str | None = None,
    unused: Sequence[str] = ("final_layer.",),
    leading: Sequence[str] = (),
    sha256: str | None = None,
    weights: str = "checkpoint",
    random_state: int = 0,
    architecture: Mapping[str, Any] | None = None,
    **settings: Any,
) -> TorchEncoder:
    """Build a braindecode model, load its weights, and wrap it.

    ``tokens`` gives (batch, a, b, d), of which "mean" averages ``axis`` and "all" joins both.
    """
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
        expected = None if expected == "any" else expected
        record = load_checkpoint(model, checkpoint, sha256=expected, allow_extra=unused, leading=leading)
    identity = {
        "name": name,
        "architecture": {key: repr(v) if callable(v) else v for key, v in (architecture or {}).items()},
        "braindecode": str(braindecode.__version__),
        "checkpoint": record,
        "layout": layout,
        "token_order": order[layout],
    }

    def laid_out(model: Any, batch: Any) -> Any:
        parts = tokens(model, batch)
        return parts.mean(axis) if layout == "mean" else parts.flatten(1, 2)

    return TorchEncoder(model, channels, n_times, tokens=laid_out, identity=identity, **settings)


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
