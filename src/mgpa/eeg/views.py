"""Measurement views: the same trials with another reference, rate or scale.

A view is a function from trials to trials. :func:`measure_views` applies several of them to the same trials
and gives all views of a trial one ``pair_id``, so that their embeddings are true pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ..errors import TableError
from ..labels import is_paired
from ..tables.table import Table
from .trials import Trials

View = Callable[[Trials], Trials]


def rereference(trials: Trials, reference: str | Sequence[str]) -> Trials:
    """Return the trials with another reference.

    Parameters
    ----------
    trials : Trials
        Trials with any common reference of all channels.
    reference : str or sequence of str
        "average" is the mean of all channels. A single channel becomes zero and is kept. For several
        channels, the reference is their mean.

    Examples
    --------
    >>> import numpy as np
    >>> trials = Trials(np.array([[[1.0], [2.0], [6.0]]]), ["Oz", "O1", "O2"], 250.0)
    >>> rereference(trials, "average").data.ravel().tolist()
    [-2.0, -1.0, 3.0]
    >>> rereference(trials, "Oz").data.ravel().tolist()
    [0.0, 1.0, 5.0]
    """
    if reference == "average":
        named = list(trials.channels)
        if len(named) < 2:
            raise ValueError(f"An average reference of {named[0]} alone is zero; it needs more channels.")
    else:
        named = [reference] if isinstance(reference, str) else list(reference)
        if not named:
            raise ValueError("reference names no channel; give one, several, or 'average'.")
    at = trials.data[:, trials.index(named)].mean(axis=1, keepdims=True, dtype=np.float64)
    return replace(trials, data=(trials.data - at).astype(trials.data.dtype))


def resample(trials: Trials, sfreq: float) -> Trials:
    """Return the trials at another sampling rate; frequencies above the new Nyquist frequency are removed.

    This uses :func:`scipy.signal.resample_poly`, which computes every sample at its exact time. (Resampling
    by FFT does so only if the new number of samples is an integer, which matters for short trials.) The first
    sample keeps its time.

    Examples
    --------
    >>> import numpy as np
    >>> resample(Trials(np.zeros((1, 2, 710)), ["Oz", "O1"], 250.0), 256.0)
    <Trials: 1 of 2 channels x 728 samples at 256 Hz, with no columns>
    """
    from scipy.signal import resample_poly

    ratio = Fraction(sfreq / trials.sfreq).limit_denominator(10_000)
    if abs(float(ratio) * trials.sfreq - sfreq) > 1e-6 * sfreq:
        raise ValueError(
            f"{trials.sfreq:g} to {sfreq:g} Hz must be a ratio of integers up to 10000; take a rounder rate."
        )
    # Pad with a line through the ends of a trial, because offsets and slopes would cause ringing.
    signal = resample_poly(
        trials.data.astype(np.float64), ratio.numerator, ratio.denominator, axis=2, padtype="line"
    )
    return replace(trials, data=signal.astype(trials.data.dtype), sfreq=float(sfreq))


def zscore_channels(trials: Trials) -> Trials:
    """Remove each trial's mean from each channel and divide by its standard deviation.

    A constant channel becomes zero.
    """
    data = trials.data.astype(np.float64)
    centred = data - data.mean(axis=-1, keepdims=True)
    scaled = centred / np.maximum(data.std(axis=-1, keepdims=True), 1e-12)
    return replace(trials, data=scaled.astype(trials.data.dtype))


def crop(trials: Trials, start: int, stop: int) -> Trials:
    """Keep samples ``start`` to ``stop`` - 1 of each trial."""
    samples = trials.data.shape[2]
    if not 0 <= start < stop <= samples:
        raise ValueError(f"start and stop are {start} and {stop}, but trials have {samples} samples.")
    # Rounded to nanoseconds, so that crops with equal start have equal times.
    tmin = round(trials.tmin + start / trials.sfreq, 9)
    return replace(trials, data=trials.data[:, :, start:stop], tmin=tmin)


def measure_views(trials: Trials, measured: Mapping[str, View]) -> Trials:
    """Return several views of the same trials as one set of paired trials.

    Parameters
    ----------
    trials : Trials
        Trials without pairs.
    measured : dict of name to function
        Functions that return all trials in the same order under one view. All must return the same channels
        and times.

    Returns
    -------
    Trials
        The first trial in all views, then the second, and so on. ``source`` is the name of the view, and
        ``pair_id`` is the same for all views of a trial. The original source, if any, is the column
        ``recorded_source``.

    Examples
    --------
    >>> import numpy as np
    >>> trials = Trials(np.array([[[1.0], [3.0]], [[5.0], [9.0]]]), ["Oz", "O1"], 250.0)
    >>> car, oz = (lambda t: rereference(t, "average")), (lambda t: rereference(t, "Oz"))
    >>> both = measure_views(trials, {"car": car, "oz": oz})
    >>> both.columns["source"].tolist(), both.columns["pair_id"].tolist()
    (['car', 'oz', 'car', 'oz'], [0, 0, 1, 1])
    >>> both.data[:, 1, 0].tolist()
    [1.0, 2.0, 2.0, 4.0]
    """
    columns = dict(trials.columns)
    pair_id = columns.pop("pair_id", None)
    if pair_id is not None and is_paired(pair_id).any():
        raise ValueError(
            f"{int(is_paired(pair_id).sum())} of {len(trials)} trials already have a pair_id, which "
            "views would replace. Take one source, or drop the pairs: trials.with_columns(pair_id=None)."
        )
    if "source" in columns:
        if "recorded_source" in columns:
            raise ValueError("The trials have a recorded_source, where their source would go; rename it.")
        columns["recorded_source"] = columns.pop("source")
    views = {name: view(trials) for name, view in measured.items()}
    first_name, first = next(iter(views.items()))
    for name, view in views.items():
        if len(view) != len(trials) or not _same_columns(view, trials):
            raise ValueError(
                f"View {name!r} returned {len(view)} trials with {', '.join(view.columns) or 'no columns'}; "
                f"expected all {len(trials)}, in the same order, with the same columns."
            )
        if view.layout != first.layout:
            raise ValueError(
                f"View {name!r} has {view.layout}; view {first_name!r} has {first.layout}. Resample, or pick "
                "channels, in all of them alike: views are compared sample by sample."
            )
    n, k = len(trials), len(views)
    data = np.stack([view.data for view in views.values()], axis=1)
    stacked = {name: np.repeat(values, k) for name, values in columns.items()}
    stacked |= {"source": np.tile(list(views), n), "pair_id": np.repeat(np.arange(n), k)}
    return replace(first, data=data.reshape(n * k, *data.shape[2:]), columns=stacked, info=trials.info)


def _same_columns(view: Trials, trials: Trials) -> bool:
    return view.columns.keys() == trials.columns.keys() and all(
        np.array_equal(view.columns[name], values, equal_nan=values.dtype.kind == "f")
        for name, values in trials.columns.items()
    )


def scale_table(table: Table, gamma: float) -> Table:
    """Return a table of pairs with scaled contrasts: midpoint ∓ γ/2 (B − A).

    The paper's controlled study keeps half a percent of a reference change (γ = .005); its S is .683.

    Parameters
    ----------
    table : Table
        A table with two sources in which every row is in a pair.
    gamma : float
        1 keeps the views; 0 replaces both by their midpoint. Stored in ``info["gamma"]``.

    Examples
    --------
    >>> import numpy as np
    >>> table = Table(np.array([[0.0], [4.0]]), source=["car", "oz"], pair_id=[7, 7])
    >>> scale_table(table, 0.5).X.ravel().tolist()
    [1.0, 3.0]
    """
    if not (np.isfinite(gamma) and gamma >= 0):
        raise ValueError(f"gamma is {gamma!r}; expected a number that is not negative.")
    views = table.require("source").require_pairs().paired_views()
    if views is None or 2 * len(views[0]) != len(table):
        raise TableError(
            "Some rows are in no pair of two sources (the sources are "
            f"{', '.join(map(str, table.sources))}), and have no contrast to scale; drop these rows."
        )
    X = np.empty_like(table.X)
    A, B = table.X[views[0]], table.X[views[1]]
    middle, half = (A + B) * 0.5, (B - A) * (float(gamma) / 2)
    X[views[0]], X[views[1]] = middle - half, middle + half
    return replace(table, X=X, info=table.info | {"gamma": float(gamma)})
