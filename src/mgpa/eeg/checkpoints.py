"""Trained weights of frozen encoders: fetched, checked, and loaded completely or not at all.

A network whose weights were only partly found would still return embeddings, and they would look like any
others. So every name and shape must agree before anything is loaded, and what differs by design is named.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, DownloadError, first_few
from .datasets.fetching import RemoteFile, fetch_files, require_pooch

HUB = "https://huggingface.co"
SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")


@dataclass(frozen=True)
class HubFile:
    """One file of one revision (commit, tag or branch) of a repository on the Hugging Face hub.

    ``repo`` is as "braindecode/eegpt-pretrained"; ``size`` in bytes.
    """

    repo: str
    revision: str
    filename: str = "model.safetensors"
    sha256: str | None = None
    size: int | None = None

    @property
    def remote(self) -> RemoteFile:
        """Where it is; the environment variable HF_ENDPOINT names a mirror."""
        base = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        url = f"{base}/{self.repo}/resolve/{self.revision}/{self.filename}"
        return RemoteFile(self.filename, url, self.size, self.sha256 and f"sha256:{self.sha256}")

    def fetch(self, folder: str | os.PathLike[str] | None = None, *, verbose: bool = False) -> Path:
        """Download the file, unless it is here already, and return its path."""
        if folder is None:
            names = (text.replace("/", "--") for text in (self.repo, self.revision))
            folder = require_pooch().os_cache("mgpa").joinpath("checkpoints", *names)
        try:
            fetch_files([self.remote], folder, verbose=verbose)
        except DownloadError as error:
            raise DownloadError(
                f"{error} Without a connection, fetch {self.remote.url} on another machine and pass the "
                "file's path instead."
            ) from None
        return Path(folder) / self.filename


#: The paper's encoder.
EEGPT_WEIGHTS = HubFile(
    "braindecode/eegpt-pretrained",
    "e41cb3ae2ce4fd9eb736862292c91f8128d15618",
    sha256="fb34c20609983324679b9534f9d17a2289a232d0276dd2b8b7d5b088f876f621",
    size=101_160_080,
)


def load_checkpoint(
    model: Any,
    checkpoint: str | os.PathLike[str] | HubFile,
    *,
    sha256: str | None = None,
    allow_missing: Sequence[str] = ("chans_id",),
    allow_extra: Sequence[str] = (),
) -> dict[str, Any]:
    """Load trained weights into a torch module: all of them, or none and a CheckpointError.

    Parameters
    ----------
    model : torch.nn.Module
        Left as it is if anything is wrong.
    checkpoint : path or HubFile
        ``.safetensors``, or a state dict that torch saved, which is read without running code from it.
    sha256 : str or None
        Checksum of the file. None accepts any; the returned dict says which it was.
    allow_missing : sequence of str
        Names that stay as the model has them, whatever the file says: EEGPT's table of the channels in use.
    allow_extra : sequence of str
        What names in the file may begin with that the model has no use for.
    """
    source = {}
    if isinstance(checkpoint, HubFile):
        path, sha256 = checkpoint.fetch(verbose=sys.stderr.isatty()), sha256 or checkpoint.sha256
        source = {"repo": checkpoint.repo, "revision": checkpoint.revision}
    else:
        path = Path(checkpoint)
    # Read once, so that what is checked is what is loaded.
    content = check_file(path, sha256)
    stored = _tensors(content, path)
    wanted = {name: value for name, value in model.state_dict().items() if name not in allow_missing}
    _require_equal(stored, wanted, path, type(model).__name__, (*allow_extra, *allow_missing))
    # Not strict, because of allow_missing only; everything else has been compared.
    model.load_state_dict({name: stored[name] for name in wanted}, strict=False)
    record = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    return record | source


def check_file(path: str | os.PathLike[str], sha256: str | None = None) -> bytes:
    """Return a file of weights, or raise and say why it cannot be the one that is meant."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"No file {path}. `mgpa data fetch eegpt --out weights` fetches the paper's.")
    if path.suffix not in SUFFIXES:
        raise CheckpointError(f"{path} is not a file of weights; expected {', '.join(SUFFIXES)}.")
    content = path.read_bytes()
    checksum = hashlib.sha256(content).hexdigest()
    if sha256 is not None and checksum != sha256.lower():
        raise CheckpointError(
            f"{path} is not the expected file: its sha256 is {checksum}, not {sha256}. Download it again, or "
            "pass its sha256 if it is the file you mean."
        )
    return content


def _tensors(content: bytes, path: Path) -> dict[str, Any]:
    """Return the file's tensors by name."""
    import torch
    from safetensors.torch import load

    # Damaged files fail in many ways (and torch.load in more than it documents), all of which mean the same.
    try:
        if path.suffix == ".safetensors":
            return dict(load(content))
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise CheckpointError(
            f"{path} cannot be read as weights ({type(error).__name__}: {reason}). Download it again; a "
            "pickle of anything but tensors is refused, because opening it would run code from it."
        ) from None
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not all(isinstance(t, torch.Tensor) for t in loaded.values()):
        raise CheckpointError(f"{path} holds a {type(loaded).__name__}; expected tensors by name.")
    return {str(name): value for name, value in loaded.items()}


def _require_equal(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], path: Path, model: str, allowed: tuple[str, ...]
) -> None:
    """Raise, with everything that does not agree."""
    import torch

    def form(tensor: Any) -> str:
        return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"

    both = [name for name in wanted if name in stored]
    problems = {
        "Missing": [name for name in wanted if name not in stored],
        "Unknown to the model": [n for n in stored if n not in wanted and not n.startswith(allowed)],
        "Other shapes or types": [
            f"{name} is {form(stored[name])} instead of {form(wanted[name])}"
            for name in both
            if form(stored[name]) != form(wanted[name])
        ],
        "Not finite": [name for name in both if not bool(torch.isfinite(stored[name]).all())],
    }
    lines = [f"{title} ({len(names)}): {first_few(names)}." for title, names in problems.items() if names]
    if lines:
        raise CheckpointError("\n".join([f"{path} does not fit {model}; nothing was loaded.", *lines]))
