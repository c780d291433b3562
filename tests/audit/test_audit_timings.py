"""What a store knows of the time cells took."""

import pytest

from mgpa.audit.store import Store


def test_timings_are_means_and_survive_a_line_that_was_cut_off(tmp_path):
    store = Store(tmp_path)
    with store.timed("fit a"):
        pass
    with pytest.raises(ZeroDivisionError), store.timed("fit b"):
        1 / 0  # noqa: B018
    with open(tmp_path / "timings.jsonl", "a") as stream:
        stream.write('["measure", 1.0]\n["measure", 3.0]\n["meas')
    found = store.timings()
    assert found["measure"] == 2
    assert set(found) == {"fit a", "measure"}
    with Store().timed("fit a"):
        pass
    assert Store().timings() == {}
