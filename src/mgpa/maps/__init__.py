"""Frozen corrections, to store, to share and to apply to new embeddings.

A map needs numpy and nothing else, and never changes. Estimators make maps (``model.to_map()``); files hold
them (:meth:`CorrectionMap.save`, :func:`load_map`). Only a :class:`RoutedMap` asks for a source label.
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

    A directory (``model.json`` + ``model.npz``) written by the paper authors' code is opened too. A file
    that is damaged, inconsistent, too new or not a map raises :class:`MapError`. Opening never runs code.
    """
    path = as_place(path)
    if isinstance(path, Path) and path.is_dir():
        from .io.release import read_release

        return read_release(path)
    from .io.mapfile import read_map

    return read_map(path)
