"""What a notebook shows of a table, a result and its parts: one line each, or HTML."""

import pytest

import mgpa
from mgpa import audit
from mgpa.baselines import list_methods
from simulated import simulated_table


@pytest.fixture(scope="module")
def table():
    return simulated_table(n_people=12)


def test_results_are_one_line(table):
    result = audit.run(table, ["leace"], readers={"restarts": 0}, seeds=(17,), folds=1, verbose=False)
    model = mgpa.MGPA().fit(table.X, source=table.source, pair_id=table.pair_id)
    shown = [result["leace"], model.effect_, model.spread_, model.reading_, model.to_map().check(table.X)]
    shown += [audit.check_pairs(table), result["leace"].estimate("S")]
    for value in shown:
        text = repr(value)
        assert len(text.splitlines()) == 1, text
        assert len(text) < 400, text
    assert "S ." in repr(result["leace"])


def test_tables_methods_and_pairs_have_html(table):
    assert "<td>2 different: dry, wet</td>" in table._repr_html_()
    assert list_methods()._repr_html_().count("<tr>") == len(list_methods()) + 1
    assert "<th>" in audit.check_pairs(table)._repr_html_()
