"""The verdict's sentence on tables with known answers."""

import re
from dataclasses import replace

import numpy as np
import pytest

import mgpa
from mgpa import audit
from mgpa.audit.estimates import caution
from mgpa.audit.metrics import SKEWED_LOSSES
from mgpa.audit.ranks import permuted_mean
from mgpa.audit.report import html_report
from mgpa.audit.verdict import caveats, findings, headline, ranking, unmet
from mgpa.audit.words import reader_name
from mgpa.tables import Table

pytest.importorskip("matplotlib")

QUICK = {"readers": {"restarts": 0}, "verbose": False, "folds": 1}


def people(counts, rows, rng, shape=(8,)):
    """Return noise of n people in every role, half of each participant's rows from each source."""
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


def unlabelled():
    return shifted().with_columns(label=None)


def spread():
    X, source, person, role = people((8, 8, 16), 60, np.random.default_rng(0))
    X[:, 0] *= np.where(source == "wet", 3.0, 1.0)
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


def source_of(result, name):
    (line,) = [line for line in findings(result, name) if line.startswith("Source (S): ")]
    return line


def cells_of(result):
    """Return all text of the report but scripts, styles and charts' tooltips."""
    html = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", html_report(result), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


READABLE = "Your embeddings reveal the source (S "


@pytest.mark.parametrize(
    ("table", "before", "after", "said"),
    [
        (nothing, "Your embeddings do not reveal the source beyond chance (S ", "chance, as before.",
         "The readers find nothing to remove."),
        (unlabelled, READABLE, ": indistinguishable from chance", "LEACE lowers S to chance level (.5"),
        (spread, READABLE, ": harder to read, but still readable", "LEACE lowers S to .6"),
        (one_token, READABLE, ": still readable, not clearly different", "No method clearly lowered S."),
        (nested, "Your embeddings do not", "indistinguishable from chance", "nothing to remove"),
    ],
)  # fmt: skip
def test_verdicts_of_tables_with_known_answers(table, before, after, said):
    result = of(table(), "leace")
    first, second, _ = result.verdict()
    assert first.startswith(before)
    assert after in source_of(result, "leace")
    assert said in second
    assert str(result).startswith(f"{first}\n{second}\n")
    one_source = "8 FIT and 8 HEAD participants have one source only"
    assert any(line.startswith(one_source) for line in caveats(result)) == (table is nested)


def test_methods_that_moved_nothing_are_not_ranked():
    from mgpa.baselines import Identity

    result = audit.run(spread(), {"stays": Identity()}, **QUICK)
    assert result.verdict()[1] == "No method moved the embeddings."


def test_what_is_left_to_other_readers_than_linear_ones_is_named_with_what_to_try():
    result = of(mixed(), "leace")
    (left,) = [line for line in findings(result, "leace") if line.startswith("Linear readers reach AUROC .")]
    reader = reader_name(result["leace"].best_reader())
    shape = f"; the rest is in spread and shape (best reader: {reader})."
    assert left.endswith(f"{shape} Try mgpa.MGPA.")
    # MGPA itself is not told to try MGPA, whatever it is called.
    same = tuple(replace(info, method="MGPA") for info in result["leace"].provenance)
    (left,) = [
        line for line in findings(changed(result, leace={"provenance": same}), "leace") if shape in line
    ]
    assert left.endswith(shape)


def test_the_floor_explains_what_is_left():
    methods = {"mgpa": mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=1)), "leace": "leace"}
    result = audit.run(half_seen_by_pairs(), methods, **QUICK)
    assert [result[name].floor_explains for name in methods] == [True, False]  # LEACE has no gate
    lines = findings(result, "mgpa")
    assert "still readable" in source_of(result, "mgpa")
    start = "Floor: readers recognise the source from the part that the gate preserves with AUROC"
    (floor,) = [line for line in lines if line.startswith(start)]
    assert floor.endswith("Pairs of more participants can add directions and may lower the floor.")


def test_source_aware_methods_compete_among_themselves():
    result = of(unlabelled(), "leace", "coral")
    assert ranking(result)[1] == (("leace",), ("coral",))
    assert "LEACE lowers S to chance level (.5" in headline(result)
    assert "CORAL, which needs the source of every row, lowers S to chance level (.5" in result.verdict()[1]


def changed(result, **fields):
    """Return an audit in which methods have other fields: ``leace={"frozen": ...}``, which is of heads."""
    results = dict(result.results)
    for name, new in fields.items():
        heads = results[name].heads | {key: new[key] for key in ("frozen",) if key in new}
        new = {"heads": heads} | {key: value for key, value in new.items() if key != "frozen"}
        results[name] = replace(results[name], **new)
    return replace(result, results=results)


@pytest.fixture(scope="module")
def labelled():
    """Three methods that leave a task that heads read exactly as it is."""
    result = audit.run(shifted(), {"leace": "leace", "other": "leace", "third": "leace"}, **QUICK)
    heads = result["identity"].heads
    task = {"heads": heads | {"frozen": heads["frozen"] + 0.3}}
    return changed(result, identity=task, leace=task, other=task, third=task)


def with_source(result, **levels):
    """Return an audit in which all readers reach a level on average, a little apart by participant."""
    shape = result["leace"].source_auroc.shape
    wave = np.resize([0.02, -0.02], shape[1])[None, :, None]
    return changed(
        result,
        **{n: {"source_auroc": np.broadcast_to(v + s * wave, shape).copy()} for n, (v, s) in levels.items()},
    )


def test_a_tie_is_called_a_tie_and_a_winner_only_one_that_is_lower_by_its_interval(labelled):
    tied = with_source(labelled, leace=(0.51, 1), other=(0.512, -1), third=(0.7, 1))
    assert ranking(tied)[1] == (("leace", "other"),)
    both = "both lower S to chance level and keep the task."
    assert f"LEACE and other are tied on S (.510 and .512): {both}" in headline(tied)
    apart = with_source(labelled, leace=(0.51, 1), other=(0.512, 1), third=(0.7, 1))
    assert ranking(apart)[1] == (("leace",),)  # always .002 lower, participant by participant
    assert "LEACE lowers S to chance level (.510)" in headline(apart)


def test_a_task_that_no_head_reads_is_not_called_kept(labelled):
    wave = np.resize([0.05, -0.05], labelled.n_people)
    frozen = 0.5 + np.zeros_like(labelled["leace"].heads["frozen"]) + wave[:, None]
    guessing = changed(labelled, **{name: {"frozen": frozen} for name in labelled.methods})
    said = headline(with_source(guessing, leace=(0.51, 1), other=(0.55, 1), third=(0.7, 1)))
    assert "LEACE lowers S to chance level (.510). The loss of task information cannot be measured:" in said
    assert "keep" not in said


def test_a_tie_of_a_hidden_and_a_readable_source_says_which_is_which(labelled, monkeypatch):
    tied = with_source(labelled, leace=(0.51, 1), other=(0.512, -1), third=(0.7, 1))
    monkeypatch.setitem(vars(tied["other"]), "chance", replace(tied["other"].chance, p=0.001))
    assert source_of(tied, "leace").endswith(": indistinguishable from chance.")
    assert source_of(tied, "other").endswith("still readable.")
    did = "LEACE lowers S to chance level; other lowers S; both keep the task."
    assert f"LEACE and other are tied on S (.510 and .512): {did}" in headline(tied)


def test_the_task_comes_before_the_source(labelled):
    task = labelled["leace"].heads["frozen"]
    result = with_source(labelled, leace=(0.5, 1), other=(0.55, 1), third=(0.56, -1))
    result = changed(result, leace={"frozen": task - 0.2})
    names, leaders = ranking(result)
    assert names[-1] == "leace"
    assert leaders[0][0] == "other"
    first, away, second, *_ = findings(result, "leace")  # what the user's own head would notice comes first
    assert away.startswith("Accuracy away (away): ")
    assert first.startswith("Accuracy at home (home): ")
    assert second.startswith("Task, existing heads (T_f): ")
    assert second.endswith(": worse.")
    # What was fitted on its EVAL participants comes last of all.
    leaked = changed(result, other={"fitted_on": ("p16",)})
    assert ranking(leaked)[0][-1] == "other"
    assert findings(leaked, "other")[0].startswith("Not held out: it was fitted on 1 of the participants")


@pytest.mark.parametrize(
    ("loss", "needed"), [(0.0, 30), (0.001, 80), (0.02, None)],
)  # fmt: skip
def test_how_many_more_follows_from_the_spread(labelled, loss, needed):
    wave = np.resize([0.04, -0.04], labelled.n_people)[None, :, None]
    result = changed(labelled, leace={"frozen": labelled["identity"].heads["frozen"] - loss + wave})
    assert result.outcome("leace", "T_f") == "unclear"
    (entry,) = [e for e in result.participants_needed() if e["question"] == "kept"]
    assert entry["now"] == labelled.n_people == 8
    if needed is None:
        assert entry["needed"] is None
        assert entry["sentence"] == "More participants will hardly show that LEACE keeps the task within .01."
    else:
        change = result.contrast("leace", metric="T_f")
        alone = 8 * (2.8 / 1.96) ** 2 * ((change.value - change.low) / (change.value + 0.01)) ** 2
        again = alone * caution(entry["needed"], SKEWED_LOSSES) ** 2
        assert entry["needed"] == pytest.approx(again, abs=1.1)
        assert " 80 % power to show that LEACE keeps the task within .01." in entry["sentence"]
        assert entry["needed"] > needed
        assert entry["sentence"] in caveats(result)


@pytest.fixture(scope="module")
def numbers():
    """Samples on two instruments, the second of which adds to what the label is read from."""
    rng = np.random.default_rng(0)
    moisture = rng.normal(10, 2, 40)
    spectra = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 12)) + moisture[:, None] * np.eye(12)[3]
    X = np.concatenate([spectra, spectra + np.eye(12)[3] + 4 * np.eye(12)[7]]) + 0.05 * rng.normal(
        size=(80, 12)
    )
    table = Table(
        X, source=np.repeat(["m5", "mp6"], 40), participant=np.tile([f"s{i}" for i in range(40)], 2),
        label=np.tile(moisture, 2), pair_id=np.tile(np.arange(40), 2), info={"unit": "sample_id"},
    )  # fmt: skip
    return audit.run(table, ["closed_form_mgpa"], readers={"restarts": 0}, verbose=False)


def test_numbers_as_labels_and_the_users_words_are_in_the_verdict(numbers):
    result = numbers
    error = "the error of existing models is .362 with Closed-form MGPA, and .660 without correction (RMSEP)."
    assert error in result.verdict()[1]
    assert "Intervals are over 40 samples." in result.verdict()[2]
    assert "RMSEP_away (want low)" in str(result)
    home, away, *_ = findings(result, "closed_form_mgpa")
    assert home.startswith("Error at home (RMSEP_home): ")
    assert home.endswith(": worse.")  # halfway between the instruments, a model of one errs on its own
    assert away.startswith("Error away (RMSEP_away): ")
    assert away.endswith(": better.")
    assert result.verdict()[1].startswith("With Closed-form MGPA, existing heads get worse at home: RMSEP ")
    assert "MGPA(reference='m" in result.verdict()[1]
    page = cells_of(result)
    assert "Crossed design: all 40" in page
    assert "error away" in page
    assert result.counts == {}  # numbers are not counted by source
    assert "The labels are not classes" in page
    assert "Cramér" not in page


def with_explained(result, **shares):
    """Return an audit in which existing and refitted models of both directions explain so much."""
    changes = {}
    for name, (frozen, refitted) in shares.items():
        heads, shape = result[name].heads, result[name].heads["frozen_relative"].shape
        relative = {"frozen_relative": frozen, "refitted_relative": refitted}
        relative = {key: np.broadcast_to(1.0 - np.array(R2), shape).copy() for key, R2 in relative.items()}
        changes[name] = {"heads": heads | relative}
    return changed(result, **changes)


INSTEAD = (
    "Refitted models reach R² .11. To keep existing models, map rows to the source on which "
    "they were trained: MGPA(reference=), FEATMAP, PDS or SST."
)


@pytest.mark.parametrize(
    ("frozen", "said"),
    [
        (-2.98, " (R² -2.98; -9.00 uncorrected)"),
        (
            (-2.0, 0.6),
            " (R² -.70; -9.00 uncorrected), except mp6 → m5 (R² .60)",
        ),
        (0.5, ""),
    ],
)
def test_models_that_are_worse_than_the_mean_do_not_keep_the_task(numbers, frozen, said):
    assert numbers["identity"].directions == ("m5 → mp6", "mp6 → m5")
    result = with_explained(numbers, identity=(-9.0, 0.5), closed_form_mgpa=(frozen, 0.11))
    worse = " After correction by Closed-form MGPA, existing models predict worse than the mean does"
    assert headline(result).endswith(f" (RMSEP).{worse}{said}. {INSTEAD}" if said else " (RMSEP).")
    assert ("keeps the task" in headline(result)) == (np.mean(frozen) > 0)


def test_of_tied_methods_only_those_whose_models_beat_the_mean_keep_the_task(numbers):
    results = numbers.results | {"other": numbers["closed_form_mgpa"]}
    tied = replace(numbers, results=results)
    poor = with_explained(tied, identity=(-9, 0.5), closed_form_mgpa=(-2.98, 0.11), other=(0.4, 0.5))
    assert ": both lower S to chance level; other keeps the task." in headline(poor)
    worse = "by Closed-form MGPA, existing models predict worse than the mean does "
    assert headline(poor).endswith(f"{worse}(R² -2.98; -9.00 uncorrected). {INSTEAD}")
    shares = {"closed_form_mgpa": ((-2.0, 0.6), 0.11), "other": ((-3.0, 0.5), 0.2)}
    assert "except mp6 → m5 (R² .60 and .50)" in headline(with_explained(tied, identity=(-9, 0.5), **shares))


@pytest.mark.parametrize("unit", ["Sample", "sample"])
def test_the_methods_paragraph_calls_units_as_the_users_column_does(numbers, unit):
    design = replace(numbers.design, unit=unit)
    text = replace(numbers, design=design).methods_text()
    assert f"each of 40 {unit}s was EVAL once" in text
    assert f"bootstrapped over {unit}s," in text
    assert "participant" not in text


def test_a_study_may_name_another_metric_that_decides(labelled):
    shape = labelled["leace"].source_auroc.shape[:2]
    values = {"identity": 0.3, "leace": 0.6, "other": 0.7, "third": 0.4}
    worst = {name: {"shortcut": np.full((*shape, 3), value)} for name, value in values.items()}
    result = replace(changed(labelled, **worst), settings=replace(labelled.settings, outcome="worst"))
    assert ranking(result) == (["other", "leace", "third"], (("other",),))
    assert "other is best on worst (.700)" in headline(result)


@pytest.mark.parametrize(
    ("requirement", "failing"),
    [
        ("S<=.6 and loss<=.01", ["other: S is .700, required <= .600."]),
        ("S.high < .9", []),
        ("loss<.0001 and M>=0", []),
        ("T_f>=1", ["LEACE", "other", "third"]),
    ],
)
def test_requirements_name_the_methods_that_miss_them(labelled, requirement, failing):
    result = with_source(labelled, leace=(0.51, 1), other=(0.7, 1), third=(0.55, 1))
    said = unmet(result, requirement)
    assert len(said) == len(failing)
    assert all(line.startswith(start) for line, start in zip(said, failing, strict=True))


@pytest.mark.parametrize("text", ["", "S", "S<=x", "S<=.6 or M<1", "__import__('os')", "bad<=1", "S<=.6 and"])
def test_a_requirement_that_cannot_be_read_is_an_error(labelled, text):
    with pytest.raises(ValueError, match="Write comparisons joined by 'and'"):
        unmet(labelled, text)


def test_swapped_labels_give_the_auroc_of_swapped_labels():
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        shape = (60, 4) if classes == 2 else (60, 4, 3)
        scores, codes, who = rng.normal(size=shape).round(1), np.arange(60) % classes, np.arange(60) // 30
        drawn = permuted_mean(scores, codes, who, draws=3)
        again = np.random.default_rng(1101)
        swapped = [again.permuted(np.tile(codes[who == p], (3, 1)), axis=1) for p in (0, 1)]
        for draw in range(3):
            labels = np.concatenate([part[draw] for part in swapped])
            expected = audit.participant_auroc(scores, labels, who)[1]
            np.testing.assert_allclose(drawn[draw], expected.mean(axis=0))
        elsewhere = permuted_mean(scores, codes, who, split=1, draws=3)  # of another fold
        assert not np.allclose(drawn, elsewhere)


def test_rows_that_came_corrected_are_not_passed_off_as_uncorrected():
    table = shifted()
    came = replace(table, info=table.info | {"corrected_by": "abc123"})
    result = of(came, "leace")
    for words in (str(result), "\n".join(result.verdict("leace")), cells_of(result)):
        assert "The rows were already corrected (by map abc123)" in words
    assert "already corrected" not in str(of(table, "leace"))


def test_every_output_of_a_quick_audit_of_few_people_says_so(tmp_path):
    few, enough = (of(nothing(0, counts=(3, 3, n)), "leace") for n in (3, 6))
    assert ranking(few)[1] == ()
    assert few.verdict()[1:] == [
        "No method is called best with 3 participants; at least 6 are needed.",
        "Preliminary: no networks among the readers, so S may be too low. Only 3 participants: exploratory.",
    ]
    for result in (few, enough):
        outputs = {
            "print": str(result),
            "notebook": result._repr_html_(),
            "page": cells_of(result),
            "csv": result.to_csv(tmp_path / "table.csv").read_text(encoding="utf-8"),
            "methods": result.methods_text(),
            "figure": " ".join(text.get_text() for text in result.plot().texts),
        }
        for words in outputs.values():
            assert "Preliminary" in words
            assert ("exploratory" in words.lower()) == (result is few)
        assert "LEACE; not called best" in outputs["page"]
    led = of(shifted(), "leace")
    assert ("not called best" in cells_of(led)) == (not ranking(led)[1])
    assert audit.AuditPlan(shifted(), ["leace"], verbose=False, folds=1).settings.preliminary is False


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "folds"), [((3, 6, 6), 1), ((1, 1, 2), 4)])
def test_noise_is_called_readable_in_at_most_a_twentieth_of_audits(counts, folds):
    results = (
        audit.run(nothing(seed, counts=counts, rows=24), [], **QUICK | {"folds": folds})
        for seed in range(200)
    )
    assert sum(result["identity"].chance.excluded for result in results) <= 10
