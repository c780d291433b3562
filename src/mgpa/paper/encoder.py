"""EEGPT, the paper's frozen encoder, from braindecode with trained weights.

A network whose weights were only partly loaded would still return embeddings, and they would look like any
others. So every name and shape must agree, and what differs by design is named.
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
# What EEGPT's file has and the encoder has no use for.
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

    Windows of 64 samples, 32 apart, do not see each other; each gives four summary tokens of 512 numbers.
    Zeros at the end fill up the last window. Tokens are in order of windows, and of summaries in a window.

    Parameters
    ----------
    channels : sequence of str
        Names among the 62 of the 10-10 system that EEGPT was trained with. Their order does not matter.
    n_times : int
        Samples that EEGPT sees: 500 make 15 windows, 256 make 7.
    checkpoint : path, RemoteFile or None
        Trained weights: a file, or :data:`EEGPT_WEIGHTS` to download the paper's; required.
    sha256 : str or None
        The file's checksum; a file must have the one of the paper's weights unless this says otherwise, and
        "any" accepts every file.
    weights : {"checkpoint", "random"}
        "random" makes an untrained network for tests and simulations, from the seed ``random_state``, and
        warns.
    layout : {"mean", "all"}
        "mean": the four summaries of a window averaged, (windows, 512). "all": (windows × 4, 512).
    scaling : "zscore" or float
        Of the input; the paper's are "zscore" and, for reuse, 20e-6 V.
    sfreq : float
        Samples per second of its input. It was trained at 256; the paper fed it 250 as they were.
    architecture : dict or None
        The braindecode model's own parameters, as ``{"depth": 2}``.
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
    # Building draws random weights; the caller's random numbers must not change by it.
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
        # What a RemoteFile should be, it says itself.
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
    """Raise unless EEGPT was trained with these channels."""
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
    """Load trained weights into a torch module: all of them, or none and a CheckpointError.

    EEGPT's table of the channels in use, ``chans_id``, stays as the model has it.

    Parameters
    ----------
    model : torch.nn.Module
        Left as it is if anything is wrong.
    checkpoint : path or RemoteFile
        ``.safetensors``: opening other formats could run code from them. A RemoteFile is downloaded into the
        user's cache, once.
    sha256 : str or None
        Checksum of the file. None: any file is accepted; the returned dict has its checksum.
    allow_extra : sequence of str
        Beginnings of names in the file that the model does not use and that are ignored.
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
        # Strictly, and first into a copy: torch would load what fits before it says what does not.
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
    """Return the tensors of a file by name, and its identity; raise if it is not the expected file."""
    from safetensors.torch import load

    if not path.is_file():
        raise FileNotFoundError(f"No file {path}. `mgpa data fetch eegpt --out weights` fetches the paper's.")
    # Read once, so that what is checked is what is loaded.
    content = path.read_bytes()
    checksum = hashlib.sha256(content).hexdigest()
    if sha256 is not None and checksum != sha256.lower():
        raise CheckpointError(
            f"{path} is not the expected file: its sha256 is {checksum}, not {sha256}. Download it again, or "
            "pass its sha256 if it is the file you mean."
        )
    try:
        return dict(load(content)), {"file": path.name, "sha256": checksum, "size": len(content)}
    except Exception as error:  # damaged files fail in many ways, all of which mean the same
        raise CheckpointError(
            f"{path} is not a whole .safetensors file ({error}). Download it again; save weights of other "
            "formats with safetensors.torch.save_file."
        ) from None
