"""Data sets of MOABB, the collection of public brain-computer interface recordings, as trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import UsageError
from ..tables.columns import RESERVED
from ..tables.table import Table
from .devices import with_drawn_roles
from .encoding import Encoder, encode
from .trials import Trials
from .views import View, measure_views


def from_moabb(
    dataset: Any,
    paradigm: Any,
    subjects: Sequence[Any] | None = None,
    *,
    source: str | None = None,
    additional: Sequence[str] = (),
) -> Trials:
    """Return the trials that a MOABB paradigm makes of a data set, in volts.

    The paradigm filters, cuts and, if told to, resamples. Participant ids are unique within a data set only:
    rename them (:meth:`Trials.with_columns`) before joining two data sets (:meth:`Trials.concatenate`).

    Parameters
    ----------
    dataset : moabb.datasets.base.BaseDataset
        Fetched by MOABB if it is not there.
    paradigm : moabb.paradigms.base.BaseParadigm
        With one pass band; a filter bank gives every trial several times.
    subjects : sequence or None
        Of ``dataset.subject_list``; None is all.
    source : str or None
        Which metadata column is the ``source``: "session", "run", or one of ``additional``. None: there is
        no source.
    additional : sequence of str
        Further columns that the data set keeps for its events.

    Returns
    -------
    Trials
        With the columns participant, label (names of events), session, run, the additional ones and source.
    """
    wanted = {"additional_metadata": list(additional)} if additional else {}
    epochs, labels, metadata = paradigm.get_data(dataset, subjects=subjects, return_epochs=True, **wanted)
    if not len(epochs) == len(labels) == len(metadata):
        raise ValueError(
            f"{type(paradigm).__name__} gives {len(epochs)} epochs, {len(labels)} labels and {len(metadata)} "
            "rows of metadata. A bank of filters gives every trial several times: take a paradigm with one "
            "pass band (fmin, fmax)."
        )
    columns = {str(name): np.asarray(metadata[name]) for name in metadata.columns}
    taken = [name for name in columns if name in RESERVED]
    if taken:
        raise ValueError(f"MOABB's metadata have {', '.join(taken)}, which has a meaning of its own here.")
    person = columns.pop("subject")
    if source is not None and source not in columns:
        raise ValueError(f"source is {source!r}; the metadata have {', '.join(columns)}.")
    if source is not None:
        columns["source"] = columns[source]
    columns |= {"participant": person, "label": np.asarray(labels)}
    info = {"dataset": str(dataset.code), "paradigm": type(paradigm).__name__}
    # The epochs' own metadata are the same, or none.
    return replace(Trials.from_epochs(epochs, info=info), columns=columns)


def table_from_moabb(
    dataset: Any,
    paradigm: Any,
    *,
    encoder: Encoder,
    views: Mapping[str, View] | None = None,
    subjects: Sequence[Any] | None = None,
    source: str | None = None,
    additional: Sequence[str] = (),
    roles: Mapping[str, float] | None = None,
    random_state: int = 0,
    verbose: bool = False,
) -> Table:
    """Make one table of a MOABB data set: its trials in several views, embedded, with roles.

    Parameters
    ----------
    dataset, paradigm, subjects, source, additional
        As for :func:`from_moabb`.
    encoder : Encoder
        What embeds the trials; see :func:`mgpa.eeg.encode`.
    views : dict of name to function, or None
        Ways to measure each trial (:func:`mgpa.eeg.measure_views`), which make pairs. None: trials stay as
        they are, ``source`` says what differs between them, and no two are a pair.
    roles : dict of role to share of participants, or None
        See :func:`mgpa.tables.assign_roles`; None is its default, and no roles with fewer than four people.
    random_state : int
        Who gets which role.
    verbose : bool
        Show progress.
    """
    if (views is None) == (source is None):
        raise UsageError(
            "Pass views=, which measure every trial in several ways and make pairs of them, or source=, the "
            "column that tells recordings apart."
        )
    trials = from_moabb(dataset, paradigm, subjects, source=source, additional=additional)
    if views is not None:
        trials = measure_views(trials, views)
    return encode(with_drawn_roles(trials, roles, random_state), encoder, verbose=verbose)
