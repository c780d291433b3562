"""The command line as its users meet it: processes, files, odd names, interruptions."""

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mgpa
from simulated import simulated_table

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.tables.files import TableWriter, open_table, write_table

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "110", "NO_COLOR": "1"}


def mgpa_command(*arguments, folder=None, **options):
    return subprocess.run(
        [sys.executable, "-m", "mgpa", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=ENVIRONMENT,
        **options,
    )


def done(*arguments, **options):
    result = mgpa_command(*arguments, **options)
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def table():
    return simulated_table(n_people=24)


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    """A place with a space and an umlaut, a table and a map."""
    folder = tmp_path_factory.mktemp("Aufnahmen für alle")
    write_table(table, folder / "rec ördings.parquet")
    done("fit", "rec ördings.parquet", "--out", "map one.safetensors", folder=folder)
    return folder


def test_fit_apply_and_inspect(folder, table):
    m = mgpa.load_map(folder / "map one.safetensors")
    fit = table.rows("FIT")
    expected = mgpa.ClosedFormMGPA().fit(fit.X, source=fit.source, pair_id=fit.pair_id)
    np.testing.assert_allclose(m.transform(table.X), expected.transform(table.X), rtol=0, atol=1e-9)
    done("apply", "map one.safetensors", "rec ördings.parquet", "--out", "out.npz", folder=folder)
    np.testing.assert_array_equal(open_table(folder / "out.npz").read().X, m.transform(table.X))
    facts = json.loads(done("inspect", "map one.safetensors", "--json", folder=folder).stdout)
    assert facts["method"] == "ClosedFormMGPA"
    assert facts["sources"] == ["dry", "wet"]
    facts = json.loads(done("inspect", "out.npz", "--json", folder=folder).stdout)
    assert facts["rows"] == len(table)
    assert facts["counts"]["source"]["dry"] == (table.source == "dry").sum()
    assert "FIT" in done("inspect", "rec ördings.parquet", folder=folder).stdout


def test_parameters_are_read(folder):
    arguments = ("--method", "leace", "--set.ridge", "0.5", "--set.standardize", "false")
    done("fit", "rec ördings.parquet", "--out", "leace.safetensors", *arguments, folder=folder)
    parameters = mgpa.load_map(folder / "leace.safetensors").info.parameters
    assert parameters["ridge"] == 0.5
    assert parameters["standardize"] is False


def test_a_toml_file_gives_defaults(folder, tmp_path):
    (tmp_path / "mgpa.toml").write_text('[fit]\nmethod = "leace"\n')
    done("fit", folder / "rec ördings.parquet", "--out", "m.safetensors", folder=tmp_path)
    assert mgpa.load_map(tmp_path / "m.safetensors").info.method == "LEACE"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[fti]\nmethod = "leace"',
            "mgpa.toml has a section 'fti', which is no command of mgpa. Did you mean fit?",
        ),
        ("[audit]\nquik = true", "[audit] in mgpa.toml has a key 'quik', which is no option of mgpa audit."),
        ("[data.fech]\nout = 'x'", "[data] in mgpa.toml has a section 'fech'"),
        ("quick = true", "mgpa.toml has a key 'quick', which is no command"),
        ("fit = 3", "fit is a command and wants a section"),
        ("[fit", "mgpa.toml is not a TOML file"),
    ],
)
def test_a_mistake_in_the_toml_file_is_named(tmp_path, text, message):
    (tmp_path / "mgpa.toml").write_text(text)
    result = mgpa_command("methods", folder=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_toml_file_may_have_sections_of_any_command(folder, tmp_path):
    text = '[fit]\nmethod = "leace"\n[fit.set]\nridge = 0.25\n'
    text += "[data.fetch]\ndry_run = true\n[simulate.flex]\nseed = 1"
    (tmp_path / "mgpa.toml").write_text(text)
    done("fit", folder / "rec ördings.parquet", "--out", "m.safetensors", folder=tmp_path)
    assert mgpa.load_map(tmp_path / "m.safetensors").info.parameters["ridge"] == 0.25


def test_inspecting_a_map_tells_everything_about_it(folder):
    facts = json.loads(done("inspect", "map one.safetensors", "--json", folder=folder).stdout)
    m = mgpa.load_map(folder / "map one.safetensors")
    assert facts["gate"] == {"rank": m.info.gate_rank, "energy": m.info.gate_energy}
    assert facts["parameters"]["ridge"] == 10.0
    assert facts["notes"] == ""
    assert facts["seed"] is None
    arguments = ("fit", "rec ördings.parquet", "--method", "iterative_mgpa", "--seed", "3")
    arguments += ("--set.n_stages", "2", "--set.critics", '["linear"]')
    done(*arguments, "--out", "it.safetensors", folder=folder)
    facts = json.loads(done("inspect", "it.safetensors", "--json", folder=folder).stdout)
    assert facts["seed"] == 3
    assert facts["stages"] <= 2


def test_a_fit_says_what_unseen_pairs_say_about_the_gate(folder, tmp_path):
    found = done("fit", "rec ördings.parquet", "--out", "r1.safetensors", "--rank", "1", folder=folder)
    assert "of contrast energy, 5-fold by participant" in found.stdout
    assert "Hint" not in found.stdout
    rng = np.random.default_rng(0)
    event, on_b = np.repeat(np.arange(150), 2), np.tile([0, 1], 150)
    X = rng.normal(size=(150, 24))[event] + 2.0 * np.outer(on_b, np.eye(24)[0])
    X += 0.3 * rng.normal(size=X.shape)  # a shift of rank one, and noisy pairs
    table = mgpa.tables.Table(X, source=on_b, pair_id=event, participant=event // 10)
    write_table(table, tmp_path / "noisy.parquet")
    found = done("fit", "noisy.parquet", "--out", "m.safetensors", "--json", folder=tmp_path)
    facts = json.loads(found.stdout)
    assert facts["gate"]["rank"] > 6
    assert facts["held_out_coverage"] < facts["gate"]["energy"]
    assert f"only 1 of {facts['gate']['rank']} directions hold" in facts["hints"][0]
    assert "Consider --rank 1." in facts["hints"][0]


def test_a_fit_on_a_cluster_has_the_same_bits(folder):
    pytest.importorskip("distributed")
    done("fit", "rec ördings.parquet", "--out", "c.safetensors", "--scheduler", "local", folder=folder)
    expected = (folder / "map one.safetensors").read_bytes()
    assert (folder / "c.safetensors").read_bytes() == expected


def test_errors_speak_of_options_not_of_python(folder, tmp_path):
    loose = simulated_table(n_people=8, pair_id=None)
    write_table(loose, tmp_path / "loose.parquet")
    result = mgpa_command("fit", "loose.parquet", "--out", "m.safetensors", folder=tmp_path)
    assert "give the table a pair_id column, or pass a table that has one with --pairs" in result.stderr
    assert "pairs=" not in result.stderr
    made = mgpa_command("simulate", "--out", "loose.parquet", folder=tmp_path)
    assert "exists; pass --overwrite to replace it" in made.stderr
    (tmp_path / "t.csv").write_text("device,a,b\ndry,1,2\n")
    result = mgpa_command("convert", "t.csv", "--out", "t.parquet", folder=tmp_path)
    assert result.returncode == 2
    assert "--embedding" in result.stderr
    assert "embedding=" not in result.stderr


def test_select_and_export(folder):
    arguments = ("select", "map one.safetensors", "rec ördings.parquet", "--budget", "0.05", "--json")
    found = json.loads(done(*arguments, "--out", "small.safetensors", folder=folder).stdout)
    assert found["movement"] == 0.05
    assert mgpa.load_map(folder / "small.safetensors").strength == pytest.approx(found["strength"])
    refused = mgpa_command(*arguments[:3], "--budget", "50", "--out", "big.safetensors", folder=folder)
    assert refused.returncode == 2
    assert "not attained" in refused.stderr
    pytest.importorskip("onnx")
    done("export", "map one.safetensors", "--out", "map.onnx", folder=folder)
    assert (folder / "map.onnx").stat().st_size > 100
    done("export", "map one.safetensors", "--out", "map.pt", folder=folder)
    assert (
        "neither ONNX" in mgpa_command("export", "map one.safetensors", "--out", "m.x", folder=folder).stderr
    )


def test_audit_and_compare(folder):
    names = ("--methods", "leace", "closed_form_mgpa", "map one.safetensors", "--quick")
    found = done("audit", "rec ördings.parquet", "--out", "audit", *names, "--json", folder=folder)
    facts = json.loads(found.stdout)
    assert facts["estimates"]["closed_form_mgpa"]["S"][0] < facts["estimates"]["identity"]["S"][0]
    assert set(facts["verdicts"]) == {"leace", "closed_form_mgpa", "map one"}
    for name in ("report.html", "table.csv", "table.tex"):
        assert (folder / "audit" / name).stat().st_size > 0
    assert list((folder / "audit" / "figures").glob("*.pdf"))
    command = ("compare", "rec ördings.parquet", "--out", "audit", "--against", "leace", "--quick", "--json")
    again = done(*command, *names[:3], folder=folder)
    contrasts = json.loads(again.stdout)["contrasts"]
    assert contrasts["closed_form_mgpa"]["S"][2] < 0
    assert "3 of them finished before" in again.stderr
    lines = (folder / "audit" / "contrasts.csv").read_text().splitlines()
    assert lines[0] == "method,against,metric,difference,low,high"
    written = {tuple(line.split(",")[:3]): float(line.split(",")[3]) for line in lines[1:]}
    assert written["closed_form_mgpa", "leace", "S"] == contrasts["closed_form_mgpa"]["S"][0]
    assert ("leace", "leace", "S") not in written
    assert r"\toprule" in (folder / "audit" / "contrasts.tex").read_text()


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
def test_mistakes_are_answered_in_one_line(folder, arguments, message):
    before = sorted(path.name for path in folder.iterdir())
    result = mgpa_command(*arguments, folder=folder)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


def test_every_command_teaches(folder):
    listed = done("--help").stdout
    commands = ("fit", "apply", "audit", "compare", "select", "inspect", "export", "simulate", "demo")
    for command in (*commands, "methods", "doctor"):
        assert command in listed
        assert f"Example: mgpa {command}" in " ".join(done(command, "--help").stdout.split())
    assert "leace" in done("methods").stdout
    assert json.loads(done("methods", "--json").stdout)["methods"][0]["name"] == "closed_form_mgpa"
    assert json.loads(done("doctor", "--json").stdout)["packages"]["numpy"] == np.__version__
    assert done("--version").stdout.strip() == mgpa.__version__


def test_the_doctor_says_what_is_installed_and_does_not_load(tmp_path):
    pytest.importorskip("braindecode")
    assert json.loads(done("doctor", "--json").stdout)["broken"] == {}
    # As beside a torch that it was not built for.
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio" / "__init__.py").write_text("raise OSError('libcudart.so.13: no such file')")
    code = "import sys; from mgpa.cli import main; sys.exit(main(['doctor']))"
    environment = ENVIRONMENT | {"PYTHONPATH": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr
    for name in ("torchaudio", "braindecode"):
        line = next(line for line in found.stdout.splitlines() if line.split()[0] == name)
        assert "installed, does not load: OSError: libcudart.so.13: no such file" in line
    assert "python tools/mend_torchaudio.py" in found.stdout


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
    found = mgpa_command(*arguments)
    assert found.returncode == 2
    first, last = found.stderr.splitlines()
    assert first.startswith(needs)
    assert last.startswith(f"Example: mgpa {arguments[0]}")
    assert example in last


def test_a_misspelt_option_is_named_beside_what_is_missing():
    found = mgpa_command("study", "run", "controlled-ssvep", "--ouut", "x")
    assert found.returncode == 2
    assert "mgpa study run needs --out: Folder" in found.stderr
    assert "There is no option --ouut." in found.stderr


def test_the_documented_commands_and_settings_are_understood(tmp_path, monkeypatch):
    from mgpa.cli import app
    from mgpa.cli.settings import check_settings

    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("mgpa ") and "--install" not in line]
    assert len(lines) > 15
    monkeypatch.chdir(tmp_path)
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        function, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        assert callable(function), line
        assert bound is not None
    settings = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mgpa.toml").write_text(settings.group(1))
    check_settings()


def test_a_csv_file_becomes_a_table_with_roles(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = simulated_table(n_people=12, role=None)
    frame = pandas.DataFrame(table.X, columns=[f"f{i}" for i in range(8)])
    frame = frame.assign(device=table.source, subject=table.participant, pair_id=table.pair_id)
    frame.to_csv(tmp_path / "raw.csv", index=False)
    arguments = (
        "--embedding",
        "f",
        "--rename.device",
        "source",
        "--rename.subject",
        "participant",
        "--roles",
    )
    done("convert", "raw.csv", "--out", "t.parquet", *arguments, folder=tmp_path)
    made = open_table(tmp_path / "t.parquet").read()
    np.testing.assert_allclose(made.X, table.X, rtol=1e-12)
    assert set(made.role) == {"FIT", "VAL", "HEAD", "EVAL"}
    done("fit", "t.parquet", "--out", "m.safetensors", "--rank", "1", folder=tmp_path)
    assert mgpa.load_map(tmp_path / "m.safetensors").info.gate_rank == 1
    kept = mgpa_command(
        "apply", "m.safetensors", "t.parquet", "--out", "t.parquet", "--overwrite", folder=tmp_path
    )
    assert kept.returncode == 2
    assert "name another output" in kept.stderr


def test_pairs_of_another_table_are_its_fit_rows(folder, table):
    arguments = (
        "fit",
        "rec ördings.parquet",
        "--pairs",
        "rec ördings.parquet",
        "--out",
        "paired.safetensors",
    )
    done(*arguments, folder=folder)
    with_roles = mgpa.load_map(folder / "paired.safetensors").info.n_contrasts
    assert with_roles == mgpa.load_map(folder / "map one.safetensors").info.n_contrasts


def test_the_demo_ends_with_a_report(tmp_path):
    found = done("demo", "--out", tmp_path / "demo")
    assert "closed_form_mgpa: The source became harder to read" in found.stdout
    for name in ("recordings.parquet", "adapter.safetensors", "corrected.parquet", "audit/report.html"):
        assert (tmp_path / "demo" / name).exists()


def test_a_reader_that_leaves_is_no_error(folder):
    command = f"{sys.executable} -m mgpa methods | head -n 1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert result.stdout.startswith("name")
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


def test_an_interrupt_keeps_finished_parts_and_another_run_finishes(folder, tmp_path):
    table = open_table(folder / "rec ördings.parquet").read()
    big = mgpa.tables.Table(np.tile(table.X, (4, 1)), source=np.tile(table.source, 4))
    with TableWriter(tmp_path / "in", big, rows=[len(big)] * 60) as writer:
        for i in range(60):
            writer.write(i, big)
    arguments = [
        "apply",
        str(folder / "map one.safetensors"),
        str(tmp_path / "in"),
        "--out",
        str(tmp_path / "out"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "mgpa", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    partial = tmp_path / "out.partial" / "done"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if partial.is_dir() and len(list(partial.iterdir())) >= 2:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    if process.returncode != 0:  # it may have been quicker than us
        assert process.returncode == 130
        assert b"interrupted" in stderr
        assert not (tmp_path / "out").exists()
        done(*arguments)
    m = mgpa.load_map(folder / "map one.safetensors")
    written = open_table(tmp_path / "out")
    assert written.n_rows == 60 * len(big)
    np.testing.assert_allclose(written.parts[59].read().X, m.transform(big.X), atol=1e-12)


def test_a_full_disk_leaves_nothing_half_written(folder, tmp_path):
    def limit():
        signal.signal(
            signal.SIGXFSZ, signal.SIG_IGN
        )  # writing beyond the limit is an error, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    inputs = (folder / "map one.safetensors", folder / "rec ördings.parquet")
    result = mgpa_command("apply", *inputs, "--out", tmp_path / "out.npz", preexec_fn=limit)
    assert result.returncode == 2, result.stderr
    assert "mgpa:" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_an_error_not_a_crash(folder, tmp_path):
    tmp_path.chmod(0o500)
    arguments = ("fit", folder / "rec ördings.parquet", "--out", tmp_path / "m.safetensors")
    result = mgpa_command(*arguments)
    tmp_path.chmod(0o700)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_a_map_of_components_takes_raw_features(tmp_path):
    done("simulate", "--out", "raw.parquet", folder=tmp_path)
    fitted = done("fit", "raw.parquet", "--out", "m.safetensors", "--components", 5, folder=tmp_path)
    assert "5 principal components of 16 raw features" in fitted.stdout
    done("apply", "m.safetensors", "raw.parquet", "--out", "out.parquet", folder=tmp_path)
    out, raw = (open_table(tmp_path / name).read() for name in ("out.parquet", "raw.parquet"))
    np.testing.assert_allclose(out.X, mgpa.load_map(tmp_path / "m.safetensors").from_raw(raw.X))
    assert out.source.tolist() == raw.source.tolist()
    wrong = mgpa_command("fit", "raw.parquet", "--out", "n.safetensors", "--components", 99, folder=tmp_path)
    assert wrong.returncode == 2
    assert "have at most 16" in wrong.stderr
