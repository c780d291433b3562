"""The page on adding a method and a data set runs as printed."""

import json
import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "maintainers" / "add_bench.md").read_text("utf-8")


def test_a_method_and_a_data_set_are_added_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    code = [len([line for line in block.splitlines() if line.strip()]) for block in blocks]
    assert code[0] <= 24
    assert code[1] <= 30
    exec(compile("\n".join(blocks), "add_bench.md", "exec"), {})
    worlds = json.loads(Path("half_shift/worlds.json").read_text())["settings"]["shift, 60 rows"]
    assert worlds["half shift"]["S"][0] < worlds["no correction"]["S"][0]
    rings = json.loads(Path("rings/rings.json").read_text())["settings"]["rest or walk"]
    assert rings["MGPA to the reference"]["away"][0] > rings["no correction"]["away"][0]
    assert "rings/results.md" in capsys.readouterr().out
