"""The wearable SSVEP reader: what it gives back, whom it gives which role, and what it refuses."""

import shutil
import sys

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from mgpa.eeg.datasets import wearable_ssvep as dataset
from mgpa.eeg.simulate.people import draw_people
from mgpa.eeg.simulate.ssvep import simulate_ssvep

SHAPE = (8, 710, 2, 10, 12)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    simulate_ssvep(folder, n_people=2)
    return folder


@pytest.fixture
def folder(simulated, tmp_path):
    """Return a copy that a test may damage."""
    return shutil.copytree(simulated, tmp_path / "Wearable SSVEP für Tests")


def test_every_trial_is_where_its_columns_say_in_volts(simulated):
    trials = dataset.read_wearable_ssvep(simulated)
    assert trials.data.shape == (2 * 2 * 10 * 12, 8, 710)
    assert trials.data.dtype == np.float32
    assert trials.channels == ("POz", "PO3", "PO4", "PO5", "PO6", "Oz", "O1", "O2")
    assert (trials.sfreq, trials.tmin, trials.times[125]) == (250.0, -0.5, 0.0)
    files = {person: loadmat(simulated / f"{person}.mat")["data"] for person in ("S001", "S002")}
    columns = trials.columns
    for row in (0, 119, 120, 333, 479):
        electrode = ("dry", "wet").index(columns["source"][row])
        stored = files[columns["participant"][row]][
            :, :, electrode, columns["block"][row], columns["target"][row]
        ]
        np.testing.assert_allclose(trials.data[row], stored * 1e-6, rtol=1e-6)
    np.testing.assert_array_equal(columns["frequency"], np.array(dataset.FREQUENCIES)[columns["target"]])
    np.testing.assert_array_equal(columns["label"], columns["frequency"] >= 12)
    assert columns["label"].mean() == 0.5
    assert len(set(columns["trial"])) == len(trials)


def test_people_and_electrodes_can_be_chosen_in_any_order(simulated):
    both = dataset.read_wearable_ssvep(simulated)
    some = dataset.read_wearable_ssvep(simulated, ["S002"], "wet")
    wanted = (both.columns["participant"] == "S002") & (both.columns["source"] == "wet")
    np.testing.assert_array_equal(some.data, both.data[wanted])
    turned = dataset.read_wearable_ssvep(simulated, ["S002", "S001"], ("wet", "dry"))
    assert turned.columns["trial"][0] == "S002-wet-0-0"
    np.testing.assert_array_equal(turned.data[0], some.data[0])
    with pytest.raises(ValueError, match="expected dry, wet or both"):
        dataset.read_wearable_ssvep(simulated, electrodes=("gel",))
    with pytest.raises(ValueError, match="different ids"):
        dataset.read_wearable_ssvep(simulated, ["S001", "S001"])


def test_facts_about_people_are_read(simulated):
    people = dataset.subjects(simulated)
    planted = draw_people(2)
    assert list(people) == ["S001", "S002"]
    assert [(p.gender, p.first_electrode, p.age) for p in people.values()] == [
        (p.gender, p.first_electrode, p.age) for p in planted
    ]


def cell_table():
    table = np.empty((3, 4), dtype=object)
    table[0] = ["Subject ID", "Sex", "Age", "Electrode order"]
    table[1] = ["s2", "F", 23.0, "wet-dry"]
    table[2] = ["S001", "Male", 31.0, "Dry first"]
    return table


FORMS = {
    "struct array": {
        "info": np.array(
            [("S002", "female", 23.0, "wet"), ("S001", "m", 31.0, "dry")],
            dtype=[(name, object) for name in ("subject", "gender", "age", "firstElectrode")],
        )
    },
    "struct of arrays": {
        "info": {
            "ID": np.array([2.0, 1.0]),
            "Gender": np.array(["F", "M"], dtype=object),
            "Age": np.array([23, 31]),
            "First_Electrode": np.array(["wet", "dry"], dtype=object),
        }
    },
    "struct with character matrices": {
        "info": {"Subject": ["S002", "S001"], "Sex": ["F", "M"], "Age": [23, 31], "First": ["wet ", "dry "]}
    },
    "cell with header": {"Subjects_Information": cell_table()},
}


@pytest.mark.parametrize("form", FORMS)
def test_facts_about_people_are_read_in_any_form(form, tmp_path):
    savemat(tmp_path / dataset.INFORMATION, FORMS[form])
    assert dataset.subjects(tmp_path) == {
        "S001": dataset.Subject("S001", "male", "dry", 31),
        "S002": dataset.Subject("S002", "female", "wet", 23),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"info": {"Subject": [1, 2], "Handedness": [1, 1]}},
            "no column for gender.*it has Subject, Handedness",
        ),
        ({"info": {"ID": [1, 1], "Sex": ["F", "F"], "First": ["dry", "dry"]}}, "lists S001 twice"),
        ({"info": {"ID": ["x", "y"], "Sex": ["F", "F"], "First": ["dry", "dry"]}}, "row 0 has 'x'"),
        ({"info": {"ID": [1, 2], "Sex": ["F", "F"], "First": ["dry", ""]}}, "first electrode of S002"),
        ({"info": {"ID": [1, 2], "Sex": ["F", "F", "M"]}}, "different lengths: ID 2, Sex 3"),
        ({"info": {"ID": [1], "Sex": ["F"], "first": ["a"], "FIRST": ["b"]}}, "several columns"),
        ({"a": 1.0, "b": 2.0}, "one variable.*it has a, b"),
        ({"info": np.eye(3)}, "expected a struct array"),
    ],
)
def test_other_facts_are_refused_and_say_what_was_found(content, message, tmp_path):
    savemat(tmp_path / dataset.INFORMATION, content)
    with pytest.raises(ValueError, match=message) as error:
        dataset.subjects(tmp_path)
    assert dataset.INFORMATION in str(error.value)


def test_a_table_that_only_matlab_reads_is_refused_with_advice(tmp_path, monkeypatch):
    (tmp_path / dataset.INFORMATION).touch()
    # What scipy makes of a MATLAB table, which nothing but MATLAB can write.
    monkeypatch.setattr("scipy.io.loadmat", lambda *_, **__: {"None": 0, "__function_workspace__": 0})
    with pytest.raises(ValueError, match=r"Subjects_Information\.mat holds a MATLAB table.*table2struct"):
        dataset.subjects(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "data",
            np.zeros((8, 710, 2, 10, 11)),
            r"shape \(8, 710, 2, 10, 11\); expected \(8, 710, 2, 10, 12\)",
        ),
        ("eeg", np.zeros(3), "no variable 'data'; it has eeg"),
        ("data", np.full(SHAPE, np.nan), r"NaN or infinity \(first at \(0, 0, 0, 0, 0\)"),
        ("data", np.full(SHAPE, 1j), "expected real numbers"),
    ],
)
def test_a_file_with_other_content_is_refused_by_name(folder, name, value, message):
    savemat(folder / "S002.mat", {name: value})
    with pytest.raises(ValueError, match=rf"S002\.mat.*{message}"):
        dataset.read_wearable_ssvep(folder)
    assert "S002.mat" in dataset.wearable_ssvep_inventory(folder, check=True).problems[0]
    assert dataset.wearable_ssvep_inventory(folder).complete


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused_by_name(folder, share, compressed):
    path = folder / "S002.mat"
    savemat(path, {"data": loadmat(path)["data"]}, do_compression=compressed)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(OSError, match=r"S002\.mat is damaged, incomplete or no MATLAB file"):
        dataset.read_wearable_ssvep(folder)


def test_a_page_saved_in_place_of_a_file_is_refused_by_name(folder):
    (folder / "S002.mat").write_text("<!DOCTYPE html><html>Please log in</html>" * 20)
    with pytest.raises(OSError, match=r"S002\.mat is damaged"):
        dataset.read_wearable_ssvep(folder)


def test_missing_files_are_named(folder):
    (folder / "S002.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no S002\.mat"):
        dataset.read_wearable_ssvep(folder)
    with pytest.raises(FileNotFoundError, match=r"no S007\.mat"):
        dataset.read_wearable_ssvep(folder, ["S001", "S007"])
    assert len(dataset.read_wearable_ssvep(folder, dataset.participants(folder))) == 240
    (folder / dataset.INFORMATION).unlink()
    with pytest.raises(FileNotFoundError, match=dataset.INFORMATION):
        dataset.read_wearable_ssvep(folder)
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        dataset.read_wearable_ssvep(folder / "nowhere")


def test_a_file_of_somebody_unlisted_is_refused(folder):
    shutil.copy(folder / "S001.mat", folder / "S050.mat")
    with pytest.raises(ValueError, match=r"does not list S050\.mat"):
        dataset.read_wearable_ssvep(folder)


@pytest.mark.parametrize("name", ["s2.mat", "S2.mat", "S0002.mat", "subject_002.mat", "S002.MAT"])
def test_a_misnamed_file_is_refused_with_its_right_name(folder, name):
    (folder / "S002.mat").rename(folder / name)
    with pytest.raises(ValueError, match=rf"{name} looks like the file of S002; rename it to S002\.mat"):
        dataset.read_wearable_ssvep(folder)
    inventory = dataset.wearable_ssvep_inventory(folder)
    assert inventory.missing == ("S002.mat",)
    assert not inventory.unexpected
    assert name in inventory.problems[0]


def test_two_files_of_one_person_are_refused(folder):
    shutil.copy(folder / "S001.mat", folder / "S001 (1).mat")
    for do in (dataset.read_wearable_ssvep, dataset.participants):
        with pytest.raises(ValueError, match=r"S001 \(1\)\.mat is a second file of S001 besides S001\.mat"):
            do(folder)
    assert not dataset.wearable_ssvep_inventory(folder).complete


def test_one_persons_signals_under_two_names_are_refused(folder):
    shutil.copy(folder / "S001.mat", folder / "S002.mat")
    with pytest.raises(ValueError, match=r"S002\.mat holds the same signals as S001\.mat"):
        dataset.read_wearable_ssvep(folder)
    assert "the same signals" in dataset.wearable_ssvep_inventory(folder, check=True).problems[0]


def test_files_in_subfolders_are_pointed_out(tmp_path):
    (tmp_path / "S001-S010").mkdir()
    (tmp_path / "S001-S010" / "S001.mat").touch()
    with pytest.raises(FileNotFoundError, match=r"There is .*S001\.mat; put all files into one folder"):
        dataset.participants(tmp_path)


def test_the_inventory_knows_what_should_be_there(folder, tmp_path):
    assert dataset.wearable_ssvep_inventory(folder, check=True).complete
    shutil.copy(folder / dataset.INFORMATION, folder / "Impedance.mat")
    (folder / "S002.mat").unlink()
    inventory = dataset.wearable_ssvep_inventory(folder)
    assert inventory.present == ("S001.mat", dataset.INFORMATION)
    assert inventory.missing == ("S002.mat",)
    assert inventory.unexpected == ("Impedance.mat",)
    assert "2 of 3 files.\nMissing (1): S002.mat\nUnexpected (1): Impedance.mat" in str(inventory)
    with pytest.raises(FileNotFoundError, match=r"S002\.mat"):
        inventory.require()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert len(dataset.wearable_ssvep_inventory(empty).missing) == 103
    (empty / dataset.INFORMATION).write_bytes(b"")
    damaged = dataset.wearable_ssvep_inventory(empty)
    assert dataset.INFORMATION in damaged.problems[0]
    assert not damaged.complete


def test_files_of_matlab_7_3_are_read(folder):
    h5py = pytest.importorskip("h5py")
    before = dataset.read_wearable_ssvep(folder)
    stored = loadmat(folder / "S001.mat")["data"]
    write_hdf5(h5py, folder / "S001.mat", {"data": stored.T})
    np.testing.assert_array_equal(dataset.read_wearable_ssvep(folder).data, before.data)
    write_hdf5(h5py, folder / "S001.mat", {"eeg": stored.T[:1]})
    with pytest.raises(ValueError, match=r"S001\.mat has no variable 'data'; it has eeg"):
        dataset.read_wearable_ssvep(folder)
    write_hdf5(h5py, folder / dataset.INFORMATION, {"info": stored.T[:1]})
    with pytest.raises(ValueError, match=r"Subjects_Information\.mat is a MATLAB 7\.3 file"):
        dataset.read_wearable_ssvep(folder)


def test_without_h5py_files_of_matlab_7_3_are_refused_by_name(folder, monkeypatch):
    h5py = pytest.importorskip("h5py")
    write_hdf5(h5py, folder / "S001.mat", {"data": np.zeros((2, 2))})
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"S001\.mat is a MATLAB 7\.3 file, which needs h5py"):
        dataset.read_wearable_ssvep(folder)


def write_hdf5(h5py, path, content):
    """Write what MATLAB 7.3 does: a header of 512 bytes that names the version, then HDF5."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in content.items():
            file[name] = values
    with open(path, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
