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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, DownloadError, first_few
from .datasets.download import download_file, require_pooch

HUB = "https://huggingface.co"
TORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")


@dataclass(frozen=True)
class HubFile:
    """One file of one revision of a repository on the Hugging Face hub.

    Parameters
    ----------
    repo : str
        As "braindecode/eegpt-pretrained".
    revision : str
        A whole commit, a tag or a branch.
    filename : str
        In the repository.
    sha256 : str or None
        Checksum.
    size : int or None
        Bytes.
    """

    repo: str
    revision: str
    filename: str = "model.safetensors"
    sha256: str | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        repo = self.repo
        if repo.count("/") != 1 or ".." in repo or repo.startswith("/") or repo.endswith("/"):
            raise ValueError(
                f"repo is {repo!r}; expected an owner and a name, as in 'braindecode/eegpt-pretrained'."
            )
        for name, value in (("revision", self.revision), ("filename", self.filename)):
            if not value or ".." in value.split("/"):
                raise ValueError(f"{name} is {value!r}; expected the name of a {name} in {repo}.")

    def fetch(self, folder: str | os.PathLike[str] | None = None, *, verbose: bool = False) -> Path:
        """Download the file, unless it is here already, and return its path.

        With a checksum a broken download is resumed. The environment variable HF_ENDPOINT names a mirror.

        Parameters
        ----------
        folder : path or None
            Where to keep it; None is the user's cache.
        verbose : bool
            Show a line on stderr.

        Raises
        ------
        DownloadError
            It could not be fetched, or is not the expected file.
        """
        folder = require_pooch().os_cache("mgpa") / "checkpoints" if folder is None else Path(folder)
        # Folders become part of the name, so that files of one name in two of them stay two.
        names = (part.replace("/", "--") for part in (self.repo, self.revision, self.filename))
        base = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        url = f"{base}/{self.repo}/resolve/{self.revision}/{self.filename}"
        try:
            return download_file(
                url, folder.joinpath(*names), sha256=self.sha256, size=self.size, verbose=verbose
            )
        except DownloadError as error:
            raise DownloadError(
                f"{error} Without a connection, fetch {url} on another machine and pass the file's path "
                "instead."
            ) from None


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
    leading: Sequence[str] = (),
) -> dict[str, Any]:
    """Load trained weights into a torch module: all of them, or none and an error.

    Parameters
    ----------
    model : torch.nn.Module
        Left as it is if anything is wrong.
    checkpoint : path or HubFile
        ``.safetensors``, or a state dict that torch saved, which is read without running code from it.
    sha256 : str or None
        Checksum of the file. None accepts any and returns which it was.
    allow_missing : sequence of str
        Names that stay as the model has them, whatever the file says: EEGPT's table of the channels in use.
    allow_extra : sequence of str
        What names in the file may begin with that the model has no use for.
    leading : sequence of str
        Names of which the file may have more along axis 1, where the model uses the first ones only.

    Returns
    -------
    dict
        What was loaded: file, sha256, size, and where it is from.

    Raises
    ------
    CheckpointError
        Another checksum, unreadable, or missing, unknown, differently shaped or not finite weights.

    Examples
    --------
    >>> import tempfile, torch
    >>> from pathlib import Path
    >>> from safetensors.torch import save_file
    >>> path = Path(tempfile.mkdtemp()) / "weights.safetensors"
    >>> save_file(torch.nn.Linear(3, 2).state_dict(), path)
    >>> load_checkpoint(torch.nn.Linear(3, 2), path)["size"] == path.stat().st_size
    True
    >>> load_checkpoint(torch.nn.Linear(4, 2), path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    mgpa.errors.CheckpointError: ...weights.safetensors does not fit Linear; nothing was loaded.
    Other shapes or types (1): weight is (2, 3) float32 instead of (2, 4) float32.
    """
    source: dict[str, Any] = {}
    if isinstance(checkpoint, HubFile):
        expected = replace(checkpoint, sha256=sha256 or checkpoint.sha256)
        path = expected.fetch(verbose=sys.stderr.isatty())
        source = {"repo": checkpoint.repo, "revision": checkpoint.revision}
    else:
        path = Path(checkpoint)
    # Read once, so that what is checked is what is loaded.
    content = _content(path)
    checksum = hashlib.sha256(content).hexdigest()
    if sha256 is not None and checksum != sha256.lower():
        raise CheckpointError(
            f"{path} is not the expected file: its sha256 is {checksum}, not {sha256}. Nothing was loaded; "
            "download it again, or pass its sha256 if it is the file you mean."
        )
    stored = _tensors(content, path)
    wanted = {name: value for name, value in model.state_dict().items() if name not in allow_missing}
    longer = [name for name in leading if _is_longer(stored, wanted, name)]
    cut = {name: stored[name][:, : wanted[name].shape[1]] for name in longer}
    _compare(stored | cut, wanted, path, type(model).__name__, tuple(allow_extra), allow_missing)
    # Not strict, because of allow_missing only; everything else has been compared.
    model.load_state_dict({name: (stored | cut)[name] for name in wanted}, strict=False)
    record = {"file": path.name, "sha256": checksum, "size": len(content), **source}
    if cut:
        record["leading"] = {name: [wanted[name].shape[1], stored[name].shape[1]] for name in cut}
    return record


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file of weights; check the path, or download it first.")
    if path.suffix not in (".safetensors", *TORCH_SUFFIXES):
        raise CheckpointError(f"{path}: weights come as .safetensors or {', '.join(TORCH_SUFFIXES)} files.")
    return path.read_bytes()


def _tensors(content: bytes, path: Path) -> dict[str, Any]:
    """Return the file's tensors by name."""
    import torch

    # Damaged files fail in many ways (and torch.load in more than it documents), all of which mean the same.
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load

            return load(content)
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


def _is_longer(stored: Mapping[str, Any], wanted: Mapping[str, Any], name: str) -> bool:
    if name not in stored or name not in wanted:
        return False
    theirs, ours = list(stored[name].shape), list(wanted[name].shape)
    return theirs[:1] + theirs[2:] == ours[:1] + ours[2:] and theirs[1] > ours[1]


def _compare(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    path: Path,
    model: str,
    allow_extra: tuple[str, ...],
    allow_missing: Sequence[str],
) -> None:
    """Raise, with everything that does not agree."""
    import torch

    missing = [name for name in wanted if name not in stored]
    extra = [
        name
        for name in stored
        if name not in wanted and name not in allow_missing and not name.startswith(allow_extra)
    ]
    both = [name for name in wanted if name in stored]
    differ = [
        f"{name} is {_form(stored[name])} instead of {_form(wanted[name])}"
        for name in both
        if _form(stored[name]) != _form(wanted[name])
    ]
    broken = [name for name in both if not bool(torch.isfinite(stored[name]).all())]
    problems = {
        "Missing": missing,
        "Unknown to the model": extra,
        "Other shapes or types": differ,
        "Not finite": broken,
    }
    lines = [f"{title} ({len(names)}): {first_few(names)}." for title, names in problems.items() if names]
    if lines:
        raise CheckpointError("\n".join([f"{path} does not fit {model}; nothing was loaded.", *lines]))


def _form(tensor: Any) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
