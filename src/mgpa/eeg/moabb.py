"""Trials from data sets of MOABB, the collection of public brain-computer interface recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .trials import Trials


def from_moabb(
    dataset: Any,
    paradigm: Any,
    subjects: Sequence[Any] | None = None,
    *,
    source: str | None = None,
    additional: Sequence[str] = (),
) -> Trials:
    """Return the trials of a data set, filtered and cut by a MOABB paradigm, in volts.

    Columns are participant, label (names of events), session, run, the additional ones and source.
    Participant ids are unique within a data set only: rename them (:meth:`Trials.with_columns`) before
    joining two data sets (:meth:`Trials.concatenate`). MOABB does not say which trials show one event, so
    there are no pairs: views that can be computed give some (:func:`mgpa.eeg.measure_views`), or add your own
    with ``trials.with_columns(pair_id=...)``.

    Parameters
    ----------
    dataset : moabb.datasets.base.BaseDataset
        The data set; MOABB downloads it if necessary.
    paradigm : moabb.paradigms.base.BaseParadigm
        A paradigm with one pass band; a filter bank would return every trial several times.
    subjects : sequence or None
        Subjects of ``dataset.subject_list``; None is all.
    source : str or None
        The metadata column for ``source``: "session", "run", or one of ``additional``.
    additional : sequence of str
        Further columns of the events in the data set.
    """
    wanted = {"additional_metadata": list(additional)} if additional else {}
    epochs, labels, metadata = paradigm.get_data(dataset, subjects=subjects, return_epochs=True, **wanted)
    if not len(epochs) == len(labels) == len(metadata):
        raise ValueError(
            f"{type(paradigm).__name__} gives {len(epochs)} epochs, {len(labels)} labels and {len(metadata)} "
            "rows of metadata. A filter bank repeats every trial: use a paradigm with one pass band "
            "(fmin, fmax)."
        )
    columns = {str(name): np.asarray(metadata[name]) for name in metadata.columns}
    columns |= {"participant": columns.pop("subject"), "label": np.asarray(labels)}
    if source is not None:
        if source not in columns:
            raise ValueError(f"source is {source!r}; the metadata have {', '.join(columns)}.")
        columns["source"] = columns[source]
    info = {"dataset": str(dataset.code), "paradigm": type(paradigm).__name__}
    # Epochs have the same metadata, or none.
    return replace(Trials.from_epochs(epochs), columns=columns, info=info)
