"""What is damaged, how it is opened, and what may come of it."""

import json
import shutil
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
from mutations import damage_folder, mutated

import mgpa
from simulated import simulated_table

# Outcomes. Of files with digests, only the first two may be; of others, all but wrong and fault.
REFUSED, SAME, READ, WRONG, FAULT = OUTCOMES = ("refused", "same", "read", "wrong", "fault")


class Maps:
    """Stored corrections, which carry a digest of everything in them."""

    def __init__(self, folder):
        from mgpa.baselines import make
        from mgpa.tables import fit_table

        table = simulated_table(n_people=8)
        models = [mgpa.ClosedFormMGPA(), make("combat"), make("inlp")]
        models.append(mgpa.IterativeMGPA(critics=("linear",), n_stages=2, do_no_harm=False, random_state=0))
        self.path, self.files = folder / "damaged.safetensors", []
        for i, model in enumerate(models):
            m = fit_table(model, table).to_map()
            m.save(folder / f"{i}.safetensors")
            self.files.append(((folder / f"{i}.safetensors").read_bytes(), m))

    def attempt(self, rng):
        content, m = rng.choice(self.files)
        self.path.write_bytes(mutated(content, rng))
        try:
            read = mgpa.load_map(self.path)
        except mgpa.MapError:
            return REFUSED
        tensors = all(np.array_equal(getattr(read, name), getattr(m, name)) for name in m.tensor_names)
        return SAME if tensors and read.info == m.info and read.summary() == m.summary() else WRONG


class Tables:
    """Tables, which carry a manifest, digests and checksums."""

    suffix = ".npz"

    def __init__(self, folder):
        from mgpa.tables import open_table, write_table

        write_table(simulated_table(n_people=8), folder / f"whole{self.suffix}")
        whole = folder / f"whole{self.suffix}"
        self.table, self.path = open_table(whole).read(), folder / f"damaged{self.suffix}"
        self.content = whole.read_bytes() if whole.is_file() else None
        self.files = {str(p.relative_to(whole)): p.read_bytes() for p in whole.rglob("*") if p.is_file()}

    def attempt(self, rng):
        from mgpa.tables import open_table
        from mgpa.tables.files import TableError

        self._damage(rng)
        try:
            file = open_table(self.path)
            read = file.read()
        except (TableError, FileNotFoundError):
            return REFUSED
        if _equal(read, self.table):
            return SAME
        # Damage can take the manifest itself: what opens then is a foreign file, and says so.
        return WRONG if file.verified else READ

    def _damage(self, rng):
        if self.content is not None:
            self.path.write_bytes(mutated(self.content, rng))
            return
        shutil.rmtree(self.path, ignore_errors=True)
        damage_folder(self.files, self.path, rng)


class Parquet(Tables):
    suffix = ".parquet"


class Zarr(Tables):
    suffix = ".zarr"


class Matlab:
    """Recordings and a cell array, read in a process beside this one."""

    def __init__(self, folder):
        from scipy.io import savemat

        cell = np.array(
            [["Age", "Gender", "Headband"], [23.0, "male", "dry"], [31.0, "female", "wet"]], object
        )
        savemat(folder / "cell.mat", {"Subjects_Information": cell})
        savemat(folder / "packed.mat", {"data": np.ones((3, 4, 2))}, do_compression=True)
        savemat(folder / "array.mat", {"data": np.arange(24.0).reshape(2, 3, 4)})
        self.path = folder / "damaged.mat"
        self.files = [(folder / f"{name}.mat").read_bytes() for name in ("cell", "packed", "array")]

    def attempt(self, rng):
        from mgpa.eeg.datasets import reader_process
        from mgpa.eeg.datasets.matlab import read_array, read_cell

        which = rng.randrange(3)
        self.path.write_bytes(mutated(self.files[which], rng))
        try:
            # Some keep scipy busy for ever, and should be found out before the driver calls it a hang.
            with patch.object(reader_process, "SECONDS", 15.0):
                if which == 0:
                    read_cell(self.path, "Subjects_Information")
                else:
                    read_array(self.path, "data", (3, 4, 2) if which == 1 else (2, 3, 4))
        except (OSError, ValueError):
            return REFUSED
        return READ


class Toml:
    """Studies."""

    def __init__(self, folder):
        from importlib.resources import files

        self.folder = folder
        presets = files("mgpa.studies") / "presets"
        self.studies = [p.read_bytes() for p in presets.iterdir() if p.name.endswith(".toml")]

    def attempt(self, rng):
        from mgpa.errors import StudyError
        from mgpa.studies import load_study

        path = self.folder / "damaged.toml"
        path.write_bytes(mutated(rng.choice(self.studies), rng))
        try:
            load_study(path)
        except StudyError:
            return REFUSED
        return READ


class Listings:
    """What repositories answer."""

    def __init__(self, folder):
        base = "https://a.org/v2"
        file = {
            "attributes": {
                "kind": "file",
                "materialized_path": "/raw/S001.mat",
                "size": 2000,
                "extra": {"hashes": {"md5": "0" * 32, "sha256": "1" * 64}},
            },
            "links": {"download": "https://a.org/1"},
        }
        related = {"links": {"related": {"href": f"{base}/nodes/ab3de/files/osfstorage/5f/"}}}
        directory = {"attributes": {"kind": "folder"}, "relationships": {"files": related}}
        child = {"id": "fghij", "attributes": {"title": "Part 2"}}
        page = {"data": [file, directory], "links": {"next": f"{base}/nodes/ab3de/files/osfstorage/?page=2"}}
        entry = {"name": "S001.mat", "download_url": "https://a.org/1", "size": 5, "computed_md5": "0" * 32}
        record = {"key": "a", "size": 5, "checksum": f"md5:{'0' * 32}", "links": {"self": "https://a.org/1"}}
        self.answers = {
            "osf:ab3de": [page, {"data": [file], "links": {}}, {"data": [child], "links": {}}],
            "figshare:1.v4": [{"files": [entry]}],
            "zenodo:9": [{"files": [record]}],
        }

    def attempt(self, rng):
        from mgpa.eeg.datasets import fetching
        from mgpa.errors import DownloadError

        address = rng.choice(sorted(self.answers))
        answers = iter(self.answers[address])
        empty = {"data": [], "links": {}}

        def get(url):
            answer = next(answers, empty)
            content = json.dumps(answer).encode()
            return mutated(content, rng) if rng.random() < 0.8 else content

        try:
            with patch.object(fetching, "_content", get):
                files = fetching.listing(address)
        except DownloadError:
            return REFUSED
        inside = all(Path("/x", file.name).resolve().is_relative_to("/x") for file in files)
        return READ if inside and all(file.url.startswith("https://") for file in files) else WRONG


#: Targets, and how many of a hundred mutations each gets: the slower, the fewer.
TARGETS = {
    "maps": (Maps, 30),
    "npz": (Tables, 25),
    "parquet": (Parquet, 15),
    "zarr": (Zarr, 5),
    "mat": (Matlab, 5),
    "toml": (Toml, 10),
    "listings": (Listings, 10),
}


def outcome(target, rng):
    """Return what became of one mutation, and the error if it was one that nobody expects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return target.attempt(rng), None
        except Exception as error:
            return FAULT, error


def _equal(a, b):
    return (
        a.X.dtype == b.X.dtype
        and np.array_equal(a.X, b.X)
        and list(a.columns) == list(b.columns)
        and all(np.array_equal(a.columns[name], b.columns[name]) for name in a.columns)
        and a.info == b.info
    )
