"""The wearable SSVEP reader: what it gives back, whom it gives which role, and what it refuses."""

import shutil
from collections import Counter

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from mgpa.paper.datasets import wearable_ssvep as dataset

SHAPE = (8, 710, 2, 10, 12)
# First electrode (dry in capitals) and gender of 102 people for whom the paper's seeds give the folds that it
# published: 64 men, and 53 who wore dry electrodes first. Whether each is as in the real file is unknown.
STRATA = (
    "MMMmFmMfmFFFmmFmMmmmmmmMMfffFmMMfMfFFFmmMMMmMMmmmFMmFMmmmMMmmFFMMfmFMfFmmfMMFmfmMmFMmfMFFFmFmmffFFmMFF"
)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    for i, person in enumerate(("S001", "S002")):
        savemat(folder / f"{person}.mat", {"data": np.random.default_rng(i).normal(size=SHAPE)})
    people = cell([("Male", 20.0, "Dry"), ("Female", 21.0, "Wet")])
    savemat(folder / dataset.INFORMATION, {"Subjects_Information": people})
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


def test_people_and_electrodes_can_be_chosen(simulated):
    both = dataset.read_wearable_ssvep(simulated)
    some = dataset.read_wearable_ssvep(simulated, ["S002"], "wet")
    wanted = (both.columns["participant"] == "S002") & (both.columns["source"] == "wet")
    np.testing.assert_array_equal(some.data, both.data[wanted])
    with pytest.raises(ValueError, match="expected dry, wet or both"):
        dataset.read_wearable_ssvep(simulated, electrodes=("gel",))
    with pytest.raises(ValueError, match="different ids"):
        dataset.read_wearable_ssvep(simulated, ["S001", "S001"])


def cell(rows, header=("", "Gender", "Age", "Handedness", *"abcdef", "Headband to wear first")):
    """A cell array as the provider's: a row of names, the first empty, then a row a person."""
    filled = [
        [f"sub{i}", gender, age, "Right", *[1.0] * 6, first] for i, (gender, age, first) in enumerate(rows)
    ]
    return np.array([list(header), *filled], dtype=object)


def test_people_are_numbered_by_their_rows_whatever_the_first_column_says(tmp_path):
    table = cell([(" Male", 31.0, "Dry "), ("Female", 23.5, "wet")])
    table[1:, 0] = ["sub77", ""]
    savemat(tmp_path / dataset.INFORMATION, {"Subjects_Information": table, "note": 1.0})
    assert dataset.subjects(tmp_path) == {
        "S001": {"gender": "male", "first_electrode": "dry"},
        "S002": {"gender": "female", "first_electrode": "wet"},
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"info": cell([("Male", 1.0, "dry")])}, "no variable 'Subjects_Information'. Variables: info"),
        ({"Subjects_Information": np.eye(3)}, "expected a cell array"),
        (
            {"Subjects_Information": cell([("Male", 1.0, "dry")], header=[*"abcdefghij", "Gender"])},
            "expected one column 'Headband to wear first'. Columns: \\['a', 'b'",
        ),
        (
            {"Subjects_Information": cell([("Male", 1.0, "dry"), ("Male", 2.0, "")])},
            "Headband to wear first of S002 is .*; expected a text",
        ),
    ],
)
def test_other_facts_are_refused_and_say_what_was_found(content, message, tmp_path):
    savemat(tmp_path / dataset.INFORMATION, content)
    with pytest.raises(ValueError, match=message) as error:
        dataset.subjects(tmp_path)
    assert dataset.INFORMATION in str(error.value)


# What was published about the real files


@pytest.fixture
def published(tmp_path):
    """Everything but recordings, of 102 people with the published folds."""
    people = [("Male" if c in "Mm" else "Female", 20.0, "Dry" if c.isupper() else "Wet") for c in STRATA]
    savemat(tmp_path / dataset.INFORMATION, {"Subjects_Information": cell(people)})
    return tmp_path


def test_rotations_of_the_studies_evaluate_the_published_folds(published):
    from mgpa.tables.columns import rotated

    people = dataset.subjects(published)
    strata = {name: f"{person['first_electrode']}|{person['gender']}" for name, person in people.items()}
    for rotation in (1, 2, 3, 4):
        roles = rotated(strata, rotation, 5, 20260903)
        judges = [i for i, fold in enumerate(dataset.PAPER_FOLDS, start=1) if fold == str(rotation)]
        assert [int(name[1:]) for name, role in sorted(roles.items()) if role == "EVAL"] == judges
    roles = rotated(strata, 1, 5, 20260902)
    assert Counter(roles.values()) == {"FIT": 41, "VAL": 20, "HEAD": 20, "EVAL": 21}
    recorded = [int(name[1:]) for name, role in sorted(roles.items()) if role == "EVAL"]
    assert recorded[:6] == [5, 9, 12, 16, 24, 25]


def test_targets_have_the_published_frequencies():
    frequencies = "9.25 11.25 13.25 9.75 11.75 13.75 10.25 12.25 14.25 10.75 12.75 14.75"
    assert [*dataset.FREQUENCIES] == [float(text) for text in frequencies.split()]


def test_checks_against_what_was_published_tell_which_agree(published):
    checks = dataset.published_checks(published)
    assert checks == {
        "men": (64, 64),
        "participants who wore dry electrodes first": (53, 53),
        "participants in the paper's folds (seed 20260903)": (102, 102),
    }
    # If two people were exchanged, almost all would be in another fold.
    table = loadmat(published / dataset.INFORMATION)["Subjects_Information"]
    table[[5, 6]] = table[[6, 5]]
    savemat(published / dataset.INFORMATION, {"Subjects_Information": table})
    text = str(dataset.wearable_ssvep_inventory(published))
    assert "differs     participants in the paper's folds (seed 20260903): " in text
    assert "not 102 as published" in text


# Files


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "data",
            np.zeros((8, 710, 2, 10, 11)),
            r"shape \(8, 710, 2, 10, 11\); expected real numbers of \(8, 710, 2, 10, 12\)",
        ),
        ("eeg", np.zeros(3), "no variable 'data'. Variables: eeg"),
        ("data", np.full(SHAPE, np.nan), r"NaN or infinity \(first at \(0, 0, 0, 0, 0\)"),
    ],
)
def test_a_file_with_other_content_is_refused_by_name(folder, name, value, message):
    savemat(folder / "S002.mat", {name: value})
    with pytest.raises(ValueError, match=rf"S002\.mat.*{message}"):
        dataset.read_wearable_ssvep(folder)
    assert "S002.mat" in dataset.wearable_ssvep_inventory(folder, check=True).problems[0]
    assert dataset.wearable_ssvep_inventory(folder).complete


def test_a_truncated_file_is_refused_by_name(folder):
    path = folder / "S002.mat"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"S002\.mat is damaged, or not a MATLAB file"):
        dataset.read_wearable_ssvep(folder)


def test_missing_files_are_named(folder):
    (folder / "S002.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no S002\.mat"):
        dataset.read_wearable_ssvep(folder)
    with pytest.raises(FileNotFoundError, match=r"no S007\.mat"):
        dataset.read_wearable_ssvep(folder, ["S001", "S007"])
    assert len(dataset.read_wearable_ssvep(folder, ["S001"])) == 240
    (folder / "S001.mat").rename(folder / "S050.mat")
    with pytest.raises(ValueError, match=r"does not list S050\.mat"):
        dataset.read_wearable_ssvep(folder)
    (folder / dataset.INFORMATION).unlink()
    with pytest.raises(FileNotFoundError, match=dataset.INFORMATION):
        dataset.read_wearable_ssvep(folder)
    with pytest.raises(FileNotFoundError, match="No folder"):
        dataset.read_wearable_ssvep(folder / "nowhere")


def test_copies_strays_and_folders_do_no_harm(folder):
    before = dataset.read_wearable_ssvep(folder).data
    shutil.copy(folder / "S001.mat", folder / "S001 (1).mat")
    shutil.copy(folder / "S001.mat", folder / "._S001.mat")
    (folder / "old").mkdir()
    (folder / "old" / "S002.mat").write_bytes(b"another")
    (folder / "13560281").mkdir()
    (folder / "S001.mat").rename(folder / "13560281" / "S001.mat")
    (folder / "Readme.pdf").touch()
    assert dataset.read_wearable_ssvep(folder).data.tobytes() == before.tobytes()
    inventory = dataset.wearable_ssvep_inventory(folder)
    assert inventory.complete


def test_the_inventory_knows_what_should_be_there(folder):
    assert dataset.wearable_ssvep_inventory(folder, check=True).complete
    (folder / "S002.mat").unlink()
    inventory = dataset.wearable_ssvep_inventory(folder)
    assert inventory.present == ("S001.mat", dataset.INFORMATION)
    assert inventory.missing == ("S002.mat",)
    assert "2 of 3 files\nmissing     S002.mat\nnot complete" in str(inventory)
    (folder / dataset.INFORMATION).write_bytes(b"")
    damaged = dataset.wearable_ssvep_inventory(folder)
    assert dataset.INFORMATION in damaged.problems[0]
    assert len(damaged.missing) == 101


def test_a_file_of_matlab_7_3_is_refused_with_advice(folder):
    # MATLAB 7.3 writes HDF5 after a header that names the version.
    (folder / "S001.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(512))
    with pytest.raises(ValueError, match=r"S001\.mat is a MATLAB 7\.3 file.*save"):
        dataset.read_wearable_ssvep(folder)
