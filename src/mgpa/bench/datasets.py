"""Real data sets in which several devices recorded the same events: where they are, and their settings.

Nothing is shipped. A file is read from ``--data FOLDER`` if it is there; else it is fetched once, checked and
cached by pooch, where the licence and the publisher allow a plain download.
"""

from __future__ import annotations

import csv
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from .._common.extras import missing
from ..labels import is_paired
from ..tables.simulate import simulate_table
from .settings import Events, Floats, Setting, rotate
from .worlds import world_settings

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class DataSet:
    """A data set, and how settings are made of its file.

    Attributes
    ----------
    name, title : str
        Its name in commands and file names, and on the page.
    file : str
        Its file in ``--data FOLDER``.
    home, license, citation, size : str
        Where it is described (empty: it is simulated), what may be done with it, what to cite, and how large
        the download is.
    settings : function
        Of the file's arrays; yields the settings.
    fetch : function or None
        Downloads the raw files, checks them, and returns the arrays. None: only from ``--data``.
    digest : str
        Of what ``fetch`` returns, by :func:`contents`. Empty: the raw files' digests are enough.
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
        """Return the arrays, from the folder or fetched."""
        path = None if folder is None else folder / self.file
        if path is not None and path.exists():
            if path.suffix == ".csv":
                return _complexity(path.read_text("utf-8"))
            with np.load(path) as stored:
                return dict(stored)
        if self.fetch is None:
            raise FileNotFoundError(
                f"{self.name}: put {self.file} in the folder of --data ({self.home}; {self.license})."
            )
        arrays = self.fetch()
        if self.digest and contents(arrays) != self.digest:
            raise OSError(
                f"{self.name}: the download differs from what the page was measured on. Look at "
                f"{self.home}, or put {self.file} in the folder of --data."
            )
        return arrays


def contents(arrays: Arrays) -> str:
    """Return a digest of arrays: of numbers in single precision, and of text."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = arrays[name]
        digest.update(name.encode())
        text = values.dtype.kind in "US"
        digest.update("\n".join(values.ravel()).encode() if text else values.astype("<f4").tobytes())
    return digest.hexdigest()


def logarithms(X: NDArray[Any]) -> Floats:
    """Return log(1 + |x|) with the sign of x, for features of many sizes."""
    return np.asarray(np.sign(X) * np.log1p(np.abs(X.astype(np.float64))))


def blocks(n: int, number: int) -> NDArray[np.str_]:
    """Return a block for each of n samples, which takes the place of its participant."""
    order = np.random.default_rng(3).permutation(n)
    names = np.empty(n, dtype="U8")
    for k, part in enumerate(np.array_split(order, number)):
        names[part] = f"block {k}"
    return names


def aligned(
    X: Floats, device: NDArray[Any], event: NDArray[Any], label: NDArray[Any], participant: NDArray[Any]
) -> Events:
    """Return rows of single recordings as events with a view for each device."""
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


#: Bands of the flicker frequencies, their harmonics, and what lies between, in Hz.
BANDS = ((4, 8), (8, 12.5), (12.6, 13.4), (13.5, 16.5), (16.6, 17.4), (17.5, 20.5), (20.6, 21.4),
         (25.6, 26.4), (27, 34), (34, 45))  # fmt: skip


def amplitudes(epochs: Floats, rate: float) -> Floats:
    """Return the root mean square amplitude of every channel in every band, (trials, bands x channels)."""
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


#: Electrodes that are one device, and those that are the other.
ELECTRODES = {
    "left, right": ("Fp1 F3 C3 P3 O1 T7", "Fp2 F4 C4 P4 O2 T8"),
    "front, back": ("Fp1 F3 F4 Fp2 Fz", "O1 P3 P4 O2 Pz"),
    "Fp1, O1": ("Fp1", "O1"),
    "Cz, T7": ("Cz", "T7"),
}
COMPLEXITY = ("SFD", "AttEn", "SVDEn", "Hjorth")


def _complexity(text: str) -> Arrays:
    """Return the columns of NeuroKit's table of resting EEG that the settings need."""
    column = _rows(text)
    columns = {name: column(name) for name in ("Dataset", "Participant", "Condition", "Channel")}
    return columns | {"X": _numbers([column(name) for name in COMPLEXITY])}


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
        shown = Events(views[:, keep], tuple(name.split(", ")), events[1][keep], group, people[of])
        yield _setting("electrodes", f"{recorded.replace(' ', ' and ')}: {name}", shown)


def _headsets(a: Arrays) -> Iterator[Setting]:
    events = aligned(a["X"], a["source"], a["pair_id"], a["label"].astype(str), a["participant"])
    yield _setting("headsets", "two headsets", replace(events, group=None))


def _simulate_headsets() -> Arrays:
    """Return the paired rows of the demonstration's table."""
    table = simulate_table(60)
    rows = table.take(is_paired(np.asarray(table.pair_id)))
    columns = ("X", "source", "pair_id", "label", "participant")
    return {name: np.asarray(getattr(rows, name)) for name in columns}


#: Where raw files are. Tests put a local server in their place.
PYPI = "https://files.pythonhosted.org"
GITHUB = "https://raw.githubusercontent.com"
EIGENVECTOR = "https://eigenvector.com"


def _retrieve(url: str, sha256: str | None) -> Path:
    """Return a file of the web, downloaded once, checked and cached."""
    try:
        import pooch
    except ImportError:
        raise missing("Fetching a data set", "pooch") from None
    try:
        known = sha256 and f"sha256:{sha256}"
        return Path(pooch.retrieve(url, known_hash=known, path=pooch.os_cache("mgpa")))
    except ValueError as error:  # another digest
        raise OSError(f"{url}: {error}") from None


def _rows(text: str) -> Callable[[str], NDArray[np.str_]]:
    """Return a function from names to columns of a table in CSV."""
    rows = list(csv.DictReader(io.StringIO(text)))
    return lambda name: np.array([row[name] for row in rows])


def _numbers(columns: Sequence[NDArray[np.str_]]) -> Floats:
    return np.stack([np.where(c == "", "nan", c).astype(float) for c in columns], axis=1)


NEUROKIT = (
    "/packages/28/66/15d042e6100e07d52929ae8aeb04b4b9db6f943ed0dd554befac7da8cf01/neurokit2-0.2.13.tar.gz",
    "e0a3831e939444855c8350f01322d3ecece1faf8a290c179d730697930f10046",
)


def _fetch_electrodes() -> Arrays:
    """Take the table out of a source archive on PyPI."""
    path, sha256 = NEUROKIT
    with tarfile.open(_retrieve(PYPI + path, sha256)) as tar:
        member = tar.extractfile("neurokit2-0.2.13/studies/complexity_eeg/data_complexity.csv")
        assert member is not None
        return _complexity(member.read().decode("utf-8"))


def _fetch_gas_boards() -> Arrays:
    """Return the features that YL-Fre computed of Fonollosa's recordings, at a fixed commit."""
    made = "cb66e29aa4d6ccc5ace97273ea48d8cefce273d8/results/Day3_5_B1_adaptation_memory_safe"
    path = _retrieve(
        f"{GITHUB}/YL-Fre/mox-calibration-transfer/{made}/features_day35_autogenerated.csv", None
    )
    column = _rows(path.read_text("utf-8"))
    measures = ("mean", "std", "min", "max", "baseline", "steady", "delta", "amp", "rel_delta", "slope")
    names = [f"s{sensor}_{measure}" for sensor in range(1, 9) for measure in measures]
    arrays = {name: column(name) for name in ("board", "gas", "concentration")}
    return arrays | {"replicate": column("sample_id"), "X": _numbers([column(name) for name in names])}


#: Tables of ten people, and their digests as the package wearablehrv publishes them.
PEOPLE = {
    "P01": "ba6606821be19724fe4555e2f5f124f30a7db8722cfeb79fd3f2389ab78e38f7",
    "P02": "a8c78bc10979002a0739c0ff74c42d87989d813adbdcf97130e7d85789183e18",
    "P03": "ff9e0fa85f67ff88d76ed9e4ca855d9675bdeaf5853524bdc299835e8fbf33c2",
    "P04": "d54c87bdf277218693037ea6e69028fa7656fa36f912b85c7def854e9dda14dd",
    "P05": "545dc0c3d770db8f19c04c3947292270a281a4b63648e6500bdebfa8b949bfe2",
    "P06": "f0ea4d3519664eabd541973f32202a7dd6fe49d077eff92f5a4f9c25bbf2dcfe",
    "P07": "b6699300fb15739e9e12914aec3ee4b43a3e550f2084294861dd852c4fb9818a",
    "P08": "6fcb1e995563074e9fe3e37dff10bd3de4f6f8d6d9bf08e12260cd94fb513125",
    "P09": "70bb209e2e9666eccd5be6d534841d7a6828a2ead7af88fce986d090cbe9469b",
    "P10": "3cffb0ceae0c9c4eb45fb703655392aeb794e5e47f266c04525977f203b179ba",
}


def _fetch_wearable_hrv() -> Arrays:
    """Return the tables of ten people."""
    tables = []
    for person, sha256 in PEOPLE.items():
        path = _retrieve(f"{GITHUB}/Aminsinichi/wearable-hrv/master/data/{person}.csv", sha256)
        text = path.read_text("utf-8")
        names = text.partition("\n")[0].split(",")
        column = _rows(text)
        X = _numbers([column(name) for name in names[: names.index("artefact")]])
        tables.append([X, column("device"), column("pp"), column("conditions")])
    X, device, participant, condition = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    return {"X": X, "device": device, "participant": participant, "condition": condition}


CORN = "8a2d1a03648b6ad334caaafa5d8377bf945ba1477a5082c4963d705d07cca795"


def _fetch_corn() -> Arrays:
    """Return the spectra and targets of Eigenvector's file for MATLAB."""
    path = _retrieve(f"{EIGENVECTOR}/wp-content/uploads/2019/06/corn.mat_.zip", CORN)
    with zipfile.ZipFile(path) as archive:
        held = loadmat(io.BytesIO(archive.read("corn.mat")), squeeze_me=True, struct_as_record=False)
    instruments = ("m5", "mp5", "mp6")
    return {
        "spectra": np.stack([held[f"{name}spec"].data for name in instruments], axis=1),
        "targets": held["propvals"].data,
        "instruments": np.array(instruments),
        "target_names": np.array(["moisture", "oil", "protein", "starch"]),
    }


DATASETS: dict[str, DataSet] = {
    data.name: data
    for data in (
        DataSet(
            "headsets", "simulated headsets", "headsets.npz", "", "MIT", "This package", "no download",
            _headsets, _simulate_headsets,
        ),
        DataSet(
            "phone_watch", "phone and watch", "phone_watch.npz", "https://doi.org/10.5281/zenodo.8398688",
            "CC BY 4.0", "Matey-Sanz, Casteleyn, Granell 2023, Data in Brief 109809", "1 MB", _phone_watch,
        ),
        DataSet(
            "gas_boards", "gas sensor boards", "gas_boards.npz", "https://doi.org/10.24432/C5BS4W",
            "CC BY 4.0 (data), MIT (features)", "Fonollosa et al. 2016, Sensors and Actuators B", "0.9 MB",
            _gas_boards, _fetch_gas_boards,
            "81ade5baa80054bdebec5803cf69c07adc173db791cd50982401f1740ccc0bfe",
        ),
        DataSet(
            "wearable_hrv", "heart-rate wearables", "wearable_hrv.npz",
            "https://github.com/Aminsinichi/wearable-hrv", "MIT", "Sinichi et al. 2023, JOSS", "0.1 MB",
            _wearable_hrv, _fetch_wearable_hrv,
            "4ca5e5fc2791e535fa6c00de88f9ad67294118b8d12d27ed0f0239d77f6756a5",
        ),
        DataSet(
            "corn", "corn, three spectrometers", "corn_nir.npz", "https://eigenvector.com/resources/data-sets/",
            "free for use, no licence stated", "Cargill, by Eigenvector Research", "1.1 MB", _corn,
            _fetch_corn, "1ca3ddad0e50b21ed7f5407ea077a583fbca0054d758703cb881d676bcf3f966",
        ),
        DataSet(
            "kalunga_tokens", "EEG references (frozen network)", "kalunga_gssc_tokens.npz",
            "https://doi.org/10.5281/zenodo.2392979", "CC0 (recordings)",
            "Kalunga et al. 2016, Neurocomputing 191", "14 MB", _tokens,
        ),
        DataSet(
            "kalunga_amplifiers", "EEG, simulated amplifiers", "kalunga_epochs.npz",
            "https://doi.org/10.5281/zenodo.2392979", "CC0", "Kalunga et al. 2016, Neurocomputing 191",
            "35 MB", _amplifiers,
        ),
        DataSet(
            "electrodes", "electrodes", "data_complexity.csv",
            "https://github.com/neuropsychology/NeuroKit/tree/master/studies/complexity_eeg", "MIT",
            "Makowski et al. 2022, Entropy 24; Babayan et al. 2019; Wang et al. 2022", "92 MB", _electrodes,
            _fetch_electrodes,
        ),
    )
}  # fmt: skip


def find_settings(only: Sequence[str], folder: Path | None, quick: bool) -> tuple[list[Setting], list[str]]:
    """Return the settings asked for, and what is missing: data sets that are not in the folder.

    ``only`` has names of data sets, or words in names of settings; empty, everything. A quick benchmark has
    some worlds and the simulated headsets unless it is asked for others.
    """
    names = ["worlds", *DATASETS]
    wanted = [name for name in names if name in only] or (
        ["worlds", "headsets"] if quick and not only else names
    )
    words = [word.lower() for word in only if word not in names]
    found, missing = [], []
    for name in wanted:
        try:
            made = (
                world_settings(quick)
                if name == "worlds"
                else DATASETS[name].settings(DATASETS[name].open(folder))
            )
            found += [s for s in made if not words or any(word in s.name.lower() for word in words)]
        except (OSError, ImportError) as error:
            missing.append(str(error))
    return found, missing
