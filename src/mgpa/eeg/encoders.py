"""EEGPT, the paper's frozen encoder, by braindecode and with trained weights.

Other networks are wrapped by :class:`~mgpa.eeg.TorchEncoder`.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ._braindecode import import_braindecode, quiet
from .checkpoints import EEGPT_WEIGHTS, HubFile, load_checkpoint
from .torch_encoder import Scaling, TorchEncoder, check_choice

__all__ = ["EEGPT_WEIGHTS", "HubFile", "TorchEncoder", "eegpt"]

ORDER = {"mean": "window", "all": "window, summary"}
# What the file has and the encoder has no use for.
UNUSED = ("predictor.", "reconstructor.", "final_layer.")


def eegpt(
    channels: Sequence[str],
    n_times: int,
    *,
    checkpoint: str | os.PathLike[str] | HubFile | None = None,
    sha256: str | None = None,
    weights: Literal["checkpoint", "random"] = "checkpoint",
    random_state: int = 0,
    layout: Literal["mean", "all"] = "mean",
    scaling: Scaling = "zscore",
    sfreq: float = 256.0,
    architecture: Mapping[str, Any] | None = None,
    **settings: Any,
) -> TorchEncoder:
    """Return EEGPT (Wang et al., 2024).

    Windows of 64 samples, 32 apart, do not see each other; each gives four summary tokens of 512 numbers.
    Zeros at the end fill up the last window. Tokens are in order of windows, and of summaries in a window.

    Parameters
    ----------
    channels : sequence of str
        Names among the 62 of the 10-10 system that EEGPT was trained with. Their order does not matter.
    n_times : int
        Samples that EEGPT sees: 500 make 15 windows, 256 make 7.
    checkpoint : path, HubFile or None
        Trained weights: a file, or :data:`EEGPT_WEIGHTS` to download the paper's; required.
    sha256 : str or None
        The file's checksum; a file must have the one of the paper's weights unless this says otherwise, and
        "any" accepts every file.
    weights : {"checkpoint", "random"}
        "random" makes an untrained network for tests and simulations, without a checkpoint, and warns.
    random_state : int
        Seed of random weights.
    layout : {"mean", "all"}
        "mean": the four summaries of a window averaged, (windows, 512). "all": (windows × 4, 512).
    scaling : "zscore" or float
        Of the input; the paper's are "zscore" and, for reuse, 20e-6 V.
    sfreq : float
        Samples per second to feed it with. It was trained at 256; the paper fed it 250 as they were.
    architecture : dict or None
        The braindecode model's own parameters, as ``{"depth": 2}``.
    **settings
        ``resample``, ``device``, ``batch_size`` and ``dtype`` as for :class:`~mgpa.eeg.TorchEncoder`.

    Examples
    --------
    >>> from mgpa.eeg.encoders import EEGPT_WEIGHTS, eegpt
    >>> encoder = eegpt(["O1", "Oz", "O2"], 500, sfreq=250.0, checkpoint=EEGPT_WEIGHTS)  # doctest: +SKIP
    >>> eegpt(["O1", "Oz", "O2"], 500)
    Traceback (most recent call last):
    ...
    ValueError: EEGPT needs trained weights: pass checkpoint=, a file or a HubFile to download. ...
    """
    check_choice("layout", layout, tuple(ORDER))
    check_choice("weights", weights, ("checkpoint", "random"))
    if (weights == "random") != (checkpoint is None):
        raise ValueError(
            "EEGPT needs trained weights: pass checkpoint=, a file or a HubFile to download. For tests and "
            f"simulations, weights='random' makes an untrained network. Got {checkpoint=} and {weights=}."
        )
    braindecode = import_braindecode()
    import torch

    table = [name.upper() for name in importlib.import_module("braindecode.models.eegpt").EEGPT_CHANNELS]
    names = [str(name).upper() for name in channels]
    if unknown := [name for name, upper in zip(channels, names, strict=True) if upper not in table]:
        raise ValueError(
            f"EEGPT was not trained with {', '.join(map(str, unknown))}; leave them out, or rename them if "
            f"they are another name for one of its {len(table)}: {', '.join(table)}."
        )
    if len(set(names)) < len(names):
        raise ValueError(f"channels name one channel twice: {', '.join(map(str, channels))}.")
    parameters = {"chan_proj_type": "none", "return_encoder_output": True, **(architecture or {})}
    # Building draws random weights; the caller's random numbers must not change by it.
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(random_state)
        model = braindecode.models.EEGPT(
            chs_info=_positions(channels), n_times=n_times, sfreq=256.0, **parameters
        )
    record: Any = f"random weights, seed {random_state}"
    if checkpoint is None:
        warnings.warn(
            f"EEGPT has {record}: what it makes of signals means nothing. For tests and simulations only.",
            stacklevel=2,
        )
    else:
        # What a HubFile should be, it says itself.
        if sha256 is None and not isinstance(checkpoint, HubFile):
            sha256 = EEGPT_WEIGHTS.sha256
        record = load_checkpoint(
            model, checkpoint, sha256=None if sha256 == "any" else sha256, allow_extra=UNUSED
        )
    identity = {
        "name": "EEGPT",
        "architecture": {key: repr(v) if callable(v) else v for key, v in (architecture or {}).items()},
        "braindecode": str(braindecode.__version__),
        "checkpoint": record,
        "layout": layout,
        "token_order": ORDER[layout],
    }

    def tokens(model: Any, batch: Any) -> Any:
        summaries = model(batch)  # (batch, windows, 4, d)
        return summaries.mean(2) if layout == "mean" else summaries.flatten(1, 2)

    settings |= {"scaling": scaling, "sfreq": sfreq, "tokens": tokens, "identity": identity}
    return TorchEncoder(model, channels, n_times, **settings)


def _positions(channels: Sequence[str]) -> list[Any]:
    """Return channels as braindecode wants them, with standard 10-05 positions."""
    import mne

    from .trials import standard_montage

    info = mne.create_info([str(name) for name in channels], 256.0, "eeg", verbose="error")
    info.set_montage(standard_montage(), match_case=False, on_missing="ignore", verbose="error")
    return list(info["chs"])
