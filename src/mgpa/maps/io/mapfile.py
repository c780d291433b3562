"""Read and write maps as safetensors files, written atomically and checked completely when read.

The tensors are the arrays of the map and of its coordinates. The metadata contain the rest as one JSON text
(``mgpa``) and a checksum of this text and of all tensors (``sha256``). Files are not trusted: reading one
returns the map that was written or raises a :class:`~mgpa.maps.MapError`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from dataclasses import fields
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np
import safetensors.numpy as safetensors
from numpy.typing import NDArray

from ..._common.files import no_such_file, path_taken, require_replaceable, write_atomically
from ..._common.remote import Place
from ...coordinates import Coordinates
from ...errors import MapError, OutputExists, StoreError
from ..check import FittedRange
from ..info import KINDS, MapInfo
from ..population import Population

if TYPE_CHECKING:
    from ..base import CorrectionMap

Floats = NDArray[Any]

FORMAT_VERSION = 7
# Optional parts of a map: the prefix of their array names, and their class.
PARTS: dict[str, tuple[str, Any]] = {
    "coordinates": ("coordinates.", Coordinates),
    "fitted": ("fitted.", FittedRange),
    "population": ("population.", Population),
}

# Limits on memory for an untrusted file; real maps are far below them.
MAX_HEADER_BYTES = 2**24
MAX_FILE_BYTES = 2**32
MAX_DEPTH = 16
MAX_INT_BITS = 256


def _json_types(hint: Any) -> tuple[type, ...]:
    """Return the JSON form of a value with this type hint: tuples become lists, and 1.0 may become 1."""
    kinds = [get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else [hint])]
    return tuple(list if kind is tuple else kind for kind in kinds) + (int,) * (float in kinds)


_INFO_TYPES = {name: _json_types(hint) for name, hint in get_type_hints(MapInfo).items()}


def write_map(m: CorrectionMap, path: Place, *, overwrite: bool) -> Place:
    """Write a map atomically, so that ``path`` always holds a complete file, new or old.

    The folder must exist. Unless ``overwrite`` is set, an existing file raises a FileExistsError.
    """
    if isinstance(path, Path) and not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it, then save {path.name}.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file to save the map in.")
    if not overwrite and path_taken(path):
        raise OutputExists(path)
    require_replaceable(path)
    return write_atomically(path, _encode(m), new=not overwrite)


def read_map(path: Place) -> CorrectionMap:
    """Read a map written by :func:`write_map`; raise a MapError unless it is complete and unchanged."""
    if not path.exists():
        raise no_such_file(path)
    try:
        return _decode(path)
    except MapError as error:
        raise MapError(f"{path}: {error}") from error.__cause__
    except StoreError as error:
        raise MapError(str(error)) from None
    except OSError as error:
        raise MapError(f"{path}: cannot be read ({error.strerror or error}).") from error
    # All bad files must raise a MapError, whichever of three parsers fails.
    except Exception as error:
        raise MapError(f"{path}: damaged, or not a map file.") from error


def _encode(m: CorrectionMap) -> bytes:
    # safetensors copies memory without regard to strides.
    tensors = {name: np.ascontiguousarray(values) for name, values in m.tensors.items()}
    for name, (prefix, kind) in PARTS.items():
        if (part := getattr(m, name)) is not None:
            arrays = {field.name: getattr(part, field.name) for field in fields(kind)}
            tensors |= {
                prefix + key: np.ascontiguousarray(values)
                for key, values in arrays.items()
                if values is not None and values.size
            }
    document = _plain(
        {
            "format": FORMAT_VERSION,
            "kind": m.kind,
            "scalars": {name: float(getattr(m, name)) for name in m.scalar_names},
            "info": vars(m.info),
        }
    )
    _info(document["info"])  # fail now rather than when the file is read
    text = _canonical(document)
    content = safetensors.save(tensors)
    # safetensors orders metadata keys randomly; with a fixed order, equal maps give equal files.
    n = 8 + int.from_bytes(content[:8], "little")
    metadata = {"mgpa": text, "sha256": _digest(text, tensors)}
    header = _canonical({"__metadata__": metadata, **json.loads(content[8:n])}).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > MAX_HEADER_BYTES:
        raise MapError(f"The names, parameters and notes of a map must fit in {MAX_HEADER_BYTES} bytes.")
    return len(header).to_bytes(8, "little") + header + content[n:]


def _decode(path: Place) -> CorrectionMap:
    document, tensors = _read_verified(path)
    if document["kind"] == "path":
        _path_to_affine(document, tensors)
    cls = KINDS.get(document["kind"])
    if cls is None or document.keys() != {"format", "kind", "scalars", "info"}:
        raise MapError(f"holds an unknown kind of map; this library reads {' and '.join(KINDS)} maps.")
    parts = {
        name: {key.removeprefix(prefix): tensors.pop(key) for key in list(tensors) if key.startswith(prefix)}
        for name, (prefix, _) in PARTS.items()
    }
    optional = set(chain(*cls.optional_tensors)) & tensors.keys()
    if unmatched := sorted(tensors.keys() ^ (set(cls.tensor_names) | optional)):
        raise MapError(f"lacks arrays it needs or has others ({', '.join(unmatched[:4])}).")
    scalars = document["scalars"]
    if scalars.keys() != set(cls.scalar_names) or not all(type(v) is float for v in scalars.values()):
        raise MapError(f"scalars must be {', '.join(cls.scalar_names)}, all of them floats.")
    described = {name: PARTS[name][1](**arrays) for name, arrays in parts.items() if arrays}
    arguments: dict[str, Any] = {**tensors, **scalars, **described, "info": _info(document["info"])}
    return cls(**arguments)


def _read_verified(path: Place) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return the description and the arrays of a file after verifying the checksum."""
    if not path.is_file():
        raise MapError("not a regular file.")
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        prefix = stream.read(8)
        header_bytes = int.from_bytes(prefix, "little")
        if size < 8 + header_bytes or header_bytes > MAX_HEADER_BYTES or size > MAX_FILE_BYTES:
            raise MapError(f"truncated or not a map file ({size} bytes).")
        header = stream.read(header_bytes)
        metadata = json.loads(header).get("__metadata__")
        # Checked before reading tensors, because other safetensors files may be large.
        if not isinstance(metadata, dict) or metadata.keys() != {"mgpa", "sha256"}:
            raise MapError("a safetensors file, but not one written by mgpa.")
        text = metadata["mgpa"]
        document = json.loads(text)
        _require_readable(document.get("format"))
        tensors = safetensors.load(prefix + header + stream.read(size - 8 - header_bytes))
    # Accept only the canonical text that this library writes. This excludes repeated keys, NaN, huge integers
    # and excessive nesting.
    if _canonical(_plain(document)) != text or _digest(text, tensors) != metadata["sha256"]:
        raise MapError("damaged: its content does not match its checksum.")
    return document, tensors


def _require_readable(version: Any) -> None:
    """Raise unless this library can read files of the version."""
    if type(version) is not int or not 0 < version < 2**31:
        raise MapError("damaged: it states no file format.")
    if version > FORMAT_VERSION:
        raise MapError(
            f"written by a newer mgpa (format {version}, this library reads up to {FORMAT_VERSION}); "
            "upgrade mgpa."
        )


def _path_to_affine(document: dict[str, Any], tensors: dict[str, Floats]) -> None:
    """Convert a "path" map of earlier versions (directions in rows, partial last one) to an affine map."""
    fraction = document["scalars"].pop("fraction")
    if not 0.0 <= fraction <= 1.0:
        raise MapError(f"fraction must lie in [0, 1]; got {fraction!r}.")
    document["kind"], tensors["readout"] = "affine", tensors["readout"].T
    tensors["direction"] = tensors["direction"].T.astype(np.float64)
    tensors["direction"][:, -1:] *= fraction


def _info(stored: dict[str, Any]) -> MapInfo:
    """Return the provenance from its JSON form; files of older versions may lack fields."""
    for name, value in stored.items():
        expected, item_type = _INFO_TYPES.get(name), int if name == "constant_features" else str
        wrong = expected is None or isinstance(value, bool) or not isinstance(value, expected)
        if wrong or (isinstance(value, list) and any(type(item) is not item_type for item in value)):
            raise MapError(f"info field {name!r} is unknown or has a value of the wrong type.")
    if len(base64.b64decode(stored.get("row_sample", ""), validate=True)) % 8:
        raise MapError("info field 'row_sample' is not a list of digests.")
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in stored.items()}
    return MapInfo(**fields)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return ``value`` in a JSON form; other types are replaced by their ``repr``."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_INT_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, dict) and depth < MAX_DEPTH:
        return {str(k): _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and depth < MAX_DEPTH:
        return [_plain(v, depth + 1) for v in value]
    return repr(value)


def _canonical(document: Any) -> str:
    # Keys keep their order, because parameters are listed in the order of the estimator's signature.
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def map_digest(m: CorrectionMap) -> str:
    """Return a checksum of the numbers that define a map and its movement.

    Maps that differ only in their provenance have equal checksums.
    """
    scalars = [float(getattr(m, name)) for name in m.scalar_names]
    routes = () if m.source_blind else m.info.source_names
    where = [] if m.coordinates is None else [m.coordinates.digest]
    constant = [m.info.constant_features] if m.info.constant_features else []
    layout = [m.info.token_layout] if m.info.token_layout != "mean" else []
    text = _canonical([m.kind, scalars, list(routes), *where, *constant, *layout])
    return _digest(text, {name: np.ascontiguousarray(values) for name, values in m.tensors.items()})


def _digest(text: str, tensors: dict[str, Floats]) -> str:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(tensors.items()):
        digest.update(_canonical([name, array.dtype.name, array.shape]).encode())
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()
