"""The README's quickstart and the demo run as printed."""

import re
from pathlib import Path

import numpy as np
import pytest

import mgpa

ROOT = Path(__file__).resolve().parents[2]


def test_quickstart_runs_and_keeps_the_decoder(tmp_path, monkeypatch, capsys):
    quickstart = r"## Quickstart\s+```python\n(.*?)```\s+```text\n(.*?)```"
    code = re.search(quickstart, (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code.group(1), names)
    lines = [line for line in code.group(1).splitlines() if line.strip()]
    assert len(lines) <= 15
    assert capsys.readouterr().out == code.group(2)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_thing_shown_is_an_audit_in_three_lines_that_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    block = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[0]
    assert len([line for line in block.splitlines() if line and "import" not in line]) == 3
    mgpa.tables.write_table(mgpa.tables.simulate_table(12), tmp_path / "embeddings.parquet")
    small = {"readers": {"restarts": 0}, "seeds": (17,), "verbose": False, "folds": 1}
    run = mgpa.audit.run
    monkeypatch.setattr(mgpa.audit, "run", lambda *args: run(*args, **small))
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(block, names)
    assert names["result"].methods == ("identity", "leace", "mgpa")
    assert "MGPA" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/start/quickstart.md"])
def test_installation_names_the_torch_that_the_constraints_pin(page):
    pinned = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]
    text = (ROOT / page).read_text()
    cpu_first = text.index(f"pip install {pinned} --index-url https://download.pytorch.org/whl/cpu")
    # Nothing that only a checkout has: whoever has the wheel types the same.
    assert "constraints.txt" not in text
    assert cpu_first < text.index("pip install '.[cli,torch]'", cpu_first)


@pytest.mark.parametrize("page", ["baselines", "audit"])
def test_the_pages_examples_run(page, tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL)
    assert blocks
    rng = np.random.default_rng(0)
    person, event = np.repeat(np.arange(16), 16), np.repeat(np.arange(128), 2)
    device, task = np.tile(["dry", "wet"], 128), np.repeat(np.arange(128) % 2, 2)
    X = rng.normal(size=(128, 5))[event] + (device == "wet")[:, None] + task[:, None] * np.eye(5)[1]
    names = {"X": X, "y": task, "task": task, "person": person, "event": event, "device": device}
    names |= {"source": device, "X_new": X, "source_new": device, "pairs": (X[::2], X[1::2])}
    monkeypatch.chdir(tmp_path)
    if page == "audit":
        small = {"readers": {"restarts": 0}, "seeds": (17,), "verbose": False}
        run = mgpa.audit.run
        monkeypatch.setattr(mgpa.audit, "run", lambda *args, **known: run(*args, **(known | small)))
    for block in blocks:
        exec(block, names)
    if page == "audit":
        assert (tmp_path / "report.html").stat().st_size > 10_000
        assert "Your embeddings reveal the source" in capsys.readouterr().out
