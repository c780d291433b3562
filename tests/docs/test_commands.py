"""Tables of measured numbers name the command that printed them, and every named command exists."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "do_no_harm.md",
    "baselines.md",
    "performance.md",
    "studies/corn.md",
    "studies/kalunga.md",
    "bench.md",
]
COMMAND = re.compile(
    r"(?:^|[`=\d] ?)((?:python [\w./]+\.py|mgpa (?!to|closed)[a-z-]+|make \w+)[^`\n]*)", re.MULTILINE
)


def sections(text):
    """Return the text of a page from each heading to the next."""
    without_comments = re.sub(
        r"^```.*?^```", lambda code: code[0].replace("\n#", "\n "), text, flags=re.M | re.S
    )
    return re.split(r"^(?=#+ )", without_comments, flags=re.MULTILINE)[1:]


def measured(table):
    """Return whether a table has measured numbers in it."""
    return len(re.findall(r"[|/ ][-+–]?\d*\.\d+", table)) >= 3


@pytest.mark.parametrize("page", PAGES)
def test_every_measured_table_has_a_command_in_its_section(page):
    for section in sections((ROOT / "docs" / page).read_text("utf-8")):
        tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
        if any(measured(table) for table in tables):
            heading = re.findall(r"^#+ .*", section, re.MULTILINE)[-1]
            assert COMMAND.search(section), f"{page}, {heading}: no command"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_the_page_exists(page):
    pytest.importorskip("cyclopts")
    from mgpa.cli import app

    for command in COMMAND.findall((ROOT / "docs" / page).read_text("utf-8")):
        first, name, *rest = shlex.split(command, comments=True)
        options = {word for word in rest if word.startswith("--")}
        if first == "make":
            assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE), command
        elif first == "mgpa":
            described = app[name]
            if name == "study":
                if not rest:  # the group alone, which must exist
                    continue
                described = described[rest[0]]
            known = {name for argument in described.assemble_argument_collection() for name in argument.names}
            assert options <= known, command
        else:
            homes = [ROOT / name, *(ROOT / "examples").rglob(Path(name).name)]
            script = next((path for path in homes if path.exists()), None)
            assert script, command
            assert all(f'"{option}"' in script.read_text("utf-8") for option in options), command


def test_a_small_version_of_the_comparison_needs_no_data(tmp_path):
    """The tables of do_no_harm.md, of a few settings that this repository makes."""
    command = [sys.executable, ROOT / "benchmarks" / "trade_off.py", "--small", "--out", "small.json"]
    command += ["--methods", "identity", "MGPA", "paired regression (told)"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "| method | home | away | S | T_f | A | M | worst change of T_f |" in printed
    worlds = json.loads((tmp_path / "small.json").read_text("utf-8"))["world"]
    for cells in worlds.values():
        assert cells["MGPA"]["away"] > cells["identity"]["away"]


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Return a folder with small made-up files of the names and arrays of the public ones."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    content = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 48))
    shifts = rng.normal(size=(3, 48))
    np.savez(
        folder / "corn_nir.npz",
        spectra=content[:, None] + shifts + 0.05 * rng.normal(size=(80, 3, 48)),
        instruments=["m5", "mp5", "mp6"],
        targets=content[:, :4] + 0.1 * rng.normal(size=(80, 4)),
        target_names=["moisture", "oil", "protein", "starch"],
    )
    n, label = 320, np.tile(["SEATED", "WALKING"], 160)
    phone = rng.normal(size=(n, 6)) + 2 * (label == "WALKING")[:, None]
    participant = np.repeat([f"s{k:02d}" for k in range(10)], n // 10)
    np.savez(folder / "phone_watch.npz", phone=phone, watch=phone + 1, label=label, participant=participant)
    n, label = 120, np.tile(["13Hz", "21Hz"], 60)
    people = np.repeat([f"S{k:02d}" for k in range(1, 13)], n // 12)
    flicker = np.sin(2 * np.pi * np.where(label == "13Hz", 13, 21)[:, None] * np.arange(512) / 256)
    channels = ["Oz", "O1", "O2", "PO3", "POz", "PO7", "PO8", "PO4"]
    X = flicker[:, None] + rng.normal(size=(n, len(channels), 512))
    kalunga = {"label": label, "participant": people, "session": people}
    np.savez(folder / "kalunga_epochs.npz", X=X, channels=channels, sfreq=256, **kalunga)
    car = rng.normal(size=(n, len(channels), 12)) + (label == "21Hz")[:, None, None]
    oz = car + rng.normal(size=12) + 0.1 * rng.normal(size=car.shape)
    np.savez(folder / "kalunga_gssc_tokens.npz", car=car, oz=oz, **kalunga)
    return folder


SMALL = {  # a command of the page with fewer methods or rounds: how many measured rows its table has
    "python benchmarks/baselines.py DS --corn corn_nir.npz": 3,
    "python benchmarks/real_methods.py phone_watch.npz identity leace": 4,
    "python benchmarks/real_methods.py kalunga_epochs.npz euclidean_alignment cmmn": 2,
    "python benchmarks/run.py affine": 4,
    "python examples/studies/moisture.py corn_nir.npz --methods LEACE EPO --quick": 3,
}


@pytest.mark.parametrize("command", SMALL)
def test_the_command_of_a_table_runs_on_files_of_the_public_format(command, stand_ins):
    _, script, *rest = command.split()
    pages = " ".join((ROOT / "docs" / page).read_text("utf-8") for page in PAGES)
    assert f"python {script}" in pages or f"python {Path(script).name}" in pages
    printed = subprocess.run(
        [sys.executable, ROOT / script, *rest], cwd=stand_ins, capture_output=True, text=True, check=True
    ).stdout
    rows = [line for line in printed.splitlines() if len(re.findall(r"\.\d\d", line)) >= 2]
    assert len(rows) == SMALL[command], printed


@pytest.mark.parametrize(
    ("data", "study", "options"),
    [
        ("corn_nir", "corn", []),
        ("corn_nir", "corn-reuse", ["--sources", "m5", "mp6"]),
        ("kalunga_gssc_tokens", "kalunga-within", []),
        ("kalunga_gssc_tokens", "kalunga-tokens-joint", ["--tokens"]),
    ],
)
def test_the_studies_of_the_tutorials_run_on_files_of_the_public_format(data, study, options, stand_ins):
    from mgpa.paper import load_study, run_study

    STUDIES = ROOT / "examples" / "studies"
    path = stand_ins / f"{study}.npz"
    make = [sys.executable, STUDIES / "make_tables.py", stand_ins / f"{data}.npz", path, *options]
    subprocess.run(make, check=True, capture_output=True)
    plan = load_study(STUDIES / f"{study}.toml")
    kept = ["LEACE", *(name for name in plan.methods if "MGPA" in name)][:2]
    plan = load_study(
        STUDIES / f"{study}.toml",
        quick=True,
        recordings=path,
        roles={"rotations": [0]},
        readers={"restarts": 0, "checkpoints": [12]},
        methods={name: False for name in plan.methods if name not in kept},
        **({"reuse": {"tasks": ["moisture", "oil"]}} if plan.reuse else {}),
    )
    audits = run_study(plan, stand_ins / study, verbose=False).audits
    assert set(audits) == set(plan.reuse.tasks if plan.reuse else plan.data.named_tasks)
    for audit in audits.values():
        assert set(audit.estimates) == {"identity", *kept} & {"identity", *plan.methods}
