"""Every fact about the providers' files names tests, and they exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "maintainers" / "real_files.md").read_text("utf-8")


def test_every_fact_names_tests_that_exist():
    source = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
    facts = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| fact")]
    assert len(facts) > 30
    for fact in facts:
        named = re.findall(r"`(test_\w+)`", fact)
        assert named, fact
        assert set(named) <= defined, set(named) - defined
