"""A few mutations of everything, every time; ``make fuzz`` tries a hundred thousand."""

import random

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("zarr")
pytest.importorskip("cyclopts")
pytest.importorskip("pooch")
pytest.importorskip("pydantic")
pytest.importorskip("torch")

from targets import FAULT, TARGETS, WRONG, Listings, Maps, outcome


@pytest.mark.parametrize("name", TARGETS)
def test_damage_is_refused_or_changes_nothing(name, tmp_path):
    target = TARGETS[name][0](tmp_path)
    for i in range(20):
        result, error = outcome(target, random.Random(f"0/{name}/{i}"))
        assert result not in (WRONG, FAULT), f"{name} {i}: {error!r}"


def test_the_driver_notices_a_wrong_answer_and_a_fault(tmp_path, monkeypatch):
    target = Maps(tmp_path)
    whole = tmp_path / "0.safetensors"
    other = tmp_path / "1.safetensors"
    target.files = [(other.read_bytes(), target.files[0][1])]
    monkeypatch.setattr("targets.mutated", lambda content, rng: content)
    assert outcome(target, random.Random(0)) == (WRONG, None)
    target.files = [(whole.read_bytes(), None)]
    assert outcome(target, random.Random(0))[0] == FAULT


def test_mutations_repeat(tmp_path):
    first, second = (Listings(tmp_path), Listings(tmp_path))
    for i in range(5):
        assert outcome(first, random.Random(i))[0] == outcome(second, random.Random(i))[0]
