"""Read maps stored by the paper's original code: folders with ``model.json`` and ``model.npz``.

These models expect standardised rows, and the folder does not contain the standardisation, so the maps have
center 0 and scale 1. Folders are not trusted: pickles and paths outside the folder are refused, and sizes are
limited. The map itself checks that its arrays are consistent.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from ...errors import MapError
from ..affine import AffineMap
from ..base import CorrectionMap, Floats
from ..info import MapInfo
from ..sequential import ORTHONORMAL_TOLERANCE, StagedMap, is_orthonormal

SCHEMA = "mgpa-release-model-v1"

# Limits on memory for an untrusted folder; real files have a few megabytes.
MAX_JSON_BYTES = 2**24
MAX_ARRAY_BYTES = 2**31
MAX_FEATURES = 2**20


def read_release(folder: Path) -> CorrectionMap:
    """Read a model written by the original code as an AffineMap or a StagedMap of standardised features.

    ``folder`` contains ``model.json`` and the array file named in it. Missing, damaged, inconsistent or
    foreign files raise a MapError.
    """
    try:
        return _read(folder)
    except MapError as error:
        raise MapError(f"{folder}: {error}") from error.__cause__
    # Missing keys, wrong types, bad zips and impossible sizes all mean that the folder is not a model.
    except Exception as error:
        raise MapError(f"{folder}: damaged, or not a stored model.") from error


def _read(folder: Path) -> CorrectionMap:
    text = _content(folder, "model.json", MAX_JSON_BYTES)
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise MapError(f"model.json does not follow the schema {SCHEMA}.")
    read = {"ClosedFormMGPA": _closed_form, "IterativeMGPA": _iterative}.get(document["model"]["kind"])
    if read is None:
        raise MapError("holds another kind of model; supported: ClosedFormMGPA and IterativeMGPA.")
    name = document["state_file"]
    if not PurePosixPath(name).name == PureWindowsPath(name).name == name:
        raise MapError("state_file must be a plain file name.")
    content = _content(folder, name, MAX_ARRAY_BYTES)
    if hashlib.sha256(content).hexdigest() != document["state_sha256"]:
        raise MapError(f"{name} does not match its checksum in model.json.")
    model = json.loads(text, object_hook=_decoder(content))["model"]
    d = model["state"]["n_features_in_"]
    if type(d) is not int or not 0 < d <= MAX_FEATURES or len(model["state"]["basis_"]) != d:
        raise MapError(f"n_features_in_ must be the length of basis_, an integer from 1 to {MAX_FEATURES}.")
    with np.errstate(all="ignore"):  # overflow gives values that the map refuses
        return read(model, d)


def _content(folder: Path, name: str, limit: int) -> bytes:
    path = folder / name
    if not path.is_file():
        raise MapError(f"has no file {name}.")
    if path.stat().st_size > limit:
        raise MapError(f"{name} is larger than {limit} bytes.")
    return path.read_bytes()


def _decoder(content: bytes) -> Callable[[dict[str, Any]], Any]:
    """Return an object hook for ``json.loads`` that replaces references by arrays and fields."""
    total = 0

    def count(n_bytes: int) -> None:
        nonlocal total
        total += n_bytes
        if total > MAX_ARRAY_BYTES:
            raise MapError(f"its arrays unpack to more than {MAX_ARRAY_BYTES} bytes.")

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # zipfile stops reading a member at its declared size, so the declared sizes limit the memory.
        count(sum(member.file_size for member in archive.infolist()))
    arrays = np.load(io.BytesIO(content), allow_pickle=False)

    def decode(node: dict[str, Any]) -> Any:
        if node.get("__record__") not in (None, "ScoreStage", "CriticState"):
            raise MapError("model.json holds a record that is neither a ScoreStage nor a CriticState.")
        if "__array__" not in node:
            return node["fields"] if "__record__" in node else node
        array = arrays[node["__array__"]]
        count(array.nbytes)  # counted per reference, because many stages may refer to one large array
        if array.dtype not in (np.float32, np.float64):
            raise MapError(f"array {node['__array__']} is {array.dtype}; expected float32 or float64.")
        return array

    return decode


def _closed_form(model: dict[str, Any], d: int) -> AffineMap:
    """Return the affine map x' = x - Bδ (δ'C⁻¹δ)⁻¹ δ'C⁻¹ (B'x - anchor(x)), in which anchor is affine."""
    names = "basis_", "complement_", "direction_", "metric_inverse_", "anchor_coef_", "anchor_intercept_"
    arrays = (np.asarray(model["state"][name], np.float64) for name in names)
    B, complement, delta, inverse, coefficients, intercept = arrays
    info = _info("MGPA-CF (release)", model)
    if B.shape[1] == 0:
        return AffineMap.identity(d, info=info)
    frame = np.hstack([B, complement])
    if frame.shape != (d, d) or not is_orthonormal(frame):
        raise MapError("its basis is not orthonormal.")
    readout = inverse.T @ delta
    length2 = float(readout @ delta)
    if not length2 > np.finfo(np.float64).tiny:
        raise MapError("its source direction has length zero.")
    readout /= length2
    return AffineMap(
        center=np.zeros(d),
        scale=np.ones(d),
        readout=(B @ readout - complement @ (coefficients @ readout))[:, None],
        direction=(B @ delta)[:, None],
        offset=-(intercept @ readout)[None],
        info=info,
    )


def _iterative(model: dict[str, Any], d: int) -> StagedMap:
    """Return a map of stages that all have the same critics and edit the same subspace."""
    basis, stages = model["state"]["basis_"], model["state"]["stages_"]
    damping, stabilizer, max_step = _settings(stages or [model["parameters"]])
    n_affine, n_gelu = _critics(stages)
    if not all(np.array_equal(stage["edit_basis"], basis) for stage in stages):
        raise MapError("its stages edit different subspaces; a map has one gate.")

    def stack(part: str, critics: slice, i: int, *shape: int) -> Floats:
        """Return the i-th weights of these critics of every stage; shape (S, 0, *shape) without critics."""
        values = np.array([[critic["weights"][i] for critic in stage[part][critics]] for stage in stages])
        return values if values.size else np.zeros((len(stages), 0, *shape), np.float32)

    shapes = (d,), (), (0,), ()
    hidden, hidden_bias, last, last_bias = (
        stack("full", slice(n_affine, None), i, *shapes[i]) for i in range(4)
    )
    if n_gelu:  # the score is logit 1 - logit 0
        hidden, hidden_bias, last, last_bias = hidden[:, 0], hidden_bias[:, 0], last[:, 0], last_bias[:, 0]
        last, last_bias = np.diff(last, axis=1), np.diff(last_bias, axis=1)
    anchors = stack("anchors", slice(None), 0, d)
    readings = [_anchor_reading(*both, basis) for both in zip(stages, anchors, strict=True)]
    return StagedMap(
        center=np.zeros(d),
        scale=np.ones(d),
        basis=basis,
        damping=damping,
        radius=max_step * math.sqrt(d),
        stabilizer=stabilizer,
        info=_info("MGPA-Iter (release)", model),
        linear_weight=stack("full", slice(n_affine), 0, d),
        linear_bias=stack("full", slice(n_affine), 1),
        hidden_weight=hidden,
        hidden_bias=hidden_bias,
        output_weight=last,
        output_bias=last_bias,
        anchor_weight=np.array(readings, dtype=anchors.dtype).reshape(anchors.shape),
        anchor_bias=stack("anchors", slice(None), 1),
    )


def _settings(stages: list[dict[str, Any]]) -> list[float]:
    """Return damping, floor and largest step, which all stages must share."""
    names = ("damping", "floor", "max_step")
    settings = {tuple(stage[name] for name in names) for stage in stages}
    if len(settings) > 1:
        raise MapError(f"its stages differ in {', '.join(names)}; a map has one of each.")
    return [float(value) for value in settings.pop()]


def _critics(stages: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the numbers of affine and of GELU critics, which all stages must share."""
    # The kinds of a stage's critics, then those of their anchors.
    kinds = {tuple(critic["kind"] for critic in (*stage["full"], *stage["anchors"])) for stage in stages}
    first = next(iter(kinds), ())
    n_gelu = int("gelu" in first)
    n_affine = len(first) // 2 - n_gelu
    if kinds - {("affine",) * n_affine + ("gelu",) * n_gelu + ("affine",) * (n_affine + n_gelu)}:
        raise MapError("its stages must have the same critics: affine ones, then at most one gelu critic.")
    return n_affine, n_gelu


def _anchor_reading(stage: dict[str, Any], weight: Floats, basis: Floats) -> Floats:
    """Return a stage's anchor weights for the whole input.

    Stored anchors read only q, the part of the input outside the anchor basis.
    """
    A, coefficients = stage["anchor_basis"].astype(np.float64), weight.astype(np.float64)
    if not is_orthonormal(A):
        raise MapError("its anchor basis is not orthonormal.")
    reading = coefficients - (coefficients @ A) @ A.T
    # Anchors that are not frozen depend on the current row; edits must not change their values.
    reach = np.abs(reading @ basis).max(initial=0.0)
    if not stage["frozen_original_q"] and reach > ORTHONORMAL_TOLERANCE * np.linalg.norm(coefficients):
        raise MapError("its anchors move with the edit; it cannot be a map.")
    return np.asarray(reading)


def _info(method: str, model: dict[str, Any]) -> MapInfo:
    parameters, metadata = dict(model["parameters"]), model["state"]["metadata_"]
    counts = {"random_state": "seed", "n_rows": "fit_rows", "n_contrasts": "calibration_pairs"}
    return MapInfo(
        method=method,
        parameters=parameters,
        changed=tuple(parameters),
        gate_rank=model["state"]["basis_"].shape[1],
        library_version=f"authors' code ({SCHEMA})",
        **{name: metadata[key] for name, key in counts.items() if type(metadata.get(key)) is int},
    )
