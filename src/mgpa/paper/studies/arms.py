"""The arms of a study: the methods of its [methods] section, as unfitted estimators."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from sklearn.base import clone

from ...baselines import list_methods, make_method
from ...errors import StudyError
from ...estimators.closed_form import ClosedFormMGPA
from ...estimators.tokens import TOKENS, gate_of
from ...gate import FullGate, PCAGate, RandomGate
from ...tables.fitting import fit_table
from .config import MethodSection, Study
from .each_token import EachToken
from .splits import Split, planned_gate


def make_arms(study: Study, split: Split) -> dict[str, Any]:
    """Return the unfitted methods of a study for one split: an estimator, or a list of them, for each name.

    The rows are already in the study's coordinates, so no method standardises them again. Control gates have
    the rank of the measurement gate, and their anchors see the complement of the measurement gate.
    """
    return {name: make_arm(study, split, name, method) for name, method in study.methods.items()}


def recipes(method: MethodSection) -> list[dict[str, Any]]:
    """Return every combination of parameters in a method's grid; without a grid, one empty combination."""
    return [dict(zip(method.grid, values, strict=True)) for values in product(*method.grid.values())]


def unfitted(name: str, method: MethodSection, recipe: Mapping[str, Any] | None = None) -> Any:
    """Return the unfitted estimator of a method."""
    acts_on = {e.name: e.acts_on for e in list_methods()}.get(method.method, "embeddings")
    if acts_on != "embeddings":
        does = "corrects signals" if acts_on == "signals" else "predicts labels"
        raise StudyError(f"methods.{name}: {method.method} {does}; studies correct embeddings.")
    try:
        model = make_method(method.method, **method.parameters | dict(recipe or {}))
    except (TypeError, ValueError) as error:
        raise StudyError(f"methods.{name}: {error}") from None
    if "anchor_gate" not in model.get_params() and method.gate != "measurement":
        raise StudyError(f"methods.{name}: control gates are for iterative_mgpa.")
    return model


def make_arm(
    study: Study, split: Split, name: str, method: MethodSection, recipe: Mapping[str, Any] | None = None
) -> Any:
    """Return one method as an estimator, or as a list of them (one for each random gate)."""
    model = unfitted(name, method, recipe)
    parameters = model.get_params()
    if "standardize" in parameters and "standardize" not in method.parameters:
        model.set_params(standardize=False)
    if method.tokens != "mean":  # by default, tables of tokens are corrected through the token mean
        if "gate" in parameters:
            model.set_params(gate=planned_gate(study))
        return (TOKENS | {"each": EachToken})[method.tokens](model)
    if "gate" not in parameters:
        return model
    measured: Any = planned_gate(study) if split.gate is None else split.gate
    if method.gate == "measurement":
        return model.set_params(gate=measured)
    rank = measured_rank(study, split)
    gates: dict[str, list[Any]] = {
        "pca": [PCAGate(rank)],
        "random": [RandomGate(rank, random_state=seed) for seed in method.gate_seeds],
        "full": [FullGate()],
    }
    fits = [clone(model).set_params(gate=gate, anchor_gate=measured) for gate in gates[method.gate]]
    return fits if method.gate == "random" else fits[0]


def measured_rank(study: Study, split: Split) -> int:
    """Return the rank of a split's measurement gate, for any number of sources."""
    if split.gate is not None:
        return int(split.gate.basis.shape[1])
    model = ClosedFormMGPA(planned_gate(study), standardize=False)
    return int(gate_of(fit_table(model, split.table.rows("FIT"), pairs=split.contrasts)).rank_)


def pairs_by_method(study: Study, split: Split) -> dict[str, Any] | None:
    """Return the calibration pairs of each method, or None if all pairs are among the rows."""
    if split.contrasts is None:
        return None
    if split.endpoints is None and any(m.pairs == "endpoints" for m in study.methods.values()):
        raise StudyError("pairs = 'endpoints' needs endpoints that differ from contrasts.")
    kinds = {"contrasts": split.contrasts, "endpoints": split.endpoints}
    return {name: kinds[method.pairs] for name, method in study.methods.items()}
