"""Import of the package braindecode, with a clear error if it fails."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._common.extras import missing


def import_braindecode() -> Any:
    """Return the package braindecode with its models; an ImportError names the solution."""
    if importlib.util.find_spec("braindecode") is None:
        raise missing("An encoder", "braindecode", "torch")
    try:
        with quiet():
            _import_torchaudio()
            importlib.import_module("braindecode.models")
            return importlib.import_module("braindecode")
    except (ImportError, OSError) as error:
        raise ImportError(
            f"braindecode could not be imported: {error}. If torch, torchaudio or torchvision are at fault, "
            "install them from one index: pip install torch torchaudio torchvision --force-reinstall "
            "--index-url https://download.pytorch.org/whl/cpu (or the CUDA index that pytorch.org names).",
            name="braindecode",
        ) from error


def _import_torchaudio() -> None:
    """Import torchaudio, if installed, without its compiled part if that part does not load.

    braindecode imports torchaudio, whose compiled part loads only with the torch build for which it was
    compiled: the one on PyPI fails with a CPU build of torch. braindecode only uses functions with a Python
    version, which torchaudio uses without its compiled part.
    """
    try:
        importlib.import_module("torchaudio")
    except ModuleNotFoundError:
        return
    except (ImportError, OSError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
            del sys.modules[name]
        # As it is where torchaudio was built without a compiled part.
        absent: Any = types.ModuleType("torchaudio._extension")
        absent._IS_TORCHAUDIO_EXT_AVAILABLE = absent._IS_ALIGN_AVAILABLE = False
        absent._load_lib, absent._check_cuda_version = (lambda name: False), (lambda: None)
        absent.fail_if_no_align = lambda function: function
        sys.modules["torchaudio._extension"] = absent
        importlib.import_module("torchaudio")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress deprecation warnings of braindecode and its dependencies."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", category)
        yield
