"""What is said of tables with known answers: the sentence itself."""

import re
from dataclasses import replace

import numpy as np
import pytest

import mgpa
from mgpa import audit
from mgpa.audit.chance import compare, permuted_auroc
from mgpa.audit.report import contrast_csv, html_report, ranking
from mgpa.tables import Table

QUICK = {"readers": {"restarts": 0}, "verbose": False, "folds": 1}


def people(counts, rows, rng, shape=(8,)):
    """Return noise of so many people in every role, half of everybody's rows from each source."""
    role = np.repeat(["FIT", "HEAD", "EVAL"], counts)
    person = np.repeat(np.arange(len(role)), rows)
    source = np.tile(["dry", "wet"], len(person) // 2)
    return rng.normal(size=(len(person), *shape)), source, person, role[person]


def made(X, source, person, role, **columns):
    return Table(X, source=source, participant=[f"p{p:02d}" for p in person], role=role, **columns)


def nothing(seed=0, counts=(8, 8, 8), rows=20):
    return made(*people(counts, rows, np.random.default_rng(seed)))


def shifted(counts=(8, 8, 8), size=3.0):
    X, source, person, role = people(counts, 40, np.random.default_rng(0))
    X[:, 0] += size * (source == "wet")
    return made(X, source, person, role, label=np.arange(len(X)) // 2 % 2)


def spread():
    X, source, person, role = people((8, 8, 8), 60, np.random.default_rng(0))
    X[:, 0] *= np.where(source == "wet", 3.0, 1.0)
    return made(X, source, person, role)


def products():
    """What tells the device is whether two features have one sign: their product, and nothing linear."""
    X, source, person, role = people((8, 8, 8), 60, np.random.default_rng(0))
    X[:, 1] = np.abs(X[:, 1]) * np.sign(X[:, 0]) * np.where(source == "wet", 1.0, -1.0)
    return made(X, source, person, role)


def one_token():
    X, source, person, role = people((8, 8, 8), 40, np.random.default_rng(0), shape=(4, 3))
    X[:, 2, 0] += 2.0 * (source == "wet")
    X[:, 1, 0] -= 2.0 * (source == "wet")  # the mean of the tokens says nothing
    return made(X, source, person, role)


def nested():
    X, source, person, role = people((8, 8, 8), 40, np.random.default_rng(0))
    trait = np.random.default_rng(1).normal(size=(24, 8))[person]
    source = np.where(role == "EVAL", source, np.where(person % 2, "wet", "dry"))
    return made(X + 4 * trait, source, person, role)


def half_seen_by_pairs():
    """Two directions tell the device; between the two views of an event only the first differs."""
    X, source, person, role = people((8, 8, 8), 40, np.random.default_rng(0))
    event = np.arange(len(X)) // 2
    X = X[2 * event] + 0.05 * X
    X[:, 0] += 3.0 * (source == "wet")
    paired = event % 4 == 0
    X[:, 1] += 3.0 * ((source == "wet") & ~paired)
    return made(X, source, person, role, pair_id=np.where(paired, event, -1))


def mixed():
    """The second device mixes all features anew, a little, besides a shift: no one map undoes that."""
    rng = np.random.default_rng(0)
    X, source, person, role = people((10, 8, 8), 80, rng)
    event = np.arange(len(X)) // 2
    mixing = np.eye(8) + 0.35 * rng.normal(size=(8, 8)) / np.sqrt(8)
    seen = X[2 * event]
    X = np.where((source == "wet")[:, None], seen @ mixing + 0.5, seen) + 0.05 * X
    return made(X, source, person, role, pair_id=event)


def of(table, *methods):
    return audit.run(table, methods, **QUICK)


def text_of(result):
    html = re.sub(r"<(script|style)\b.*?</\1>", " ", html_report(result), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_pure_noise():
    result = of(nothing(), "leace")
    assert result.verdict("identity")[0].startswith(
        "Uncorrected, the source is indistinguishable from chance: AUROC"
    )
    assert result.verdict("leace")[0].startswith(
        "The source is indistinguishable from chance, as it was before any correction: AUROC"
    )
    assert "The source is indistinguishable from chance before any correction." in text_of(result)
    assert "more participants" not in text_of(result)


def test_planted_linear():
    result = of(shifted(), "leace")
    assert result.verdict("identity")[0].startswith("Uncorrected, the source is readable: AUROC")
    assert result.verdict("leace")[0].startswith(
        "The source became harder to read and is now indistinguishable from chance: AUROC"
    )
    assert "✓ source indistinguishable from chance" in text_of(result)


def test_planted_in_the_spread():
    result = of(spread(), "leace")
    assert result.verdict("identity")[0].startswith("Uncorrected, the source is readable: AUROC")
    assert result.verdict("leace")[0].startswith(
        "The source became harder to read but is still readable: AUROC"
    )
    assert "✓ source" not in text_of(result)


def test_planted_quadratic():
    result = of(products(), "leace")
    assert result.verdict("identity")[0].startswith("Uncorrected, the source is readable: AUROC")
    assert result.verdict("leace")[0].startswith(
        "The source became harder to read but is still readable: AUROC"
    )
    assert "✓ source" not in text_of(result)


def test_harder_to_read_at_a_high_auroc_is_still_readable():
    X, source, person, role = people((8, 8, 8), 60, np.random.default_rng(0))
    X[:, 0] *= np.where(source == "wet", 6.0, 1.0)
    X[:, 1] += 3.0 * (source == "wet")
    result = of(made(X, source, person, role), "leace")
    assert result.verdict("leace")[0].startswith(
        "The source became harder to read but is still readable: AUROC"
    )
    assert "↓ source harder to read, still readable" in text_of(result)
    assert "where it is still readable" in text_of(result)


def test_what_is_left_to_other_readers_than_linear_ones_comes_with_what_may_be_tried():
    result = of(mixed(), "leace", "closed_form_mgpa")
    (left,) = result.limits("leace")
    assert re.match(
        r"Linear readers reach \.\d+ \[.*; what is left beyond that is in spread and shape \(", left
    )
    advice = result.limits("closed_form_mgpa")[-1]
    assert "iterative_mgpa (mgpa.IterativeMGPA)" in advice
    assert "--rank 0.99; in Python gate=mgpa.MeasurementGate(rank=0.99)" in advice
    assert advice in result.verdict("closed_form_mgpa")
    assert advice in text_of(result)
    assert re.search(
        r"still readable after leace \(S \.\d+, linear readers \.\d+\), closed_form", str(result)
    )
    wider = mgpa.IterativeMGPA(
        gate=mgpa.MeasurementGate(rank=0.99), critics=("linear", "gelu"), random_state=0
    )
    tried = audit.run(mixed(), {"tried": wider}, **QUICK, seeds=[0])
    assert tried["tried"].S < result["closed_form_mgpa"].S - 0.05
    assert not any("May be tried" in line for line in tried.limits("tried"))
    alone = audit.run(mixed(), ["leace"], **QUICK)  # which has no gate, and so no advice
    assert "still readable after leace" in str(alone)
    assert "may be tried" not in str(alone)
    cut = replace(result, settings=result.settings | {"budget": 0.02})
    assert any("May be tried: a larger budget, or none" in line for line in cut.limits("closed_form_mgpa"))


def test_nothing_is_advised_where_nothing_is_left():
    result = of(shifted(), "leace")
    assert result.limits("leace") == []
    assert "still readable" not in str(result)


def test_a_single_token():
    result = of(one_token(), "leace")
    assert result.verdict("leace")[0].startswith("No clear change, the source is still readable: AUROC")


def test_people_confounded_with_the_source():
    result = of(nested(), "leace")
    assert "indistinguishable from chance" in result.verdict("leace")[0]
    assert any(
        line.startswith("8 of 8 HEAD participants were seen by one source only")
        for line in result.verdict("leace")
    )
    assert "8 of 8 fitting participants were seen by one source only" in text_of(result)


def test_the_floor_explains_what_is_left():
    methods = {"mgpa": mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=1)), "leace": "leace"}
    result = audit.run(half_seen_by_pairs(), methods, **QUICK)
    assert [result[name].floor_explains for name in methods] == [True, False]  # LEACE has no gate
    lines = result.verdict("mgpa")
    assert "still readable" in lines[0]
    assert lines[1].startswith("That is what the gate preserves: from it alone readers reach")
    assert "may become narrow enough" not in text_of(result)


def test_two_people():
    result = of(shifted(counts=(8, 8, 2)), "leace")
    assert any(
        line.startswith("TOO FEW PEOPLE: 2 EVAL participants are a hint at most. A verdict needs 6 or more")
        for line in result.verdict("leace")
    )
    assert result.verdict("leace")[0] == "TOO FEW PEOPLE (2) for what follows to be more than a hint."
    assert ranking(result)[1] == ()
    html = html_report(result)
    assert 'class="chip good"' not in html
    assert "2 EVAL participants are too few for a verdict." in text_of(result)
    assert "; with folds everybody judges once." in str(result)


def test_the_best_is_picked_among_methods_that_are_told_as_much():
    result = of(shifted().with_columns(label=None), "leace", "coral")
    _, best = ranking(result)
    assert best == ("leace", "coral")
    assert "Best here, source-blind" in text_of(result)
    assert "Best here, source-aware" in text_of(result)


def test_lines_that_all_methods_share_stay_on_their_cards():
    result = audit.run(one_token(), {"one": "leace", "two": "leace"}, **QUICK)
    html = html_report(result)
    cards, sure = html[html.index('id="verdict"') :].split("How sure is this?")[:2]
    assert cards.count("No clear change, the source is still readable: AUROC") == 2
    assert "still readable" not in sure[: sure.index("</ul>")]


def test_a_small_bank_is_stamped_in_every_output(tmp_path):
    pytest.importorskip("matplotlib")
    result = of(shifted(), "leace")
    assert "PRELIMINARY" in str(result)
    assert any(line.startswith("PRELIMINARY") for line in result.verdict("leace"))
    assert "PRELIMINARY" in text_of(result)
    for path in (result.to_csv(tmp_path / "table.csv"), *result.figures(tmp_path, formats=("svg",))):
        assert "PRELIMINARY" in path.read_text(encoding="utf-8")
    assert "PRELIMINARY" in result.to_latex()
    whole = audit.AuditPlan(shifted(), ["leace"], verbose=False, folds=1)
    assert whole.settings["preliminary"] is False


def test_swapped_labels_give_the_auroc_of_swapped_labels():
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        shape = (60, 4) if classes == 2 else (60, 4, 3)
        scores, codes, who = rng.normal(size=shape).round(1), np.arange(60) % classes, np.arange(60) // 30
        drawn = permuted_auroc(scores, codes, who, draws=3)
        again = np.random.default_rng(1101)
        swapped = [again.permuted(np.tile(codes[who == p], (3, 1)), axis=1) for p in (0, 1)]
        for draw in range(3):
            labels = np.concatenate([part[draw] for part in swapped])
            expected = audit.participant_auroc(scores, labels, who).values
            np.testing.assert_allclose(drawn[draw], expected)


def test_chance_counts_draws_that_do_as_well():
    drawn = np.linspace(0.45, 0.55, 999)
    assert not compare(0.5, drawn).excluded
    assert compare(0.56, drawn).p == pytest.approx(0.001)


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "folds"), [((3, 6, 6), 1), ((1, 1, 2), 4)])
def test_noise_is_called_readable_in_at_most_a_twentieth_of_audits(counts, folds):
    claimed = 0
    for seed in range(200):
        table = nothing(seed, counts=counts, rows=24)
        result = audit.run(table, [], **QUICK | {"folds": folds})
        claimed += "is readable" in result.verdict("identity")[0]
    assert claimed <= 10


def test_rows_that_came_corrected_are_not_passed_off_as_uncorrected():
    table = shifted()
    came = replace(table, info=table.info | {"corrected_by": "abc123"})
    result = of(came, "leace")
    for text in (str(result), "\n".join(result.verdict("leace")), text_of(result)):
        assert "CORRECTED BEFORE: the rows came corrected (by map abc123)" in text
    assert "CORRECTED BEFORE" not in str(of(table, "leace"))


def test_every_output_of_an_audit_of_few_people_says_so(tmp_path):
    few, enough = (of(nothing(0, counts=(3, 3, n)), "leace") for n in (3, 6))
    for result in (few, enough):
        outputs = {
            "print": str(result),
            "notebook": result._repr_html_(),
            "page": text_of(result),
            "csv": result.to_csv(tmp_path / "table.csv").read_text(encoding="utf-8"),
            "contrasts": contrast_csv(result, "identity"),
            "latex": result.to_latex(),
            "methods": result.methods_text(),
            "figure": " ".join(text.get_text() for text in result.plot_tradeoff().texts),
        }
        said = {name: "TOO FEW PEOPLE" in text for name, text in outputs.items()}
        assert said == dict.fromkeys(outputs, result is few)
