"""Real data sets in which several devices recorded the same events: downloads and settings.

The package contains no data. A file is read from ``--data FOLDER`` if it exists. Otherwise it is downloaded
once, checked and cached by pooch, if the licence and the publisher allow this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..labels import is_paired
from ..tables.simulate import simulate_table
from .fetch import (
    FACTS,
    Arrays,
    complexity,
    contents,
    fetch_corn,
    fetch_electrodes,
    fetch_gas_boards,
    fetch_kalunga,
    fetch_phone_watch,
    fetch_wearable_hrv,
)
from .settings import Events, Floats, Setting, rotate
from .worlds import world_settings


@dataclass(frozen=True)
class DataSet:
    """A data set, and the function that makes settings from its file.

    Attributes
    ----------
    name, title : str
        Name in commands and file names, and title on the page.
    file : str
        Its file in ``--data FOLDER``.
    home, license, citation, size : str
        Home page (empty: simulated data), licence, citation, and size of the download.
    settings : function
        A function that takes the arrays in the file and yields the settings.
    fetch : function or None
        A function that downloads the raw files, checks them, and returns the arrays. None: the data can only
        be read from ``--data``.
    digest : str
        Checksum of the result of ``fetch``, by ``mgpa.bench.fetch.contents``. Empty: ``fetch`` checks it.
    """

    name: str
    title: str
    file: str
    home: str
    license: str
    citation: str
    size: str
    settings: Callable[[Arrays], Iterator[Setting]]
    fetch: Callable[[], Arrays] | None = None
    digest: str = ""

    def open(self, folder: Path | None) -> Arrays:
        """Return the arrays, read from the folder or downloaded."""
        path = None if folder is None else folder / self.file
        if path is not None and path.exists():
            if path.suffix == ".csv":
                return complexity(path.read_text("utf-8"))
            with np.load(path) as stored:
                return dict(stored)
        if self.fetch is None:
            raise FileNotFoundError(
                f"{self.name}: put {self.file} in the folder of --data ({self.home}; {self.license})."
            )
        try:
            arrays = self.fetch()
            if self.digest and contents(arrays) != self.digest:
                raise OSError("the download differs from the data behind the page")
        except OSError as error:
            raise OSError(
                f"{self.name}: {error}. Look at {self.home}, or put {self.file} in the folder of --data."
            ) from None
        return arrays


def logarithms(X: NDArray[Any]) -> Floats:
    """Return log(1 + |x|) with the sign of x, for features that span orders of magnitude."""
    return np.asarray(np.sign(X) * np.log1p(np.abs(X.astype(np.float64))))


def blocks(n: int, number: int) -> NDArray[np.str_]:
    """Return the block of each of n samples; blocks take the place of participants."""
    order = np.random.default_rng(3).permutation(n)
    names = np.empty(n, dtype="U8")
    for k, part in enumerate(np.array_split(order, number)):
        names[part] = f"block {k}"
    return names


def aligned(
    X: Floats, device: NDArray[Any], event: NDArray[Any], label: NDArray[Any], participant: NDArray[Any]
) -> Events:
    """Return rows of single recordings as events with one view per device."""
    devices, k = np.unique(device, return_inverse=True)
    _, first, i = np.unique(event, return_index=True, return_inverse=True)
    views = np.full((len(devices), len(first), X.shape[1]), np.nan)
    views[k, i] = X
    return Events(views, tuple(map(str, devices)), label[first], participant[first], event[first])


def _setting(data: str, name: str, events: Events, **options: Any) -> Setting:
    return Setting(data, name, lambda quick: rotate(events, **options))


def _phone_watch(a: Arrays) -> Iterator[Setting]:
    views = np.stack([a["phone"], a["watch"]]).astype(np.float64)
    for name, label in (("five activities", a["label"]), ("walking or not", a["label"] == "WALKING")):
        events = Events(views, ("phone", "watch"), label.astype(str), a["participant"])
        yield _setting("phone_watch", name, events)


def _gas_boards(a: Arrays) -> Iterator[Setting]:
    event = np.array(
        [" ".join(name) for name in zip(a["gas"], a["concentration"], a["replicate"], strict=True)]
    )
    names, of = np.unique(event, return_inverse=True)
    events = aligned(logarithms(a["X"]), a["board"], event, a["gas"], blocks(len(names), 8)[of])
    yield _setting("gas_boards", "which of four gases", events, paired=1.0)


def _wearable_hrv(a: Arrays) -> Iterator[Setting]:
    people = np.unique(a["participant"])
    worn = [
        d for d in np.unique(a["device"]) if len(np.unique(a["participant"][a["device"] == d])) == len(people)
    ]
    rows = np.isin(a["device"], worn)
    device, participant, condition = (a[name][rows] for name in ("device", "participant", "condition"))
    upright = np.where(np.isin(condition, ["standing", "walking", "biking"]), "active", "seated")
    event = np.char.add(np.char.add(participant, " "), condition)
    events = replace(aligned(logarithms(a["X"][rows]), device, event, upright, participant), group=None)
    yield _setting("wearable_hrv", "active or seated", events, paired=1.0)


def _corn(a: Arrays) -> Iterator[Setting]:
    views = np.moveaxis(a["spectra"].astype(np.float64), 1, 0)
    devices = tuple(map(str, a["instruments"]))
    for name, values in zip(a["target_names"], a["targets"].T, strict=True):
        label = np.where(values > np.median(values), "high", "low")
        events = Events(views, devices, label, blocks(len(label), 8), np.arange(len(label)).astype(str))
        yield _setting("corn", str(name), events, paired=1.0)


def _tokens(a: Arrays) -> Iterator[Setting]:
    views = np.stack([a["car"], a["oz"]]).mean(axis=2).astype(np.float64)
    pairs = (("13Hz", "21Hz"), ("13Hz", "17Hz"), ("17Hz", "21Hz"))
    for classes, fade in zip(pairs, (0.005, 0.02, 0.05), strict=True):
        keep = np.isin(a["label"], classes)
        events = Events(views[:, keep], ("average", "Oz"), a["label"][keep], a["participant"][keep])
        name = f"{classes[0]} or {classes[1]}, {fade:g} of the contrast"
        yield _setting("kalunga_tokens", name, events, fade=fade)


#: Frequency bands in Hz: flicker frequencies, their harmonics, and the ranges between them.
BANDS = ((4, 8), (8, 12.5), (12.6, 13.4), (13.5, 16.5), (16.6, 17.4), (17.5, 20.5), (20.6, 21.4),
         (25.6, 26.4), (27, 34), (34, 45))  # fmt: skip


def amplitudes(epochs: Floats, rate: float) -> Floats:
    """Return the root mean square amplitude of each channel in each band, (trials, bands x channels)."""
    spectrum = np.abs(np.fft.rfft(epochs * np.hanning(epochs.shape[-1]), axis=-1))
    f = np.fft.rfftfreq(epochs.shape[-1], 1 / rate)
    bands = [np.sqrt((spectrum[..., (f >= low) & (f < high)] ** 2).mean(axis=-1)) for low, high in BANDS]
    return np.concatenate(bands, axis=-1)


def _amplifiers(a: Arrays) -> Iterator[Setting]:
    """Yield real epochs as two simulated amplifiers would record them."""
    unequal = np.linspace(1.2, 1.7, a["X"].shape[1])
    devices = (("gain 1.4", np.full_like(unequal, 1.4), 0.0), ("gains 1.2 to 1.7", unequal, 0.0),
               ("gains and noise", unequal, 0.5), ("noise", np.ones_like(unequal), 1.0))  # fmt: skip
    for classes in (("13Hz", "21Hz"), ("13Hz", "17Hz")):
        keep = np.isin(a["label"], classes)
        epochs = a["X"][keep].astype(np.float64)
        epochs -= epochs.mean(axis=-1, keepdims=True)
        size, rng = np.median(epochs.std(axis=-1)), np.random.default_rng(1)
        for name, gain, noise in devices:
            views = [
                amplitudes(epochs * g + sd * size * rng.normal(size=epochs.shape), float(a["sfreq"]))
                for g, sd in ((1.0, 0.05), (gain[:, None], noise + 0.05))
            ]
            events = Events(
                np.stack(views), ("amplifier 1", "amplifier 2"), a["label"][keep], a["participant"][keep]
            )
            yield _setting("kalunga_amplifiers", f"{' or '.join(classes)}, {name}", events)


#: Electrodes of the first device and of the second device.
ELECTRODES = {
    "left, right": ("Fp1 F3 C3 P3 O1 T7", "Fp2 F4 C4 P4 O2 T8"),
    "front, back": ("Fp1 F3 F4 Fp2 Fz", "O1 P3 P4 O2 Pz"),
    "Fp1, O1": ("Fp1", "O1"),
    "Cz, T7": ("Cz", "T7"),
}


def _electrodes(a: Arrays) -> Iterator[Setting]:
    person = np.char.add(np.char.add(a["Dataset"], " "), a["Participant"])
    events, event = np.unique(np.stack([person, a["Condition"]]), axis=1, return_inverse=True)
    channels, channel = np.unique(a["Channel"], return_inverse=True)
    table = np.full((events.shape[1], len(channels), a["X"].shape[1]), np.nan)
    table[event, channel] = a["X"]
    for recorded, (name, both) in product(("Lemon Wang", "Lemon", "Wang"), ELECTRODES.items()):
        places = [[channels.tolist().index(c) for c in names.split()] for names in both]
        views = np.stack([table[:, place].reshape(len(table), -1) for place in places])
        keep = np.isfinite(views).all(axis=(0, 2))
        keep &= [any(dataset in who for dataset in recorded.split()) for who in events[0]]
        who, n = np.unique(events[0][keep], return_counts=True)
        keep &= np.isin(events[0], who[n == 2])  # eyes open and closed
        people, of = np.unique(events[0][keep], return_inverse=True)
        group = blocks(len(people), 8)[of]
        both_views = Events(views[:, keep], tuple(name.split(", ")), events[1][keep], group, people[of])
        yield _setting("electrodes", f"{recorded.replace(' ', ' and ')}: {name}", both_views)


def _headsets(a: Arrays) -> Iterator[Setting]:
    events = aligned(a["X"], a["source"], a["pair_id"], a["label"].astype(str), a["participant"])
    yield _setting("headsets", "two headsets", replace(events, group=None))


def _simulate_headsets() -> Arrays:
    """Return the paired rows of the demonstration's table."""
    table = simulate_table(60)
    rows = table.take(is_paired(np.asarray(table.pair_id)))
    columns = ("X", "source", "pair_id", "label", "participant")
    return {name: np.asarray(getattr(rows, name)) for name in columns}


_SETTINGS: dict[str, tuple[Callable[[Arrays], Iterator[Setting]], Callable[[], Arrays] | None]] = {
    "headsets": (_headsets, _simulate_headsets),
    "phone_watch": (_phone_watch, fetch_phone_watch),
    "gas_boards": (_gas_boards, fetch_gas_boards),
    "wearable_hrv": (_wearable_hrv, fetch_wearable_hrv),
    "corn": (_corn, fetch_corn),
    "kalunga_tokens": (_tokens, None),
    "kalunga_amplifiers": (_amplifiers, fetch_kalunga),
    "electrodes": (_electrodes, fetch_electrodes),
}


def data_sets(facts: dict[str, dict[str, Any]]) -> dict[str, DataSet]:
    """Return the data sets of ``_SETTINGS`` with their facts; raise if one is missing on either side."""
    if alone := facts.keys() ^ _SETTINGS.keys():
        names = ", ".join(sorted(alone))
        raise ValueError(
            f"{names}: a data set needs an entry in datasets.toml and a line in _SETTINGS of datasets.py."
        )
    return {
        name: DataSet(
            name,
            settings=settings,
            fetch=fetch,
            **{k: v for k, v in facts[name].items() if isinstance(v, str)},
        )
        for name, (settings, fetch) in _SETTINGS.items()
    }


#: All data sets in page order; facts about them are in ``datasets.toml``.
DATASETS = data_sets(FACTS)


def find_settings(only: Sequence[str], folder: Path | None, quick: bool) -> tuple[list[Setting], list[str]]:
    """Return the requested settings, and one sentence for each data set that is left out.

    ``only`` has names of data sets, or words in names of settings; an empty list selects all. By default, a
    quick benchmark has some worlds and the simulated headsets.
    """
    names = ["worlds", *DATASETS]
    wanted = [name for name in names if name in only] or (
        ["worlds", "headsets"] if quick and not only else names
    )
    words = [word.lower() for word in only if word not in names]
    settings, missing = [], []
    for name in wanted:
        try:
            made = (
                world_settings(quick)
                if name == "worlds"
                else DATASETS[name].settings(DATASETS[name].open(folder))
            )
            settings += [s for s in made if not words or any(word in s.name.lower() for word in words)]
        except (OSError, ImportError) as error:
            package = getattr(error, "name", None)  # that could not be imported
            why = f"needs {package} (pip install {package})" if package else str(error)
            missing.append(f"{name} left out: {why.removeprefix(f'{name}: ')}")
    return settings, missing
