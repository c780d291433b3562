"""Methods meet tables: fit one on a table's rows, correct a table's rows with a map."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from .maps import CorrectionMap
from .tables import Table
from .tokens import TokenMean, token_mean, transform_tokens


def fit_on(model: Any, fit: Table, val: Table | None = None, pairs: Any = None, **more: Any) -> Any:
    """Fit a clone of a method on a table's rows, with everything the table knows that it can use.

    Parameters
    ----------
    model : estimator
        Fitted on token means if the table holds tokens.
    fit, val : Table
        Rows to fit on, and held-out rows for methods that stop by them.
    pairs : tuple (A, B) or None
        Calibration pairs; None takes those of ``fit``'s ``pair_id``.
    **more
        Anything else for the method's ``fit``.
    """
    tokens = fit.X.ndim == 3 and not isinstance(model, TokenMean)
    own = TokenMean(clone(model)) if tokens else clone(model)
    known: dict[str, Any] = {"source": fit.source, "pairs": pairs, **more}
    if pairs is None:
        known["pair_id"] = fit.pair_id
    if val is not None and len(val):
        known |= {"X_val": val.X, "source_val": val.source}
    target = own.estimator if isinstance(own, TokenMean) else own
    if fit.participant is not None and has_fit_parameter(target, "groups"):
        known["groups"] = fit.participant
    return own.fit(fit.X, fit.label, **known)


def map_of(model: Any, info: Mapping[str, Any], participants: Any = None) -> CorrectionMap:
    """Return a fitted method's map, which remembers where its embeddings come from.

    Parameters
    ----------
    model : fitted estimator
    info : dict
        Of the table: the encoder it names.
    participants : array or None
        Who was fitted on; kept as digests, so that an audit can tell whether it judges the same people.
    """
    m: CorrectionMap = model.to_map()
    known: dict[str, Any] = {}
    if info.get("encoder"):
        known["encoder"] = dict(info["encoder"])
    if participants is not None:
        known["people"] = tuple(sorted(map(person_digest, np.unique(participants).tolist())))
    return replace(m, info=replace(m.info, **known)) if known else m


def person_digest(name: Any) -> str:
    """Return a short digest of a participant's name: enough to recognise who is known already."""
    return hashlib.sha256(str(name).encode()).hexdigest()[:12]


# What a run found out, and which release of a library ran it: the weights and settings are the encoder.
_INCIDENTAL = ("precision_used", "precision_difference", "braindecode")


def _essence(encoder: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells one encoder from another; weights are the same if their checksum is."""
    found = {name: value for name, value in encoder.items() if name not in _INCIDENTAL}
    weights = found.get("checkpoint")
    if isinstance(weights, Mapping) and "sha256" in weights:
        found["checkpoint"] = weights["sha256"]
    return found


def require_same_encoder(m: CorrectionMap, table: Table) -> None:
    """Raise if both the map and the table say which encoder they are of, and it is not the same."""
    if not table.info.get("encoder") or not m.info.encoder:
        return
    found, expected = _essence(table.info["encoder"]), _essence(m.info.encoder)
    if found == expected:
        return
    differing = [k for k in {**expected, **found} if found.get(k) != expected.get(k)]
    raise ValueError(
        "The table holds embeddings of another encoder than the map was fitted on: "
        + "; ".join(f"{k} {found.get(k)!r} instead of {expected.get(k)!r}" for k in differing)
        + "."
    )


def corrected_rows(m: CorrectionMap, table: Table) -> NDArray[Any]:
    """Return a table's embeddings or tokens, corrected; source-aware maps read its source column.

    Raw features are first brought into the map's coordinates, if it has any.
    """
    require_same_encoder(m, table)
    if m.coordinates is not None and not m.coordinates.applied_to(table):
        table = m.coordinates.of(table)
    if not len(table):
        return table.X
    known: dict[str, Any] = {} if m.source_blind else {"source": table.source}
    if table.X.ndim == 3:
        return np.asarray(transform_tokens(m, table.X, **known))
    return np.asarray(m.transform(table.X, **known))


def vectors(table: Table) -> NDArray[Any]:
    """Return one vector a row: the embedding, or the mean of the tokens."""
    return np.asarray(token_mean(table.X)) if table.X.ndim == 3 else table.X
