"""EEGPT, the paper's frozen encoder, from braindecode with trained weights.

A network with partly loaded weights would still return plausible embeddings. All names and shapes must
therefore match, apart from listed exceptions.
Other networks are wrapped by :class:`~mgpa.eeg.TorchEncoder`.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import os
import sys
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..eeg.braindecode import import_braindecode, quiet
from ..eeg.torch_encoder import Scaling, TorchEncoder, check_choice
from ..eeg.trials import standard_montage
from ..errors import CheckpointError, DownloadError, first_few
from .datasets.catalogue import EEGPT_WEIGHTS, RemoteFile, fetch_files, require_pooch

__all__ = ["EEGPT_WEIGHTS", "eegpt", "load_checkpoint"]

ORDER = {"mean": "window", "all": "window, summary"}
# Parts of EEGPT's file that the encoder does not use.
UNUSED = ("predictor.", "reconstructor.", "final_layer.")
CHANNEL_TABLE = "chans_id"


def eegpt(
    channels: Sequence[str],
    n_times: int,
    *,
    checkpoint: str | os.PathLike[str] | RemoteFile | None = None,
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

    Each window of 64 samples (32 apart) is encoded separately into four summary tokens of 512 numbers. The
    last window is padded with zeros. Tokens are ordered by window, then by summary.

    Parameters
    ----------
    channels : sequence of str
        Channels among the 62 of the 10-10 system on which EEGPT was trained. Their order does not matter.
    n_times : int
        Number of input samples: 500 make 15 windows, 256 make 7.
    checkpoint : path, RemoteFile or None
        File of trained weights, or :data:`EEGPT_WEIGHTS` to download the paper's. Required unless ``weights``
        is "random".
    sha256 : str or None
        Expected checksum of the file. None: that of the paper's weights; "any": accept every file.
    weights : {"checkpoint", "random"}
        "random" builds an untrained network for tests and simulations, with the seed ``random_state``, and
        issues a warning.
    layout : {"mean", "all"}
        "mean": the four summaries of a window averaged, (windows, 512). "all": (windows × 4, 512).
    scaling : "zscore" or float
        Scaling of the input; the paper uses "zscore" and, for reuse, 20e-6 V.
    sfreq : float
        Sampling rate of the input. EEGPT was trained at 256 Hz; the paper used 250 Hz without resampling.
    architecture : dict or None
        Parameters of the braindecode model, such as ``{"depth": 2}``.
    **settings
        ``resample``, ``device``, ``batch_size`` and ``dtype`` as for :class:`~mgpa.eeg.TorchEncoder`.

    Examples
    --------
    >>> from mgpa.paper import EEGPT_WEIGHTS, eegpt
    >>> encoder = eegpt(["O1", "Oz", "O2"], 500, sfreq=250.0, checkpoint=EEGPT_WEIGHTS)  # doctest: +SKIP
    """
    check_choice("layout", layout, tuple(ORDER))
    check_choice("weights", weights, ("checkpoint", "random"))
    if (weights == "random") != (checkpoint is None):
        raise ValueError(
            "EEGPT needs trained weights: pass checkpoint=, a file or EEGPT_WEIGHTS to download. For tests "
            f"and simulations, weights='random' makes an untrained network. Got {checkpoint=} and {weights=}."
        )
    braindecode = import_braindecode()
    import mne
    import torch

    _require_known(channels)
    parameters = {"chan_proj_type": "none", "return_encoder_output": True, **(architecture or {})}
    # Building the network draws random weights, which must not change the caller's random state.
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(random_state)
        info = mne.create_info([str(name) for name in channels], 256.0, "eeg", verbose="error")
        info.set_montage(standard_montage(), match_case=False, on_missing="ignore", verbose="error")
        model = braindecode.models.EEGPT(chs_info=info["chs"], n_times=n_times, sfreq=256.0, **parameters)
    record: Any = f"random weights, seed {random_state}"
    if checkpoint is None:
        warnings.warn(
            f"EEGPT has {record}: its embeddings are meaningless. For tests and simulations only.",
            stacklevel=2,
        )
    else:
        # A RemoteFile has its own checksum.
        if sha256 is None and not isinstance(checkpoint, RemoteFile):
            sha256 = EEGPT_WEIGHTS.sha256
        expected = None if sha256 == "any" else sha256
        record = load_checkpoint(model, checkpoint, sha256=expected, allow_extra=UNUSED)
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


def _require_known(channels: Sequence[str]) -> None:
    """Raise unless EEGPT was trained on these channels."""
    table = [name.upper() for name in importlib.import_module("braindecode.models.eegpt").EEGPT_CHANNELS]
    if unknown := [str(name) for name in channels if str(name).upper() not in table]:
        raise ValueError(
            f"EEGPT was not trained with {', '.join(unknown)}; drop them, or rename them to "
            f"the same electrodes among its {len(table)}: {', '.join(table)}."
        )


def load_checkpoint(
    model: Any,
    checkpoint: str | os.PathLike[str] | RemoteFile,
    *,
    sha256: str | None = None,
    allow_extra: Sequence[str] = (),
) -> dict[str, Any]:
    """Load all trained weights into a torch module, or load none and raise a CheckpointError.

    EEGPT's table of channels, ``chans_id``, is not loaded.

    Parameters
    ----------
    model : torch.nn.Module
        The module; unchanged after an error.
    checkpoint : path or RemoteFile
        A ``.safetensors`` file; other formats could execute code when opened. A RemoteFile is downloaded once
        into the user's cache.
    sha256 : str or None
        Expected checksum of the file. None: accept any file; the returned dict has its checksum.
    allow_extra : sequence of str
        Prefixes of names in the file that the model does not use; such weights are ignored.
    """
    origin = {}
    if isinstance(checkpoint, RemoteFile):
        path, sha256 = _fetch(checkpoint), sha256 or checkpoint.sha256
        origin = {"url": checkpoint.url}
    else:
        path = Path(checkpoint)
    stored, facts = _read(path, sha256)
    wanted = model.state_dict()
    weights = {name: value for name, value in stored.items() if not name.startswith(tuple(allow_extra))}
    weights |= {CHANNEL_TABLE: wanted[CHANNEL_TABLE]} if CHANNEL_TABLE in wanted else {}
    damaged = [name for name, value in weights.items() if not bool(value.isfinite().all())]
    try:
        # Load into a copy first: torch loads matching weights before it reports mismatches.
        copy.deepcopy(model).load_state_dict(weights)
    except RuntimeError as error:
        reason = textwrap.shorten(str(error), 600)
        raise CheckpointError(f"{path} does not fit this network; nothing was loaded. {reason}") from None
    if damaged:
        raise CheckpointError(f"{path} has NaN or infinite values in {first_few(damaged)}; fetch it again.")
    model.load_state_dict(weights)
    return facts | origin


def _fetch(file: RemoteFile) -> Path:
    folder = Path(require_pooch().os_cache("mgpa")) / "checkpoints" / str(file.sha256)[:16]
    try:
        fetch_files([file], folder, verbose=sys.stderr.isatty())
    except DownloadError as error:
        raise DownloadError(
            f"{error} Without a connection, fetch {file.url} on another machine and pass the file's path "
            "instead."
        ) from None
    return folder / file.name


def _read(path: Path, sha256: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors and the identity of a file; raise if the checksum is not the expected one."""
    from safetensors.torch import load

    if not path.is_file():
        raise FileNotFoundError(f"No file {path}. `mgpa data fetch eegpt --out weights` fetches the paper's.")
    # Read once, so that the checked bytes are the loaded bytes.
    content = path.read_bytes()
    checksum = hashlib.sha256(content).hexdigest()
    if sha256 is not None and checksum != sha256.lower():
        raise CheckpointError(
            f"{path} is not the expected file: its sha256 is {checksum}, not {sha256}. Download it again, or "
            "pass its sha256 if you want this file."
        )
    try:
        return dict(load(content)), {"file": path.name, "sha256": checksum, "size": len(content)}
    except Exception as error:  # damaged files cause many kinds of errors
        raise CheckpointError(
            f"{path} is not a complete .safetensors file ({error}). Download it again; convert weights in "
            "other formats with safetensors.torch.save_file."
        ) from None
