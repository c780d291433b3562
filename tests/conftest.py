"""Fixtures that several files share."""

import pytest

from parity import CASES, load_parity


@pytest.fixture(scope="session", params=CASES)
def authors(request):
    """Return what the authors' code gave: see :mod:`parity`."""
    return load_parity(request.param)
