"""What is said when something is wrong: one line that says what was passed, what is expected, what to do."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simulated import simulated_table
from terminal import ENVIRONMENT, done, here, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.tables import write_table


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with tables that lack something, and a map."""
    place = tmp_path_factory.mktemp("place")
    table = simulated_table(n_people=12)
    tables = {
        "whole": table,
        "no_pairs": table.with_columns(pair_id=None),
        "four": simulated_table(n_people=12, n_classes=4),
        "no_head": table.with_columns(role=np.where(table.role == "HEAD", "FIT", table.role)),
    }
    for name, rows in tables.items():
        write_table(rows, place / f"{name}.npz")
    np.savez(place / "two.npz", A=table.X, B=table.X, source=table.source)
    np.savez(place / "wide.npz", X=table.X, source=table.source, more=table.X)
    (place / "damaged.parquet").write_bytes(b"PAR1 and no more")
    (place / "raw.csv").write_text("f0,f1,device,subject\n1.0,2.0,a,p\n3.0,4.0,b,p\n")
    np.savez(place / "device.npz", X=table.X, age=np.arange(len(table)), device=table.source)
    done("fit", "whole.npz", "--out", "m.safetensors", folder=place)
    return place


# Options are called like parameters, so one message serves Python and the command line.
@pytest.mark.parametrize(
    ("command", "words"),
    [
        # options of the command
        ("fit whole.npz --rank 99", ("rank", "99", "8 features")),
        ("fit whole.npz --rank 2.5", ("rank must be", "2.5")),
        ("fit whole.npz --components 99", ("components", "99")),
        ("select m.safetensors whole.npz --budget -1", ("budget must be",)),
        ("apply m.safetensors whole.npz --strength nan", ("strength must be", "nan")),
        ("simulate --sources 9", ("--sources", "9", "<= 4")),
        ("fit whole.npz --scheduler here", ("scheduler", "'here'", "tcp://host:port")),
        ("audit whole.npz --folds 99", ("folds", "99", "12 participants")),
        ("audit whole.npz --association gel 0 --folds 1", ("association", "'gel'", "('dry', '0')")),
        ("audit four.npz --association dry 1", ("Omit association", "two classes")),
        # parameters of the method
        ("fit whole.npz --method closed_form_mgpa --set.ridge maybe", ("ridge must be", "'maybe'")),
        ("fit whole.npz --set.gate 3", ("mgpa has no parameter 'gate'", "standardize")),
        ("fit whole.npz --method laece", ("Did you mean leace",)),
        # rows and columns of the table
        ("fit whole.npz --pairs no_pairs.npz", ("pair_id",)),
        ("fit m.safetensors", ("a stored map",)),
        ("fit no_pairs.npz", ("pairs", "pair_id")),
        ("audit no_head.npz", ("no HEAD rows",)),
        # what another command can mend
        ("fit wide.npz", ("more", "columns")),
        ("fit device.npz", ("source", "rename")),
        ("fit two.npz", ("embedding",)),
        ("convert damaged.parquet", ("damaged.parquet",)),
        ("fit nothing.parquet", ("nothing.parquet",)),
    ],
)
def test_errors_say_what_was_passed_what_is_expected_and_what_to_do(place, tmp_path, command, words):
    said = refused(*command.split(), "--out", tmp_path / "out.npz", folder=place)
    assert all(word in said for word in words), said
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    "command",
    [
        *("fit whole.npz", "apply m.safetensors whole.npz", "select m.safetensors whole.npz --budget 0.05"),
        *("export m.safetensors", "convert whole.npz", "simulate"),
    ],
)
def test_what_exists_is_replaced_only_if_told_and_never_if_it_is_read(place, command, tmp_path):
    before = (place / "two.npz").read_bytes()
    said = refused(*command.split(), "--out", "two.npz", folder=place)
    assert re.match(r"two\.npz exists; pass --overwrite to replace it\.", said)
    assert (place / "two.npz").read_bytes() == before
    if command != "simulate":
        first = command.split()[-1] if command.startswith("apply") else command.split()[1]
        (tmp_path / first).symlink_to(place / first)
        arguments = (*command.split(), "--out", tmp_path / first, "--overwrite")
        assert "name another output" in refused(*arguments, folder=place)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fit whole.npz --out x.npz --rank two", "Invalid value for --rank: two is not a number."),
        ("audit whole.npz --out x --seeds 1 a", "--seeds: a is not an integer."),
        ("audit whole.npz --out x --seeds 1 -2", "for --seeds. Must be >= 0."),
        ("convert whole.npz --out x.npz --roles --seed -1", 'Invalid value "-1" for --seed. Must be >= 0.'),
        ("fit whole.npz --out x.npz --set ridge=1", "'ridge=1' has no name and value; type --set.NAME VALUE"),
        ("fit whole.npz two.npz --out x.npz", "mgpa fit takes no further arguments; got two.npz."),
        ("fit whole.npz https://me:secret@host/x.npz --out x.npz", "; got https://…@host/x.npz."),
        ("audit whole.npz --out two.npz", 'Only directory is allowed, but "two.npz" is a file.'),
        ("correct", "Unknown command"),
        ("export m.safetensors --out m.x", "m.x must end in .onnx."),
        ("fit whole.npz --out no/where.safetensors", "does not exist; create it"),
        ("study run controlled-ssvep", "mgpa study run needs --out: Folder for report.html"),
        ("study run controlled-ssvep --ouut x", "Unknown option: --ouut."),
        ("study show", "mgpa study show needs WHICH: The name of a packaged study"),
        ("data verify neuroscan_flex", "mgpa data verify needs FOLDER: Folder with the files."),
        ("fit", "mgpa fit needs TABLE: "),
        ("fit whole.npz", "needs --out: File for the map. Example: mgpa fit recordings.parquet"),
    ],
)
def test_mistakes_in_options_change_nothing_and_are_named(place, command, said):
    before = sorted(path.name for path in place.iterdir())
    result = here(*command.split(), folder=place)
    assert result.returncode == 2
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in place.iterdir()) == before


def test_each_mistake_in_a_study_has_a_line(tmp_path):
    (tmp_path / "study.toml").write_text("name = 'x'\n[foo]\na = 1\n")
    said = here("study", "run", "study.toml", "--out", "x", folder=tmp_path).stderr
    assert "\n  title: is missing\n" in said


def test_warnings_are_one_line_each(place, tmp_path):
    arguments = ("--out", tmp_path / "m.safetensors", "--set.on_missing", "warn")
    (line,) = done("fit", place / "no_pairs.npz", *arguments).stderr.splitlines()
    assert line.startswith("mgpa: No pairs: name the column that is equal for rows of one event (--rename.")
    assert "identity map" in line


def test_an_error_says_what_was_being_done(place):
    pytest.importorskip("torch")
    arguments = ("--methods", "closed_form_mgpa", "--rank", "99", "--quick", "--out", "audited")
    result = here("audit", "whole.npz", *arguments, folder=place)
    assert result.returncode == 2
    assert "8 features" in result.stderr
    assert "This happened while fitting" in result.stderr


def test_a_reader_that_leaves_is_not_an_error(folder):
    command = f"{sys.executable} -m mgpa methods | head -n 1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert result.stdout.startswith("name")
    assert result.stderr == ""


def test_an_interruption_while_the_command_line_loads_is_said_in_one_line():
    script = """
import sys
class Impatient:
    def find_spec(self, name, *_):
        if name == "cyclopts":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Impatient())
from mgpa.__main__ import entry
entry()
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=ENVIRONMENT)
    assert (result.returncode, result.stderr) == (130, "mgpa: interrupted before it started.\n")


def test_a_terminal_that_lacks_a_letter_shows_its_escape(folder, tmp_path):
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [sys.executable, "-m", "mgpa", "inspect", folder / "rec ördings.parquet"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    result = subprocess.run([*command[:-1], "ü.npz"], capture_output=True, text=True, env=environment)
    assert r"\xfc.npz" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_to_itself_counts_as_existing(folder, tmp_path):
    (tmp_path / "loop.parquet").symlink_to("loop.parquet")
    arguments = (folder / "map one.safetensors", folder / "rec ördings.parquet", "--out", "loop.parquet")
    assert "loop.parquet exists; pass --overwrite" in refused("apply", *arguments, folder=tmp_path)
    assert "symbolic links" in refused("inspect", "loop.parquet", folder=tmp_path)


def test_a_tilde_is_the_home_folder_wherever_it_stands(folder, tmp_path, monkeypatch):
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    out = "--out=~/m.safetensors"  # which shells pass on as it is
    done("fit", folder / "rec ördings.parquet", out, "--method", "leace", folder=folder)
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_folder_that_may_not_be_written_to_is_refused_before_the_work(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    table, m = folder / "rec ördings.parquet", folder / "map one.safetensors"
    for command in (("fit", table), ("apply", m, table), ("convert", table)):
        said = refused(*command, "--out", tmp_path / "t.npz")
        assert f"may not write to the folder {tmp_path};" in said
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fit t.npz --out m.safetensors --reference damp", "--reference must be one of the sources"),
        ("fit t.npz --out m.safetensors --rank 99", "--rank 99 does not fit"),
        ("fit t.npz --out m.safetensors --method leace --reference dry", "leace has no reference"),
        ("audit t.npz --out a --methods leace --reference dry", "leace has no reference"),
        ("audit t.npz --out a --folds 500", "--folds is 500"),
        ("fit tt.npz --out m.safetensors", "No file or folder tt.npz. Did you mean t.npz?"),
        ("apply t.npz m.safetensors --out c.npz", "The map comes first: mgpa apply m.safetensors t.npz"),
    ],
)
def test_errors_speak_the_language_of_the_shell(tmp_path, monkeypatch, capsys, command, said):
    from mgpa.cli import main

    monkeypatch.chdir(tmp_path)
    write_table(simulated_table(n_people=12), tmp_path / "t.npz")
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "None" not in error


def test_the_help_groups_every_command():
    from mgpa.cli import ORDER, app

    grouped = [name for names in ORDER.values() for name in names]
    assert sorted(grouped) == sorted(name for name in app if not name.startswith("-"))
