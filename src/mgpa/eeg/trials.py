"""Trials: signals cut around events, with channels, sampling rate and columns.

Data sets and MNE epochs are converted to trials, which can be preprocessed, measured under several views, and
embedded by an encoder to make a table. Signals are in volts, as in MNE.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from .._common.checks import require_finite
from ..errors import TableError, printable
from ..tables.columns import COLUMNS, Columns, changed_columns, check_columns, check_other, require_alike
from ..tables.table import Table


@dataclass(frozen=True, repr=False, eq=False)
class Trials:
    """Signals of n trials, and columns with facts about each.

    Parameters
    ----------
    data : (n, channels, samples) array
        In volts; float32 or float64.
    channels : sequence of str
        Names, as in a standard montage.
    sfreq : float
        Samples per second.
    tmin : float
        Time of the first sample, in seconds after the event.
    columns : dict of name to (n,) array
        As in a :class:`mgpa.tables.Table`: source, participant, role, label, pair_id, and any others.
    info : dict
        Origin of the trials.
    """

    data: NDArray[Any]
    channels: tuple[str, ...]
    sfreq: float
    tmin: float = 0.0
    columns: Columns = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data = np.asarray(self.data)
        if data.ndim != 3 or 0 in data.shape[1:]:
            raise ValueError(f"data has shape {data.shape}; expected (trials, channels, samples).")
        if data.dtype not in (np.float32, np.float64):
            raise ValueError(f"data has dtype {data.dtype}; convert it to volts as float32 or float64.")
        require_finite(data.reshape(len(data), data.shape[1] * data.shape[2]), "data")
        channels = tuple(str(name) for name in self.channels)
        if len(channels) != data.shape[1] or len(set(channels)) != len(channels):
            raise ValueError(f"{data.shape[1]} channels need as many different names; got {channels}.")
        if not (np.isfinite(self.sfreq) and self.sfreq > 0):
            raise ValueError(f"sfreq is {self.sfreq!r}; it must be a positive number of samples per second.")
        if "X" in self.columns:
            raise ValueError("A column is called 'X', which in a table is the embedding; rename it.")
        columns = check_columns(self.columns, len(data))
        columns |= {
            str(name): check_other(values, len(data), name)
            for name, values in self.columns.items()
            if name not in COLUMNS
        }
        fields = {"data": data, "channels": channels, "columns": columns}
        for name, value in (fields | {"sfreq": float(self.sfreq), "tmin": float(self.tmin)}).items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        n, c, t = self.data.shape
        names = ", ".join(self.columns) or "no columns"
        return printable(f"<Trials: {n} of {c} channels x {t} samples at {self.sfreq:g} Hz, with {names}>")

    @property
    def layout(self) -> str:
        """Channels, samples and rate, in words: trials must share them to be joined."""
        return (
            f"channels {', '.join(self.channels)} and {self.data.shape[2]} samples ({self.data.dtype}) at "
            f"{self.sfreq} Hz from {self.tmin} s"
        )

    @property
    def times(self) -> NDArray[np.float64]:
        """Time of every sample, in seconds after the event."""
        return self.tmin + np.arange(self.data.shape[2]) / self.sfreq

    def take(self, rows: Any) -> Self:
        """Return some trials: a slice, positions or a mask."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return replace(self, data=self.data[rows], columns=columns)

    def index(self, channels: Sequence[str]) -> list[int]:
        """Return the positions of channels (case is ignored), or raise and name the missing ones."""
        place = {plain_name(name): i for i, name in enumerate(self.channels)}
        place |= {name: i for i, name in enumerate(self.channels)}
        names = [name if name in place else plain_name(name) for name in channels]
        if missing := [name for name, plain in zip(channels, names, strict=True) if plain not in place]:
            raise ValueError(f"No channel {', '.join(missing)}. Channels: {', '.join(self.channels)}.")
        return [place[name] for name in names]

    def pick(self, channels: Sequence[str]) -> Self:
        """Return these channels, in this order."""
        return replace(self, data=self.data[:, self.index(channels)], channels=tuple(channels))

    def with_columns(self, **columns: Any) -> Self:
        """Return the trials with columns added or replaced: one value each, one for all, or None to drop."""
        return replace(self, columns=changed_columns(self.columns, columns, len(self)))

    @classmethod
    def concatenate(cls, trials: Iterable[Trials]) -> Self:
        """Join several trials into one, with the ``info`` of the first."""
        trials = list(trials)
        if not trials:
            raise ValueError("Expected trials to join; got none.")
        first = trials[0]
        for i, other in enumerate(trials):
            if other.layout != first.layout:
                raise ValueError(
                    f"Trials {i} have {other.layout}; the first have {first.layout}. Trials.pick, "
                    "mgpa.eeg.resample and mgpa.eeg.crop make them equal."
                )
            if other.columns.keys() != first.columns.keys():
                raise ValueError(
                    f"Trials {i} have columns {', '.join(other.columns)}; the first have "
                    f"{', '.join(first.columns)}. Trials.with_columns adds a column, or removes it (None)."
                )
            require_alike(first.columns, other.columns, f"Trials {i}")
        columns = {name: np.concatenate([t.columns[name] for t in trials]) for name in first.columns}
        return replace(first, data=np.concatenate([t.data for t in trials]), columns=columns)  # type: ignore[return-value]

    @classmethod
    def from_epochs(cls, epochs: Any) -> Self:
        """Make trials from the EEG channels of MNE epochs (or a list of them), with metadata as columns.

        Bad channels are kept, with a warning, because all participants need the same channels.

        Without metadata, ``label`` is the name of the event and ``participant`` the subject's ``his_id``.
        The epochs are not changed: data are read, and bad epochs dropped, in a copy.
        """
        from ..tables.frames import epochs_columns

        advice = "Trials(data, channels, sfreq) takes an array, mgpa.eeg.table_from_epochs several devices."
        several = loaded_epochs(epochs, "epochs", advice)
        columns = epochs_columns(several)
        parts = []
        for one in several:
            names = eeg_channels(one)
            if bad := [name for name in names if name in one.info["bads"]]:
                warnings.warn(
                    f"{', '.join(bad)} is marked as bad but used; interpolate it (Epochs.interpolate_bads) "
                    "or leave it out (Trials.pick).",
                    stacklevel=2,
                )
            parts.append(cls(one.get_data(picks=names), tuple(names), one.info["sfreq"], one.times[0]))
        return replace(cls.concatenate(parts), columns=columns)


def plain_name(channel: str) -> str:
    """Return a channel's name in lower case; T3, T4, T5, T6 become T7, T8, P7, P8."""
    lower = channel.strip().lower()
    return {"t3": "t7", "t4": "t8", "t5": "p7", "t6": "p8"}.get(lower, lower)


def eeg_channels(epochs: Any) -> list[str]:
    """Return the names of the EEG channels of MNE epochs."""
    kinds = epochs.get_channel_types()
    names = [name for name, kind in zip(epochs.ch_names, kinds, strict=True) if kind == "eeg"]
    if not names:
        others = ", ".join(sorted(set(kinds)))
        raise ValueError(f"The epochs have no EEG channels, only {others}; see Epochs.set_channel_types.")
    return names


def loaded_epochs(epochs: Any, name: str, advice: str) -> list[Any]:
    """Return MNE epochs, or a list of them, loaded into memory, which drops bad epochs.

    A warning names projectors that were not applied, such as an average reference.
    """
    several = list(epochs) if isinstance(epochs, (list, tuple)) else [epochs]
    if not several:
        raise TableError(f"The list of {name} is empty.")
    for one in several:
        if not (hasattr(one, "get_data") and hasattr(one, "events")):
            kind = type(one).__name__
            raise TypeError(
                f"{name} is a {kind}; expected mne.Epochs (mne.read_epochs reads a file), or a list of them. "
                f"{advice}"
            )
        waiting = [projector["desc"] for projector in one.info["projs"] if not projector["active"]]
        if waiting:
            warnings.warn(
                f"{', '.join(waiting)} is a projector that was not applied; apply it with "
                "Epochs.apply_proj, or remove it with Epochs.del_proj.",
                stacklevel=3,
            )
    return [one if one.preload else one.copy().load_data() for one in several]


def standard_montage() -> Any:
    """Return MNE's standard 10-05 positions; the name depends on the version of MNE."""
    import mne

    name = "colin27_1005"
    montages = mne.channels.get_builtin_montages()
    return mne.channels.make_standard_montage(name if name in montages else "standard_1005")


class Encoder(Protocol):
    """The interface of encoders, which turn trials into embeddings."""

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that the embeddings depend on, as JSON."""

    def embed(self, trials: Any, *, verbose: bool = False) -> NDArray[Any]:
        """Return an embedding (n, d), or tokens (n, t, d), of trials or MNE epochs."""


def as_trials(trials: Any) -> Trials:
    """Return trials, converted from MNE epochs (or a list of them) if necessary."""
    return trials if isinstance(trials, Trials) else Trials.from_epochs(trials)


def encode(trials: Any, encoder: Encoder, *, verbose: bool = False) -> Table:
    """Embed trials and return a table with their columns.

    Parameters
    ----------
    trials : Trials, mne.Epochs, or a list of mne.Epochs
        Signals with their columns.
    encoder : Encoder
        An encoder of :mod:`mgpa.eeg.features`, a :class:`mgpa.eeg.TorchEncoder`, or any object with
        ``identity`` and ``embed``. ``info["encoder"]`` of the table describes the encoder.
    verbose : bool
        Show progress.

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa.eeg.features import TemporalBins
    >>> trials = Trials(np.ones((2, 3, 128)), ["Oz", "O1", "O2"], 128.0, columns={"label": [0, 1]})
    >>> encode(trials, TemporalBins(0, 0.75, 0.05))
    <Table: 2 rows of 45 float32, with label>
    """
    trials = as_trials(trials)
    X = np.asarray(encoder.embed(trials, verbose=verbose))
    if X.ndim not in (2, 3) or len(X) != len(trials):
        raise ValueError(
            f"{type(encoder).__name__}.embed returned shape {X.shape} for {len(trials)} trials; expected "
            "one embedding (n, d) or one set of tokens (n, t, d) per trial."
        )
    if X.dtype == np.float16:
        X = X.astype(np.float32)  # convert half precision without loss
    info: dict[str, Any] = {"encoder": encoder.identity}
    if X.ndim == 2 and hasattr(encoder, "feature_names"):
        info["feature_names"] = encoder.feature_names(trials.channels)
    return Table.from_columns({"X": X, **trials.columns}, trials.info | info)
