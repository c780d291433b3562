"""Frozen corrections (maps) that can be stored, shared and applied to new embeddings.

A map needs only numpy and is immutable. Estimators create maps (``model.to_map()``), and
:meth:`CorrectionMap.save` and :func:`load_map` store and load them. Only a :class:`RoutedMap` needs a source
label.
"""

from __future__ import annotations

from pathlib import Path

from .._common.remote import Given, as_place
from ..errors import MapError
from .affine import AffineMap, PosteriorMap
from .base import CorrectionMap, Floats
from .info import MapInfo
from .routed import RoutedMap
from .sequential import ProjectiveMap, SequentialMap, StagedMap

__all__ = [
    "AffineMap",
    "CorrectionMap",
    "Floats",
    "MapError",
    "MapInfo",
    "PosteriorMap",
    "ProjectiveMap",
    "RoutedMap",
    "SequentialMap",
    "StagedMap",
    "load_map",
]


def load_map(path: Given) -> CorrectionMap:
    """Load a stored correction from a file or an address such as ``s3://bucket/m.safetensors``.

    Directories (``model.json`` + ``model.npz``) written by the paper's original code can also be loaded. A
    file that is damaged, inconsistent, too new or not a map raises :class:`MapError`. Loading never runs code
    from the file.
    """
    path = as_place(path)
    if isinstance(path, Path) and path.is_dir():
        from .io.release import read_release

        return read_release(path)
    from .io.mapfile import read_map

    return read_map(path)
