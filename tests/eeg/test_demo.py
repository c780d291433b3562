"""The EEG demonstration ends in a success."""

import numpy as np

from mgpa import audit
from mgpa.eeg.demo import demo_table


def test_the_demo_is_a_success(tmp_path):
    table = demo_table(tmp_path, n_people=12, n_events=20)
    assert len(list(tmp_path.glob("S0*_raw.fif"))) == 24
    assert len(table.require_pairs()) == 480
    assert table.info["feature_names"][:2] == ["Fz delta", "Fz theta"]
    np.testing.assert_array_equal(table.X, demo_table(tmp_path).X)  # the files are read again
    result = audit.run(table, ["closed_form_mgpa"], readers={"restarts": 0}, verbose=False)
    before, after = result["identity"], result["closed_form_mgpa"]
    assert before.S > 0.95
    assert after.S < 0.6
    assert after.estimate("T_f").value > before.estimate("T_f").value - 0.02
