"""Bad input is refused in one clear sentence: what was passed, what was expected, what to do."""

import numpy as np
import pandas as pd
import pytest

from factories import refused, spoilt
from mgpa import MGPA, ClosedFormMGPA, IterativeMGPA, MeasurementGate, TokenMean, transform_tokens
from mgpa.errors import MissingEvidence
from mgpa.gate import PCAGate

torch = pytest.importorskip("torch")

N, D, T = 60, 5, 3
RNG = np.random.default_rng(0)
SOURCE = np.repeat(["dry", "wet"], N // 2)
X = RNG.normal(size=(N, D)) + 2.0 * (SOURCE == "wet")[:, None] * np.eye(D)[0]
A = RNG.normal(size=(20, D))
B = A + 2.0 * np.eye(D)[0] + 0.1 * RNG.normal(size=(20, D))
IDS = np.tile(np.arange(N // 2), 2)
TOKENS = X[:, None, :] + RNG.normal(size=(N, T, D))
TOKEN_PAIRS = (np.repeat(A[:, None], T, axis=1), np.repeat(B[:, None], T, axis=1))


def closed(**parameters):
    return ClosedFormMGPA(**parameters)


def iterative(**parameters):
    return IterativeMGPA(**{"critics": ("linear",), "n_stages": 2, "random_state": 0} | parameters)


def tokens(**parameters):
    return TokenMean(iterative(**parameters))


BOTH = pytest.mark.parametrize("make", [closed, iterative])


def fit(make, rows=None, *, parameters=None, **evidence):
    """Fit on good data but for the changes given."""
    of_tokens = make is tokens
    rows = (TOKENS if of_tokens else X) if rows is None else rows
    if "pair_id" in evidence:
        evidence = {"pairs": None} | evidence
    good = {"source": SOURCE, "pairs": TOKEN_PAIRS if of_tokens else (A, B)}
    return make(**(parameters or {})).fit(rows, **(good | evidence))


HELD = {"source_val": SOURCE}
# What every method refuses is in tests/baselines/test_baselines_bad_input.py.
# Who is fitted, what is changed in good data, and the words of the refusal.
REFUSED = {
    closed: {
        "no rows": ({"rows": X[:0], "source": SOURCE[:0]}, "0 sample(s)", "minimum of 1 is required"),
        "source nan text": ({"source": np.where(np.arange(N) == 2, "nan", SOURCE)}, "source is 'nan', a mis"),
        "source NA": ({"source": pd.Series(SOURCE, dtype="string").where(IDS > 2)}, "(None or NaN) in"),
        "dates": ({"source": np.full(N, np.datetime64("2020-01-01"))}, "dtype datetime64[D]; use int"),
        "tuples": ({"source": pd.Series([("a", s) for s in SOURCE])}, "use integers, booleans or strings"),
        "one pair": ({"pairs": (A[0], B[0])}, "pairs[0] has shape (5,); expected two dimensions"),
        "identical": ({"pairs": (A, A)}, "All 20 contrasts are zero", "identical", "other condition"),
        "ids mixed": ({"pair_id": [0, "a"] * 30}, "pair_id has dtype object"),
        "no ids": ({"pair_id": np.full(N, -1)}, "No pairs", "shared by the rows of one event in different"),
        "nan weight": ({"sample_weight": np.full(N, np.nan)}, "sample_weight contains NaN"),
        "groups nan": ({"groups": np.where(IDS == 3, np.nan, IDS)}, "groups is missing (None or NaN) in 2 o"),
        "short groups": ({"groups": np.arange(3)}, "for each of the 60 rows of X"),
        "gate": ({"parameters": {"gate": PCAGate(rank=6)}}, "rank=6 does not fit 5 features; use 0 to 5"),
    },
    iterative: {
        "no source_val": ({"X_val": X}, "X_val is given without source_val"),
        "no X_val": (HELD, "source_val is given without X_val"),
        "unknown": ({"X_val": X, "source_val": np.full(N, "gel")}, "['gel'] in source_val; fitted sources:"),
        "short": ({"X_val": X, "source_val": SOURCE[:3]}, "(3,); expected one label for each of the 60 rows"),
        "one source_val": ({"X_val": X[:9], "source_val": SOURCE[:9]}, "No held-out rows of source ['wet']"),
        "X_val nan": ({"X_val": spoilt(X, 4)} | HELD, "X_val contains NaN", "first: row 4"),
        "X_val width": ({"X_val": X[:, :2]} | HELD, "X_val has 2 features but X has 5"),
        "one group": ({"groups": np.zeros(N), "pairs": (A[:10], B[:10])}, "too few rows to hold some out"),
    },
    tokens: {
        "token nan": ({"rows": spoilt(TOKENS, (5, 1, 1))}, "X contains NaN or infinite values in 1 of", "ro"),
        "nan in pairs": ({"pairs": (TOKEN_PAIRS[0], spoilt(TOKEN_PAIRS[1], 2))}, "pairs[1] contains NaN"),
        "fewer in pairs": ({"pairs": tuple(v[:, :2] for v in TOKEN_PAIRS)}, "pairs[0] has 2 tokens per row"),
        "no tokens": ({"rows": TOKENS[:, :0]}, "X has shape (60, 0, 5); expected tokens (rows, tokens"),
        "four dimensions": ({"rows": TOKENS[:, None]}, "dim 4"),
        "held-out tokens": ({"X_val": TOKENS[:, :2]} | HELD, "X_val has 2 tokens per row"),
    },
}  # fmt: skip


@pytest.mark.parametrize(("make", "why"), [(make, why) for make, table in REFUSED.items() for why in table])
def test_unusable_data_are_refused(make, why):
    changes, *words = REFUSED[make][why]
    for each in (closed, iterative) if make is closed else (make,):
        with refused(*words):
            fit(each, **changes)


@pytest.mark.parametrize("estimator", [MGPA(gate=PCAGate(rank=2)), ClosedFormMGPA(gate=PCAGate(rank=2))])
def test_identical_views_are_named_also_in_a_gate_that_is_blind_to_them(estimator):
    with refused("All 20 contrasts are zero", "identical"):
        estimator.fit(X, source=SOURCE, pairs=(A, A))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (TOKENS[:, :2], "X has 2 tokens per row; fitted on 3"),
        (TOKENS[:, :, :2], "X has 2 features"),
        (spoilt(TOKENS, 5), "X contains NaN or infinite values in 1 of 60 rows"),
        (X, "X has"),  # "1 tokens per row" by the estimator, a shape by the map
    ],
)
def test_new_tokens_are_refused_by_estimator_and_map_as_array_and_tensor(wrong, words):
    model = fit(tokens)
    for rows in (wrong, torch.tensor(wrong)):
        with refused(words):
            model.transform(rows)
        with refused(words):
            transform_tokens(model.to_map(), rows)


# Integers are never silent


@BOTH
def test_missing_evidence_is_an_error_or_a_warning_and_the_identity(make):
    for evidence, words in (
        ({"pairs": (A, B)}, "source is missing: pass source="),  # y is the task, never the source
        ({"source": SOURCE}, "No pairs: pass pairs=(A, B)"),
    ):
        with refused(words, error=MissingEvidence):
            make().fit(X, SOURCE, **evidence)
        with pytest.warns(UserWarning, match="Returning the identity map"):
            model = make(on_missing="warn").fit(X, SOURCE, **evidence)
        np.testing.assert_array_equal(model.transform(X), X)


@BOTH
def test_more_directions_than_pairs_show_are_refused(make):
    with refused("rank=4 needs 4 independent contrasts", "give 2", "Lower the rank, supply more, or"):
        fit(make, parameters={"gate": MeasurementGate(rank=4, norm_quantile=0.0)}, pairs=(A[:2], B[:2]))


@BOTH
def test_orphans_are_mentioned_and_left_out(make):
    orphaned = np.where(np.arange(N) == 4, 99, IDS)
    with pytest.warns(UserWarning, match=r"^2 of 31 pair ids occur once and form no pair\.$") as said:
        model = fit(make, pair_id=orphaned)
    assert len(said) == 1
    marked = np.where(IDS == 4, -1, IDS)
    np.testing.assert_array_equal(model.transform(X), fit(make, pair_id=marked).transform(X))
    with (
        pytest.warns(UserWarning, match=r"60 of 60 pair ids .* no pair\. .*split by participant"),
        refused("No pairs", error=MissingEvidence),
    ):
        fit(make, pair_id=np.arange(N))


TEXT_IDS = np.char.zfill(IDS.astype(str), 2)
USUAL = {
    "source": [
        SOURCE.tolist(), tuple(SOURCE), pd.Series(SOURCE), pd.Categorical(SOURCE), SOURCE.astype(object),
        SOURCE == "wet", (SOURCE == "wet").astype(float), torch.tensor(SOURCE == "wet"),
    ],
    "pair_id": [
        IDS.tolist(), pd.Series(IDS), pd.Series(IDS, dtype="Int64"), IDS.astype(np.uint8), TEXT_IDS,
        TEXT_IDS.tolist(), TEXT_IDS.astype(object), TEXT_IDS.astype("S"), torch.tensor(IDS),
    ],
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("name", USUAL)
def test_usual_labels_and_ids_are_read_alike(make, name):
    plain = {"source": SOURCE} | ({"pair_id": IDS} if name == "pair_id" else {})
    expected = fit(make, **plain).transform(X)
    for values in USUAL[name]:
        np.testing.assert_allclose(fit(make, **(plain | {name: values})).transform(X), expected, atol=1e-12)


def test_empty_text_is_an_unpaired_row():
    ids = np.where(IDS < 5, "", TEXT_IDS)
    expected = fit(closed, pair_id=np.where(IDS < 5, -1, IDS))
    np.testing.assert_allclose(fit(closed, pair_id=ids).transform(X), expected.transform(X), atol=1e-12)


# More than two sources

THREE = np.arange(N) % 3


def chain(*links):
    """Return ids that pair the k-th rows of each two linked sources."""
    ids = np.full(N, -1)
    for link, sources in enumerate(links):
        for s in sources:
            rows = np.flatnonzero(s == THREE)[link * 10 : link * 10 + 10]
            ids[rows] = 100 * link + np.arange(10)
    return ids


def test_pairs_must_say_which_of_three_sources_they_are_and_connect_them():
    with refused("pairs=(A, B) does not show which of the 3 sources each view is; use pair_id="):
        fit(closed, source=THREE)
    with refused("The pairs do not connect all 3 sources", "directly or through a third"):
        fit(closed, source=THREE, pair_id=chain((0, 1), (0, 1)))
    unchecked = {"gate": MeasurementGate(rank=1)}  # these pairs differ in nothing but noise
    fit(closed, source=THREE, pair_id=chain((0, 1), (1, 2)), parameters=unchecked)


def test_unusable_operating_points_are_refused():
    model = fit(iterative, parameters={"do_no_harm": False})
    for wrong, words in (
        ({"strength": np.nan}, "strength must be a finite number; got nan"),
        ({"strength": -1}, "strength must not be negative; got -1.0"),
        ({"n_stages": 3}, "n_stages is 3; this map has 2 stages"),
        ({"n_stages": -1}, "n_stages is -1; this map has 2 stages"),
        ({"fraction": 2}, "fraction must lie in [0, 1]; got 2"),
        ({"fraction": np.nan}, "fraction must lie in [0, 1]; got nan"),
    ):
        with refused(words):
            model.transform(X, **wrong)


# What a failed call leaves behind
