"""Where the outputs of the authors' code lie, on machines that have them."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
FIXTURES = SHARED / "fixtures"

needs_shared = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the authors' fixtures are not on this machine"
)
