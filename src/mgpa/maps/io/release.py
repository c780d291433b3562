"""Maps as the paper authors' code saved them: a folder with ``model.json`` and ``model.npz``.

Those adapters work in coordinates that are standardised already, and the folder does not say how, so the
maps read here have center 0 and scale 1. Nothing in a folder is trusted: no pickles, no paths out of it,
no sizes beyond a bound, and every array is held to the shape the model implies.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from ...errors import MapError
from ..affine import AffineMap
from ..base import CorrectionMap, Floats, MapInfo
from ..sequential import ORTHONORMAL_TOLERANCE, StagedMap, is_orthonormal

SCHEMA = "mgpa-release-model-v1"

# The real files are a few megabytes; these bound what a prepared one can make us allocate.
MAX_JSON_BYTES = 2**24
MAX_ARRAY_BYTES = 2**31
MAX_FEATURES = 2**20


def read_release(folder: Path) -> CorrectionMap:
    """Open a model written by the paper authors' code: an AffineMap or a StagedMap of standardised features.

    ``folder`` has ``model.json`` and the array file it names. Anything missing, damaged, inconsistent or of
    another kind is a MapError.
    """
    try:
        return _read(folder)
    except MapError as error:
        raise MapError(f"{folder}: {error}") from error.__cause__
    # Missing keys, wrong types, bad zips, impossible sizes: whichever it is, the folder is not a model.
    except Exception as error:
        raise MapError(f"{folder}: damaged, or not a stored model.") from error


def _read(folder: Path) -> CorrectionMap:
    document = json.loads(_content(folder, "model.json", MAX_JSON_BYTES))
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise MapError(f"model.json does not follow the schema {SCHEMA}.")
    model = document["model"]
    read = {"ClosedFormMGPA": _closed_form, "IterativeMGPA": _iterative}.get(model["kind"])
    if read is None:
        raise MapError("holds another kind of model; supported: ClosedFormMGPA and IterativeMGPA.")
    name = document["state_file"]
    if not PurePosixPath(name).name == PureWindowsPath(name).name == name:
        raise MapError("state_file must be a plain file name.")
    content = _content(folder, name, MAX_ARRAY_BYTES)
    if hashlib.sha256(content).hexdigest() != document["state_sha256"]:
        raise MapError(f"{name} does not match its checksum in model.json.")
    with np.errstate(all="ignore"):  # overflow shows as values the map refuses
        return read(model, _Arrays(content, model["state"]["n_features_in_"]))


def _content(folder: Path, name: str, limit: int) -> bytes:
    path = folder / name
    if not path.is_file():
        raise MapError(f"has no file {name}.")
    if path.stat().st_size > limit:
        raise MapError(f"{name} is larger than {limit} bytes.")
    return path.read_bytes()


class _Arrays:
    """The arrays a model refers to, handed out with their shapes checked and their sizes counted."""

    def __init__(self, content: bytes, n_features: int) -> None:
        if type(n_features) is not int or not 0 < n_features <= MAX_FEATURES:
            raise MapError(f"n_features_in_ must be an integer from 1 to {MAX_FEATURES}.")
        # zipfile stops reading a member at its declared size, so the declared sizes are a bound.
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_ARRAY_BYTES:
                raise MapError(f"its arrays unpack to more than {MAX_ARRAY_BYTES} bytes.")
        self._file = np.load(io.BytesIO(content), allow_pickle=False)
        # Counted per reference, not per array: a thousand stages may all name one large array.
        self._left = MAX_ARRAY_BYTES
        self.n_features = n_features

    def get(self, reference: dict[str, str], *shape: int | None) -> Floats:
        """Return an array; None in ``shape`` matches any length."""
        name = reference["__array__"]
        array = self._file[name]
        self._left -= array.nbytes
        if self._left < 0:
            raise MapError(f"its arrays unpack to more than {MAX_ARRAY_BYTES} bytes.")
        fits = len(array.shape) == len(shape) and all(
            n in (None, m) for n, m in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype not in (np.float32, np.float64):
            raise MapError(f"array {name} is {array.dtype} {array.shape}; expected floats of shape {shape}.")
        return np.asarray(array, order="C")


def _closed_form(model: dict[str, Any], arrays: _Arrays) -> AffineMap:
    """x' = x - Bδ (δ'C⁻¹δ)⁻¹ δ'C⁻¹ (B'x - anchor(x)), whose only coefficient is affine in x."""
    state, d = model["state"], arrays.n_features
    B = arrays.get(state["basis_"], d, None).astype(np.float64)
    r = B.shape[1]
    info = _info("MGPA-CF (release)", model, gate_rank=r)
    if r == 0:
        return AffineMap.identity(d, info=info)
    complement = arrays.get(state["complement_"], d, d - r).astype(np.float64)
    if not is_orthonormal(np.hstack([B, complement])):
        raise MapError("its basis is not orthonormal.")
    delta = arrays.get(state["direction_"], r).astype(np.float64)
    readout = arrays.get(state["metric_inverse_"], r, r).astype(np.float64).T @ delta
    length2 = float(readout @ delta)
    if not length2 > np.finfo(np.float64).tiny:
        raise MapError("its source direction has no length in its metric.")
    readout /= length2
    slope = arrays.get(state["anchor_coef_"], d - r, r).astype(np.float64) @ readout
    intercept = arrays.get(state["anchor_intercept_"], r).astype(np.float64) @ readout
    return AffineMap(
        center=np.zeros(d),
        scale=np.ones(d),
        readout=(B @ readout - complement @ slope)[:, None],
        direction=(B @ delta)[:, None],
        offset=-intercept[None],
        info=info,
    )


def _iterative(model: dict[str, Any], arrays: _Arrays) -> StagedMap:
    state, d = model["state"], arrays.n_features
    basis = arrays.get(state["basis_"], d, None)
    stages = [_fields(record, "ScoreStage") for record in state["stages_"]]
    names = ("damping", "floor", "max_step")
    settings = {tuple(stage[name] for name in names) for stage in stages or [model["parameters"]]}
    if len(settings) > 1:
        raise MapError(f"its stages differ in {', '.join(names)}; a map has one of each.")
    damping, stabilizer, max_step = (float(value) for value in settings.pop())
    tensors = [_stage(stage, basis, arrays) for stage in stages] or [_no_scores(d)]
    if len({tuple(array.shape for array in stage.values()) for stage in tensors}) > 1:
        raise MapError("its stages differ in their critics; a map has the same ones at every stage.")
    stacked: dict[str, Any] = {
        name: np.stack([stage[name] for stage in tensors])[: len(stages)] for name in tensors[0]
    }
    return StagedMap(
        center=np.zeros(d),
        scale=np.ones(d),
        basis=basis,
        damping=damping,
        radius=max_step * math.sqrt(d),
        stabilizer=stabilizer,
        info=_info("MGPA-Iter (release)", model, gate_rank=basis.shape[1]),
        **stacked,
    )


def _no_scores(d: int) -> dict[str, Floats]:
    wide, narrow = np.zeros((0, d), np.float32), np.zeros(0, np.float32)
    weights = dict.fromkeys(("linear_weight", "hidden_weight", "anchor_weight"), wide)
    biases = dict.fromkeys(("linear_bias", "hidden_bias", "output_bias", "anchor_bias"), narrow)
    return {**weights, **biases, "output_weight": np.zeros((0, 0), np.float32)}


def _stage(stage: dict[str, Any], basis: Floats, arrays: _Arrays) -> dict[str, Floats]:
    """Return one stage's tensors, linear scores before the network's."""
    d = arrays.n_features
    if not np.array_equal(arrays.get(stage["edit_basis"], d, None), basis):
        raise MapError("its stages edit different subspaces; a map has one gate.")
    tensors = _no_scores(d)
    linear: list[tuple[Floats, ...]] = []
    network: list[tuple[Floats, ...]] = []
    for full, anchor in zip(stage["full"], stage["anchors"], strict=True):
        critic, target = _fields(full, "CriticState"), _affine(_fields(anchor, "CriticState"), arrays)
        if critic["kind"] == "affine":
            linear.append((*_affine(critic, arrays), *target))
        elif critic["kind"] == "gelu" and not network:
            first, first_bias, last, last_bias = critic["weights"]
            tensors["hidden_weight"] = arrays.get(first, None, d)
            n_hidden = len(tensors["hidden_weight"])
            tensors["hidden_bias"] = arrays.get(first_bias, n_hidden)
            # The score is logit 1 - logit 0.
            tensors["output_weight"] = np.diff(arrays.get(last, 2, n_hidden), axis=0)
            tensors["output_bias"] = np.diff(arrays.get(last_bias, 2))
            network.append(target)
        else:
            raise MapError("a stage may have affine critics and at most one gelu critic.")
    if linear:
        tensors["linear_weight"] = np.stack([critic[0] for critic in linear])
        tensors["linear_bias"] = np.stack([critic[1] for critic in linear])
    targets = [critic[2:] for critic in linear] + network
    # Their anchors read q, the part of the input outside the anchor basis; ours read the input.
    anchor_basis = arrays.get(stage["anchor_basis"], d, None).astype(np.float64)
    if not is_orthonormal(anchor_basis):
        raise MapError("its anchor basis is not orthonormal.")
    coefficients = np.stack([weight for weight, _ in targets])
    weight = coefficients - (coefficients @ anchor_basis) @ anchor_basis.T
    # An anchor that is not frozen reads the current row, which is the same only if edits do not reach it.
    reach = np.abs(weight @ basis).max(initial=0.0)
    if not stage["frozen_original_q"] and reach > ORTHONORMAL_TOLERANCE * np.linalg.norm(coefficients):
        raise MapError("its anchors move with the edit; it cannot be a map.")
    tensors["anchor_weight"] = weight.astype(coefficients.dtype)
    tensors["anchor_bias"] = np.stack([bias for _, bias in targets])
    return tensors


def _affine(critic: dict[str, Any], arrays: _Arrays) -> tuple[Floats, Floats]:
    if critic["kind"] != "affine":
        raise MapError("an anchor must be affine.")
    weight, bias = critic["weights"]
    return arrays.get(weight, arrays.n_features), arrays.get(bias)


def _fields(record: dict[str, Any], kind: str) -> dict[str, Any]:
    if record["__record__"] != kind:
        raise MapError(f"model.json has something else where a {kind} is expected.")
    fields: dict[str, Any] = record["fields"]
    return fields


def _info(method: str, model: dict[str, Any], *, gate_rank: int) -> MapInfo:
    def count(name: str) -> int | None:
        value = model["state"]["metadata_"].get(name)
        return value if type(value) is int else None

    parameters = {
        k: v for k, v in model["parameters"].items() if v is None or isinstance(v, (str, int, float))
    }
    return MapInfo(
        method=method,
        parameters=parameters,
        changed=tuple(parameters),
        random_state=count("seed"),
        n_rows=count("fit_rows"),
        n_contrasts=count("calibration_pairs"),
        gate_rank=gate_rank,
        library_version=f"authors' code ({SCHEMA})",
    )
