"""Import braindecode, also beside a torchaudio that was built for another torch.

braindecode imports torchaudio, whose compiled part loads only beside the torch it was built for: PyPI's fails
beside a CPU build of torch. No encoder here uses it, and all that braindecode uses of it has a Python form,
which torchaudio takes where its compiled part is absent. So where loading fails it is told that it is.
"""

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

#: What becomes of a torchaudio that does not load, as ``mgpa doctor`` says it.
LEFT_OUT = "built for another torch; mgpa's encoders do without its compiled part"


def import_braindecode() -> Any:
    """Return the package braindecode, its models imported, or raise an ImportError that says what to do."""
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
    """Import torchaudio, if it is installed: whole, or without its compiled part where that does not load."""
    if importlib.util.find_spec("torchaudio") is None:
        return
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError) as error:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
            del sys.modules[name]
        sys.modules["torchaudio._extension"] = _absent_extension()
        try:
            importlib.import_module("torchaudio")
        except Exception:
            raise error from None


def _absent_extension() -> Any:
    """Return what ``torchaudio._extension`` is where torchaudio was built without a compiled part."""

    extension: Any = types.ModuleType("torchaudio._extension")
    extension._IS_TORCHAUDIO_EXT_AVAILABLE = extension._IS_ALIGN_AVAILABLE = False
    extension._load_lib = lambda name: False
    extension._check_cuda_version = lambda: None
    extension.fail_if_no_align = lambda function: function
    return extension


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what braindecode and its dependencies say about their own future."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", category)
        yield
