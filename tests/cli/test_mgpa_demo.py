"""`mgpa demo`."""

import pytest

from terminal import done

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")


def test_the_demo_ends_with_a_report(tmp_path):
    found = done("demo", "--out", tmp_path / "demo")
    assert "Best here, source-blind: Closed-form MGPA\n" in found.stdout
    assert "  The source became harder to read" in found.stdout
    for name in ("recordings.parquet", "adapter.safetensors", "corrected.parquet", "audit/report.html"):
        assert (tmp_path / "demo" / name).exists()
