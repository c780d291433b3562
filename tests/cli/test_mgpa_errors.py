"""What is said when something is wrong: one line, in the words of options and columns."""

import json
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

from mgpa.tables import Table, open_table, write_table


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with tables that lack something, and a map."""
    place = tmp_path_factory.mktemp("place")
    table = simulated_table(n_people=12)
    tables = {
        "whole": table,
        "no_pairs": table.with_columns(pair_id=None),
        "no_label": table.with_columns(label=None),
        "one_label": table.with_columns(label=1),
        "wider": Table.from_columns({**table.columns, "X": np.c_[table.X, table.X[:, 0]]}),
        "tokens": Table.from_columns({**table.columns, "X": np.stack([table.X, table.X], axis=1)}),
        "no_role": table.with_columns(role=None),
        "no_val": table.with_columns(role=np.where(table.role == "VAL", "FIT", table.role)),
        "no_head": table.with_columns(role=np.where(table.role == "HEAD", "FIT", table.role)),
        "val_dry": table.take((table.role != "VAL") | (table.source == "dry")),
        "val_gel": table.with_columns(
            source=np.where((table.role == "VAL") & (table.source == "wet"), "gel", table.source)
        ),
    }
    for name, rows in tables.items():
        write_table(rows, place / f"{name}.npz")
    np.savez(place / "two.npz", A=table.X, B=table.X, source=table.source)
    np.savez(place / "wide.npz", X=table.X, source=table.source, more=table.X)
    np.savez(place / "bare.npz", X=table.X, more=table.X)
    (place / "damaged.parquet").write_bytes(b"PAR1 and no more")
    np.savez(place / "device.npz", X=table.X, age=np.arange(len(table)), device=table.source)
    done("fit", "whole.npz", "--out", "m.safetensors", folder=place)
    return place


PAIRS = "one id per row, shared by the rows of one event in different sources."
ITERATIVE = ("--method", "iterative_mgpa", "--set.critics", '["linear"]', "--set.n_stages", "1")


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        # options of the command
        ("fit whole.npz", ("--rank", "99"), "--rank 99 does not fit 8 features; use 0 to 8."),
        ("fit whole.npz", ("--rank", "-1"), "--rank must be a whole number, 0 or more, or a float in (0, 1]"),
        ("fit whole.npz", ("--components", "99"), "--components is 99;"),
        ("select m.safetensors whole.npz", ("--budget", "-1"), "--budget must be zero or a positive number"),
        ("apply m.safetensors whole.npz", ("--strength", "-1"), "--strength must not be negative; got -1.0."),
        (
            "fit whole.npz",
            ("--rank", "inf"),
            "--rank must be a whole number, 0 or more, or a float in (0, 1]",
        ),
        (
            "fit whole.npz",
            ("--rank", "2.5"),
            "--rank must be a whole number, 0 or more, or a float in (0, 1]",
        ),
        ("simulate", ("--sources", "9"), "--sources is 9; choose 2 to 4."),
        ("simulate", ("--events", "0"), "--events must be a whole number, 1 or more; got 0."),
        ("simulate", ("--features", "0"), "--features must be a whole number, 2 or more; got 0."),
        (
            "simulate",
            ("--association", "inf"),
            "--association must be a number, 0 or more, at most 1; got inf.",
        ),
        ("simulate ssvep", ("--population", "inf"), "--population must be a number; got inf."),
        (
            "fit whole.npz",
            ("--rank", "3.0"),
            "--rank must be a whole number, 0 or more, or a float in (0, 1]",
        ),
        ("fit whole.npz", ("--method", "ncm", "--rank", "99"), "--rank is 99; these"),
        (
            "fit whole.npz",
            ("--scheduler", "here"),
            "--scheduler is 'here'; expected tcp://host:port, or 'local'",
        ),
        (
            "apply m.safetensors whole.npz",
            ("--strength", "nan"),
            "--strength must be a finite number; got nan.",
        ),
        ("simulate ssvep", ("--people", "0"), "--people must be a whole number, 1 or more; got 0."),
        ("audit whole.npz", ("--folds", "99"), "--folds is 99; 12 participants make"),
        (
            "audit whole.npz",
            ("--association", "gel", "0", "--folds", "1"),
            "--association names the source 'gel'; the table has dry, wet.",
        ),
        ("study run controlled-ssvep", ("--data", "nowhere"), "There is no folder nowhere; --data names the"),
        ("check-pairs whole.npz", (), "out.npz names no figure; end it in .png, .pdf or .svg."),
        # parameters of the method
        (
            "fit whole.npz",
            ("--set.ridge", "maybe"),
            "--set.ridge must be a number, 0 or more, or 'auto'; got 'maybe'.",
        ),
        ("fit whole.npz", ("--set.ridge", "null"), "--set.ridge must be a number, 0 or more, or 'auto'; got"),
        (
            "fit whole.npz",
            ("--set.standardize", "maybe"),
            "--set.standardize must be True or False; got 'maybe'.",
        ),
        (
            "fit whole.npz",
            ("--method", "leace", "--set.strength", "-1"),
            "--set.strength must be a number, 0 or more; got -1.",
        ),
        (
            "fit no_val.npz",
            (*ITERATIVE, "--set.early_stopping", "true"),
            "--set.early_stopping true needs rows with the role VAL",
        ),
        (
            "fit whole.npz",
            ("--set.gate", "3"),
            "closed_form_mgpa has no parameter 'gate'; it has anchor, do_no",
        ),
        # rows and columns of the table
        ("fit one_label.npz", ("--method", "splince"), "the label column has 1 distinct value"),
        ("fit whole.npz", ("--pairs", "no_pairs.npz"), "The table of pairs lacks pair_id; it has source"),
        ("fit whole.npz", ("--pairs", "tokens.npz"), "The table of pairs holds tokens, and the table to fit"),
        ("fit whole.npz", ("--pairs", "wider.npz"), "The pairs have 9 features, and the rows 8."),
        ("fit m.safetensors", (), "m.safetensors: a stored map, not a table."),
        ("fit no_pairs.npz", (), f"a table with a pair_id column (or such a table by --pairs), {PAIRS}"),
        ("audit no_pairs.npz", (), f"No pairs: pass a table with a pair_id column, {PAIRS}"),
        ("audit no_role.npz", (), "lacks role; it has source, participant, label, pair_id. mgpa convert"),
        ("audit no_head.npz", (), "has no HEAD rows; mgpa convert --roles can give roles."),
        ("fit no_label.npz", ("--method", "splince"), "pass the label column, one task label per row."),
        ("fit val_dry.npz", ITERATIVE, "Add such rows to the VAL rows, or pass --set.do_no_harm false."),
        ("fit val_dry.npz", ("--method", "inlp"), "No rows of source ['wet'] in the VAL rows"),
        ("fit val_gel.npz", ITERATIVE, "source ['gel'] in the VAL rows; fitted on are ['dry', 'wet']."),
        # what another command can mend
        ("fit wide.npz", (), "Leave it out with mgpa convert --columns source."),
        ("convert wide.npz", (), "Leave it out with --columns source."),
        ("convert bare.npz", (), "Leave it out with --empty-columns."),
        ("fit device.npz", (), "Is it there as NAME? Then mgpa convert --rename.NAME source."),
        ("fit two.npz", (), "Name it with mgpa convert --embedding: a column"),
        ("convert two.npz", (), "Name it with --embedding: a column"),
    ],
)
def test_errors_speak_of_options_and_columns(place, tmp_path, command, arguments, message):
    assert message in refused(*command.split(), "--out", tmp_path / "out.npz", *arguments, folder=place)
    assert not (tmp_path / "out.npz").is_file()


@pytest.mark.parametrize(
    "command",
    [
        *("fit whole.npz", "apply m.safetensors whole.npz", "select m.safetensors whole.npz --budget 0.05"),
        *("export m.safetensors", "convert whole.npz", "simulate"),
    ],
)
def test_what_is_there_is_replaced_only_if_told(place, command):
    before = (place / "two.npz").read_bytes()
    said = refused(*command.split(), "--out", "two.npz", folder=place)
    assert said == "two.npz exists; pass --overwrite to replace it."
    assert (place / "two.npz").read_bytes() == before


@pytest.mark.parametrize("command", ["apply m.safetensors whole.npz", "convert damaged.parquet"])
def test_text_is_refused_as_output_before_the_work(place, command):
    said = refused(*command.split(), "--out", "out.csv", folder=place)
    assert said.startswith("'out.csv' would be text")
    assert "end it in .parquet" in said
    assert not (place / "out.csv").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fit whole.npz --out x.npz --rank two", "Invalid value for --rank: two is no number."),
        ("audit whole.npz --out x --seeds 1 a", "--seeds: a is no whole number."),
        ("audit whole.npz --out x --seeds 1 -2", 'Invalid value "[1, -2]" for --seeds. Must be >= 0.'),
        ("convert whole.npz --out x.npz --roles --seed -1", 'Invalid value "-1" for --seed. Must be >= 0.'),
        (
            "fit whole.npz --out x.npz --set ridge=1",
            "'ridge=1' names nothing; it is typed as --set.NAME VALUE",
        ),
        ("fit whole.npz two.npz --out x.npz", "mgpa fit takes no further arguments, and got two.npz."),
        ("fit whole.npz https://me:secret@host/x.npz --out x.npz", "and got https://…@host/x.npz."),
        ("audit whole.npz --out two.npz", 'Only directory is allowed, but "two.npz" is a file.'),
        ("demo --out two.npz", 'Only directory is allowed, but "two.npz" is a file.'),
    ],
)
def test_what_cannot_be_an_options_value_is_said_without_pythons_types(place, command, said):
    result = here(*command.split(), folder=place)
    assert result.returncode == 2
    assert said in re.sub(r"[│\s]+", " ", result.stderr)


def test_a_share_of_one_is_not_one_direction(place, tmp_path):
    for rank, expected in (("1", 1), ("1.0", 8)):
        out = tmp_path / f"{rank}.safetensors"
        facts = json.loads(
            done("fit", "whole.npz", "--out", out, "--rank", rank, "--json", folder=place).stdout
        )
        assert facts["gate"]["rank"] == expected


@pytest.mark.parametrize(
    ("table", "said"),
    [("wider.npz", "wider.npz has 9 features; the map was fitted on 8."), ("gel.npz", "--table")],
)
def test_a_page_about_a_map_takes_no_table_that_the_map_is_not_for(place, tmp_path, table, said):
    rows = open_table(place / "whole.npz").read()
    gel = rows.with_columns(source=np.where(rows.source == "dry", "gel", "paste"))
    write_table(gel, place / "gel.npz", overwrite=True)
    html = tmp_path / "page.html"
    assert said in refused("inspect", "m.safetensors", "--html", html, "--table", table, folder=place)
    done("inspect", "m.safetensors", "--html", html, "--table", "no_pairs.npz", folder=place)
    assert html.stat().st_size > 1000


def test_everything_that_is_wrong_with_a_study_has_a_line_of_its_own(tmp_path):
    (tmp_path / "study.toml").write_text("name = 'x'\n[foo]\na = 1\n")
    said = here("study", "run", "study.toml", "--out", "x", folder=tmp_path).stderr
    assert "that can be run:\n  title: is missing\n" in said


def test_warnings_speak_of_options_and_columns(place, tmp_path):
    arguments = ("--out", tmp_path / "m.safetensors", "--set.on_missing", "warn")
    said = done("fit", place / "no_pairs.npz", *arguments).stderr
    assert "mgpa: No pairs: pass a table with a pair_id column" in said
    assert "Returning the identity map (--set.on_missing warn)." in said


def test_an_error_says_what_was_being_done(place):
    pytest.importorskip("torch")
    arguments = ("--methods", "closed_form_mgpa", "--rank", "99", "--quick", "--out", "audited")
    result = here("audit", "whole.npz", *arguments, folder=place)
    assert result.returncode == 2
    assert "mgpa: --rank 99 does not fit 8 features; use 0 to 8. This happened while fitting" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "nothing.parquet", "--out", "x.safetensors"), "no file or folder nothing.parquet"),
        (("fit", "rec ördings.parquet", "--out", "map one.safetensors"), "exists; pass --overwrite"),
        (("fit", "rec ördings.parquet", "--out", "no/where.safetensors"), "does not exist; create it"),
        (("fit", "rec ördings.parquet", "--out", "x.safetensors", "--method", "laece"), "Did you mean leace"),
        (
            ("fit", "rec ördings.parquet", "--out", "x.safetensors", "--set.rigde", "1"),
            "closed_form_mgpa has no parameter 'rigde'",
        ),
        (("apply", "rec ördings.parquet", "map one.safetensors", "--out", "y.npz"), "mgpa:"),
        (("inspect", "map.bin"), "map.bin"),
        (("fit",), "mgpa fit needs TABLE"),
        (("correct",), "Unknown command"),
        (
            ("compare", "rec ördings.parquet", "--methods", "leace", "--against", "x", "--quick"),
            "--against is 'x'",
        ),
    ],
)
def test_mistakes_change_nothing_and_are_named(folder, arguments, message):
    before = sorted(path.name for path in folder.iterdir())
    result = here(*arguments, folder=folder)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "--people", "2.7", "--out", "x.npz"),
        ("simulate", "ssvep", "--people", "2.7", "--out", "x"),
        ("audit", "t.npz", "--out", "x", "--seeds", "1", "2.7"),
        ("fit", "t.npz", "--out", "x.safetensors", "--components", "2.7"),
    ],
)
def test_a_number_that_is_not_whole_is_not_rounded(tmp_path, arguments):
    result = here(*arguments, folder=tmp_path)
    assert result.returncode == 2
    assert "2.7 is no whole number" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "needs", "example"),
    [
        (("study", "run", "controlled-ssvep"), "mgpa study run needs --out: Folder for report.html", "--out"),
        (("study", "run"), "mgpa study run needs WHICH: The name of a packaged study", "--out"),
        (("study", "new"), "mgpa study new needs FILE: Where to write it.", "my-study.toml"),
        (
            ("data", "verify", "neuroscan_flex"),
            "mgpa data verify needs FOLDER: Where the files are.",
            "ssvep",
        ),
        (("fit",), "mgpa fit needs TABLE: ", "recordings.parquet"),
        (("simulate",), "mgpa simulate needs --out: A .parquet, .npz or .zarr file.", "recordings.parquet"),
    ],
)
def test_what_is_missing_is_named_explained_and_shown(arguments, needs, example):
    found = here(*arguments)
    assert found.returncode == 2
    first, *_, last = found.stderr.splitlines()
    assert first.startswith(needs)
    assert last.startswith(f"Example: mgpa {arguments[0]}")
    assert example in last


def test_a_misspelt_option_is_named_beside_what_is_missing():
    found = here("study", "run", "controlled-ssvep", "--ouut", "x")
    assert found.returncode == 2
    assert "mgpa study run needs --out: Folder" in found.stderr
    assert "There is no option --ouut." in found.stderr


def test_a_reader_that_leaves_is_no_error(folder):
    command = f"{sys.executable} -m mgpa methods | head -n 1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert result.stdout.startswith("name")
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


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
    assert (result.returncode, result.stderr) == (130, "mgpa: interrupted; nothing was begun.\n")


def test_everything_that_is_missing_is_said_at_once():
    said = here("fit").stderr
    assert said.startswith("mgpa fit needs TABLE: ")
    assert "\nand --out: Where to store the map.\n" in said


def test_a_csv_file_and_columns_of_other_names_are_led_to_convert(tmp_path):
    (tmp_path / "t.csv").write_text("f0,f1,device,subject\n1.0,2.0,a,p\n3.0,4.0,b,p\n")
    assert "mgpa convert" in refused("fit", tmp_path / "t.csv", "--out", tmp_path / "m.safetensors")
    done("convert", tmp_path / "t.csv", "--out", tmp_path / "t.npz", "--embedding", "f")
    said = refused("fit", tmp_path / "t.npz", "--out", tmp_path / "m.safetensors")
    assert "mgpa convert --rename.NAME source" in said


def test_columns_with_dots_and_spaces_in_their_names_can_be_renamed(tmp_path):
    (tmp_path / "t.csv").write_text("f0,f1,Sample No.,Instrument\n1.0,2.0,001,a\n3.0,4.0,001,b\n")
    done("convert", "t.csv", "--out", "raw.npz", "--embedding", "f", folder=tmp_path)
    said = refused("fit", "raw.npz", "--out", "m.safetensors", folder=tmp_path)
    assert """Is it there as THE NAME? Then mgpa convert --rename '{"THE NAME": "source"}'.""" in said
    names = '{"Sample No.": "pair_id", "Instrument": "source"}'
    done("convert", "t.csv", "--out", "t.npz", "--embedding", "f", "--rename", names, folder=tmp_path)
    assert open_table(tmp_path / "t.npz").read().pair_id.tolist() == ["001", "001"]


def test_a_terminal_without_the_letters_of_an_answer_shows_it(folder, tmp_path):
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [sys.executable, "-m", "mgpa", "fit", folder / "rec ördings.parquet", "--out", "ü.safetensors"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert r"\xb1" in result.stdout  # effect 1.0 ± 0.1


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_to_itself_is_something_that_is_there(folder, tmp_path):
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
    for command, *arguments in (
        ("fit", folder / "rec ördings.parquet", "--out", tmp_path / "m.safetensors"),
        (
            "apply",
            folder / "map one.safetensors",
            folder / "rec ördings.parquet",
            "--out",
            tmp_path / "t.npz",
        ),
        ("convert", folder / "rec ördings.parquet", "--out", tmp_path / "t.npz"),
    ):
        assert f"You may not write to the folder {tmp_path};" in refused(command, *arguments)
    assert not [*tmp_path.iterdir()]
