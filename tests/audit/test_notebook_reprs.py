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
    assert f"<th>S</th><td>{result['leace'].estimate('S')}</td>" in result["leace"]._repr_html_()


def test_tables_methods_and_pairs_have_html(table):
    assert "<td>2 different: dry, wet</td>" in table._repr_html_()
    assert list_methods()._repr_html_().count("<tr>") == len(list_methods()) + 1
    assert "<th>" in audit.check_pairs(table)._repr_html_()


def test_tiles_and_tables_of_a_method_with_a_reference_are_of_the_decoder_it_keeps():
    from mgpa.audit.report import html_report

    rows = mgpa.tables.simulate_table(24, overlap=0.5, device_effect=8.0)
    model = mgpa.MGPA(reference="dry")
    result = audit.run(rows, {"mgpa": model}, readers={"restarts": 0}, seeds=(17,), folds=1, verbose=False)
    value = result["mgpa"].estimate("home dry").value
    tiles = html_report(result, figures={}).partition('class="tiles"')[2][:2000]
    assert "accuracy at home, heads of dry" in tiles
    assert f"→ {value:.3f}".replace("0.", ".") in tiles
    for name in ("identity", "mgpa"):
        (row,) = (line for line in str(result).splitlines() if line.startswith(f"{name} "))
        assert f" {result[name].estimate('home dry')} " in row
    assert "Existing heads (home, away, T_f): those trained on dry alone." in str(result)
    assert result.estimates["mgpa"]["home"].value < value  # the mean with heads of wet, whose rows move
