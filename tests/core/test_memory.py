"""What cannot fit into memory is refused before it is begun."""

import os

import pytest

from mgpa._common import checks
from mgpa.errors import NotEnoughMemory


def test_what_fits_passes_and_what_does_not_is_refused_with_both_sizes(monkeypatch):
    monkeypatch.setattr(checks, "total_memory", lambda: 3 * 2.0**30)
    checks.require_memory(3 * 2.0**30, "Two matrices", "Take one.")
    with pytest.raises(
        NotEnoughMemory, match=r"Two matrices need 4 GiB of memory; this machine has 3 GiB\. Take one\."
    ):
        checks.require_memory(4 * 2.0**30, "Two matrices", "Take one.")


@pytest.mark.parametrize(("limit", "expected"), [("4096\n", 4096.0), ("max\n", None), (None, None)])
def test_a_container_has_what_it_may_have(limit, expected, tmp_path, monkeypatch):
    path = tmp_path / "memory.max"
    if limit is not None:
        path.write_text(limit)
    monkeypatch.setattr(checks, "CGROUP_LIMIT", path)
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    assert checks.total_memory() == (machine if expected is None else expected)


def test_a_system_that_does_not_say_has_no_limit(monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    assert checks.total_memory() == float("inf")
