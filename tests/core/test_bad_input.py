"""Bad input is refused in one clear sentence: what was passed, what was expected, what to do."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.exceptions import DataConversionWarning, NotFittedError

from mgpa import (
    ClosedFormMGPA,
    IterativeMGPA,
    MeasurementGate,
    PCAGate,
    RandomGate,
    TokenMean,
    transform_tokens,
)
from mgpa.estimators.base import MissingEvidence

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


BOTH = pytest.mark.parametrize("make", [closed, iterative])


def fit(make, rows=X, *, parameters=None, **evidence):
    """Fit on good data but for the changes given."""
    if "pair_id" in evidence:
        evidence = {"pairs": None} | evidence
    return make(**(parameters or {})).fit(rows, **({"source": SOURCE, "pairs": (A, B)} | evidence))


def fit_tokens(tokens=TOKENS, make=closed, **evidence):
    return TokenMean(make()).fit(tokens, **({"source": SOURCE, "pairs": TOKEN_PAIRS} | evidence))


def refused(*words: str, error: type[Exception] = ValueError):
    """Expect an error whose message has these words in this order."""
    return pytest.raises(error, match=r"[\s\S]*".join(map(re.escape, words)))


def spoilt(rows, where, value=np.nan):
    bad = np.array(rows)
    bad[where] = value
    return bad


# Values that are not finite


@BOTH
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_named(make, value):
    bad = spoilt(spoilt(X, (7, 2), value), (9, 0), value)
    words = ("X contains NaN or infinite values in 2 of 60 rows", "first: row 7", "Drop or impute")
    with refused(*words):
        fit(make, bad)
    model = fit(make)
    for transform in (model.transform, model.to_map().transform):
        with refused(*words):
            transform(bad)
        with refused(*words):
            transform(bad.astype(np.float32))
        with refused(*words):
            transform(torch.tensor(bad))
    with refused(*words):
        transform(pd.DataFrame(bad))


@BOTH
@pytest.mark.parametrize("side", [0, 1])
def test_pairs_that_are_not_finite_are_named(make, side):
    pairs = [A, B]
    pairs[side] = spoilt(pairs[side], (3, 1), np.inf)
    with refused(f"pairs[{side}] contains NaN or infinite values in 1 of 20 rows", "first: row 3"):
        fit(make, pairs=tuple(pairs))


def test_held_out_rows_that_are_not_finite_are_named():
    with refused("contains NaN or infinite values in 1 of 60 rows", "first: row 4"):
        fit(iterative, X_val=spoilt(X, 4), source_val=SOURCE)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (spoilt(X, 4), "X_val contains NaN"),
        (X[:, :2], "X_val has 2 features but X has 5"),
        (X[:, None], "X_val has shape"),
        (X.astype(np.float16), "X_val is float16"),
    ],
)
def test_messages_about_held_out_rows_say_so(held, words):
    with refused(words):
        fit(iterative, X_val=held, source_val=SOURCE)


def test_tokens_that_are_not_finite_are_named():
    bad = spoilt(TOKENS, (5, 1, 1))
    words = ("X contains NaN or infinite values in 1 of 60 rows", "first: row 5")
    with refused(*words):
        fit_tokens(bad)
    model = fit_tokens()
    for tokens in (bad, bad.astype(np.float32), torch.tensor(bad)):
        with refused(*words):
            model.transform(tokens)
        with refused(*words):
            transform_tokens(model.to_map(), tokens)
    with refused("pairs[1] contains NaN", "first: row 2"):
        fit_tokens(pairs=(TOKEN_PAIRS[0], spoilt(TOKEN_PAIRS[1], 2)))
    with refused("X_val contains NaN", "first: row 5"):
        fit_tokens(make=iterative, X_val=bad, source_val=SOURCE)


# Shapes


@BOTH
def test_a_missing_source_as_text_is_no_third_source(make):
    with refused("source is 'nan', a missing value as text, in 1 of 60 rows (first: row 2)"):
        fit(make, source=np.where(np.arange(N) == 2, "nan", SOURCE))


@BOTH
def test_another_width_is_refused(make):
    with refused("The pairs have 3 features, and the rows 5"):
        fit(make, pairs=(A[:, :3], B[:, :3]))
    model = fit(make)
    with refused("X has 3 features", "expecting 5"):
        model.transform(X[:, :3])
    for wrong in (X[:, :3], torch.tensor(X[:, :3])):
        with refused("X has 3 features; this correction was fitted on 5"):
            model.to_map().transform(wrong)


def test_held_out_rows_of_another_width_are_refused():
    with refused("has 2 features"):
        fit(iterative, X_val=X[:, :2], source_val=SOURCE)
    with refused("X_val has 2 features but X has 5"):
        fit_tokens(make=iterative, X_val=TOKENS[:, :, :2], source_val=SOURCE)


def test_tokens_of_another_width_are_refused():
    model = fit_tokens()
    with refused("X has 2 features", "5"):
        model.transform(TOKENS[:, :, :2])
    with refused("X has 2 features", "5"):
        model.transform(torch.tensor(TOKENS[:, :, :2]))


def test_another_number_of_tokens_is_refused():
    model = fit_tokens()
    for wrong in (TOKENS[:, :2], torch.tensor(TOKENS[:, :2])):
        with refused("X has 2 tokens per row; fitted on 3"):
            model.transform(wrong)
        with refused("X has 2 tokens per row; fitted on 3", "A mean over another number"):
            transform_tokens(model.to_map(), wrong)
    with refused("X has 1 tokens per row; fitted on 3"):
        model.transform(X)
    with refused("pairs[0] has 2 tokens per row; fitted on 3"):
        fit_tokens(pairs=(TOKEN_PAIRS[0][:, :2], TOKEN_PAIRS[1][:, :2]))
    with refused("X_val has 2 tokens per row; fitted on 3"):
        fit_tokens(make=iterative, X_val=TOKENS[:, :2], source_val=SOURCE)


def test_tokens_need_three_dimensions():
    model = fit_tokens()
    with refused("X has shape (60, 0, 5); expected tokens (rows, tokens, features)"):
        fit_tokens(TOKENS[:, :0])
    for wrong in (X, torch.tensor(X)):
        with refused("X has shape (60, 5); expected tokens (rows, tokens, features)"):
            transform_tokens(model.to_map(), wrong)
    with refused("dim 4"):
        fit_tokens(TOKENS[:, None])


@BOTH
def test_other_dimensions_are_refused(make):
    model = fit(make)
    with refused("Expected 2D array, got 1D array", "Reshape your data"):
        fit(make, X[:, 0])
    with refused("Expected 2D array, got 1D array", "Reshape your data"):
        model.transform(X[0])
    with refused("X has shape (5,); expected two dimensions (rows, features)"):
        model.to_map().transform(X[0])
    words = ("X has shape (60, 3, 5); expected two dimensions", "use mgpa.TokenMean")
    with refused(*words):
        fit(make, TOKENS)
    for transform in (model.transform, model.to_map().transform):
        with refused(*words):
            transform(TOKENS)
        with refused(*words):
            transform(torch.tensor(TOKENS))
    with refused("dim 4"):
        fit(make, TOKENS[None])


@BOTH
def test_no_rows_are_refused(make):
    with refused("0 sample(s)", "minimum of 1 is required"):
        fit(make, X[:0], source=SOURCE[:0])
    with refused("0 sample(s)"):
        fit(make).transform(X[:0])
    with refused("pairs are empty; at least one pair is needed"):
        fit(make, pairs=(A[:0], B[:0]))
    # A map has nothing to refuse: no rows in, no rows out.
    assert fit(make).to_map().transform(X[:0]).shape == (0, D)


# Types


@BOTH
def test_sparse_complex_and_text_are_refused(make):
    with refused("Sparse data was passed", "toarray", error=TypeError):
        fit(make, scipy.sparse.csr_array(X))
    with refused("Complex data not supported"):
        fit(make, X + 1j)
    with refused("X holds text", "expected numbers"):
        fit(make, X.astype(str))
    with refused("could not convert string to float: 'a'"):
        fit(make, np.where(X > 1, "a", X.astype(object)))
    m = fit(make).to_map()
    for wrong in (X + 1j, X.astype(str), X.astype(object)):
        with refused(f"X has dtype {wrong.dtype}; expected a float32 or float64 array"):
            m.transform(wrong)


@BOTH
def test_half_precision_is_refused(make):
    half = X.astype(np.float16)
    model = fit(make)
    for call in (lambda rows: fit(make, rows), model.transform, model.to_map().transform):
        with refused("X is float16, too coarse to correct in; convert with X.astype('float32')"):
            call(half)
    with refused("X is bfloat16, too coarse", "X.float()"):
        fit(make, torch.tensor(X).bfloat16())
    with refused("X has dtype torch.bfloat16; convert it with X.float()"):
        model.transform(torch.tensor(X).bfloat16())
    with refused("X is float16"):
        fit_tokens(TOKENS.astype(np.float16))
    with refused("pairs[0] is float16"):
        fit(make, pairs=(A.astype(np.float16), B.astype(np.float16)))


@BOTH
@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame, lambda rows: rows.tolist()])
def test_integers_are_never_silent_and_come_back_as_float64(make, container):
    integers = np.round(10 * X).astype(int)
    rows = container(integers)
    pairs = (10 * A, 10 * B)
    with pytest.warns(
        DataConversionWarning, match="X has integer dtype int64; computing and returning float64"
    ):
        model = fit(make, rows, pairs=pairs)
    with pytest.warns(DataConversionWarning, match="X has integer dtype"):
        out = model.transform(rows)
    assert out.dtype == np.float64
    expected = fit(make, integers.astype(float), pairs=pairs).transform(integers.astype(float))
    np.testing.assert_allclose(out, expected, atol=1e-12)


@BOTH
def test_other_integers_are_never_silent(make):
    with pytest.warns(UserWarning, match=r"pairs\[[01]\] has integer dtype"):
        fit(make, pairs=(np.round(10 * A).astype(int), np.round(10 * B).astype(int)))
    with pytest.warns(UserWarning, match="X has integer dtype"):
        assert fit(make).to_map().transform(X.astype(int)).dtype == np.float64
    with refused("X has dtype torch.int64; convert it with X.float()"):
        fit(make).transform(torch.tensor(X.astype(int)))


def test_integer_tokens_are_never_silent():
    integers = np.round(10 * TOKENS).astype(int)
    with pytest.warns(UserWarning, match="X has integer dtype"):
        model = fit_tokens(integers)
    with pytest.warns(UserWarning, match="X has integer dtype"):
        assert model.transform(integers).dtype == np.float64
    with pytest.warns(UserWarning, match="X has integer dtype"):
        assert transform_tokens(model.to_map(), integers).dtype == np.float64


@BOTH
def test_objects_that_are_numbers_are_read(make):
    np.testing.assert_array_equal(fit(make, X.astype(object)).transform(X), fit(make).transform(X))


# Source labels


@BOTH
def test_one_source_is_refused(make):
    with refused("source has 1 distinct value ('wet')", "at least two acquisition conditions", "Pass every"):
        fit(make, source=np.full(N, "wet"))


@BOTH
def test_the_task_is_not_taken_for_the_source(make):
    with refused("source is missing: pass source=", "y is the task", error=MissingEvidence):
        make().fit(X, SOURCE, pairs=(A, B))
    with pytest.warns(UserWarning, match=r"source is missing.*Returning the identity map"):
        model = make(on_missing="warn").fit(X, SOURCE, pairs=(A, B))
    np.testing.assert_array_equal(model.transform(X), X)


@BOTH
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (SOURCE[:-1], "source has shape (59,); expected one label for each of the 60 rows of X"),
        (SOURCE[:, None], "source has shape (60, 1)"),
        ("wet", "source has shape ()"),
        ([None, *SOURCE[1:].tolist()], "source is missing (None or NaN) in 1 of 60 rows (first: row 0)"),
        ([float("nan"), *SOURCE[1:].tolist()], "source is missing (None or NaN) in 1 of 60 rows"),
        (np.where(np.arange(N) == 8, np.nan, IDS % 2), "(None or NaN) in 1 of 60 rows (first: row 8)"),
        (pd.Series(SOURCE).where(np.arange(N) > 2), "source is missing (None or NaN) in 3 of 60 rows"),
        (pd.Series(SOURCE, dtype="string").where(np.arange(N) > 2), "source is missing (None or NaN) in 3"),
        ([1, *SOURCE[1:].tolist()], "source mixes int and str labels; use one type"),
        (np.array([1, *SOURCE[1:]], dtype=object), "source mixes int and str"),
        (np.full(N, np.datetime64("2020-01-01")), "source has dtype datetime64[D]; use integers"),
        (pd.Series([("a", s) for s in SOURCE]), "use integers, booleans or strings"),
    ],
)  # fmt: skip
def test_unusable_sources_are_refused(make, source, words):
    with refused(words):
        fit(make, source=source)


@BOTH
@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        pd.Series,
        pd.Categorical,
        lambda s: s.tolist(),
        lambda s: s.astype(object),
        lambda s: s.astype("S"),
        lambda s: s == "wet",
        lambda s: (s == "wet").astype(int),
        lambda s: (s == "wet").astype(float),
        lambda s: torch.tensor(s == "wet"),
    ],
)
def test_usual_labels_are_read_alike(make, convert):
    model = fit(make, source=convert(SOURCE))
    np.testing.assert_allclose(model.transform(X), fit(make).transform(X), atol=1e-12)
    assert len(model.sources_) == 2


# Pairs


@BOTH
def test_no_pairs_are_refused(make):
    with refused(
        "No pairs: pass pairs=(A, B)", "or pair_id=", "population difference", error=MissingEvidence
    ):
        make().fit(X, source=SOURCE)
    with pytest.warns(UserWarning, match=r"No pairs.*Returning the identity map"):
        model = make(on_missing="warn").fit(X, source=SOURCE)
    np.testing.assert_array_equal(model.transform(X), X)


@BOTH
@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ((A, B[:-1]), "pairs are not aligned: the first view has shape (20, 5), the second (19, 5)"),
        (np.stack([A, B]), "first view and second view; got a single ndarray"),
        (torch.tensor(np.stack([A, B])), "got a single Tensor"),
        ({"first": A, "second": B}, "got a single dict"),
        ("AB", "got a single str"),
        ((A, B, B), "got 3 of them"),
        ((A,), "got 1 of them"),
        ((A[0], B[0]), "pairs[0] has shape (5,); expected two dimensions"),
        (TOKEN_PAIRS, "pairs[0] has shape (20, 3, 5); expected two dimensions"),
    ],
)  # fmt: skip
def test_pairs_are_two_aligned_arrays(make, pairs, words):
    with refused(words):
        fit(make, pairs=pairs)


def test_stacked_token_pairs_are_refused():
    with refused("pairs must be a tuple (A, B)"):
        fit_tokens(pairs=np.stack(TOKEN_PAIRS))


@BOTH
def test_identical_views_are_refused(make):
    with refused("All 20 contrasts are zero", "identical", "other condition", error=MissingEvidence):
        fit(make, pairs=(A, A))
    with refused("All 30 contrasts are zero", error=MissingEvidence):
        fit(make, np.concatenate([X[:30], X[:30]]), pair_id=IDS)


@BOTH
def test_more_directions_than_pairs_show_are_refused(make):
    with refused("rank=4 needs 4 independent contrasts", "give 2", "Lower the rank, supply more, or"):
        fit(make, parameters={"gate": MeasurementGate(rank=4, norm_quantile=0.0)}, pairs=(A[:2], B[:2]))
    for gate in (MeasurementGate(rank=6), PCAGate(rank=6), RandomGate(rank=6)):
        with refused("rank=6 does not fit 5 features; use 0 to 5"):
            fit(make, parameters={"gate": gate})


@BOTH
def test_pairs_and_ids_together_are_refused(make):
    with refused("Pass pairs=(A, B) or pair_id=, not both"):
        fit(make, pairs=(A, B), pair_id=IDS)


@BOTH
@pytest.mark.parametrize(
    ("pair_id", "words"),
    [
        (IDS[:-1], "pair_id has shape (59,); expected one id for each of the 60 rows of X"),
        (IDS + 0.5, "pair_id has dtype float64; use integers (negative: unpaired)"),
        (IDS > 3, "pair_id has dtype bool"),
        ([None, "a"] * 30, "pair_id has dtype object"),
        ([0, "a"] * 30, "pair_id has dtype object"),
        (np.arange(N) // 2, "pair_id 0 occurs more than once in the same source (30 such ids)"),
        ((np.arange(N) // 2).astype(str), "pair_id '0' occurs more than once in the same source"),
    ],
)  # fmt: skip
def test_unusable_ids_are_refused(make, pair_id, words):
    with refused(words):
        fit(make, pair_id=pair_id)


@BOTH
def test_ids_that_form_no_pair_are_no_evidence(make):
    with refused("No pairs", "shared by the rows of one event in different sources", error=MissingEvidence):
        fit(make, pair_id=np.full(N, -1))
    with (
        pytest.warns(UserWarning, match="60 of 60 pair ids have a single row"),
        refused("No pairs", error=MissingEvidence),
    ):
        fit(make, pair_id=np.arange(N))


@BOTH
def test_orphans_are_mentioned_and_left_out(make):
    orphaned = IDS.copy()
    orphaned[4] = 99
    with pytest.warns(
        UserWarning,
        match=r"2 of 31 pair ids have a single row.*first: 4\).*split by participant.*one device lost",
    ):
        model = fit(make, pair_id=orphaned)
    marked = np.where(IDS == 4, -1, IDS)
    np.testing.assert_array_equal(model.transform(X), fit(make, pair_id=marked).transform(X))


@BOTH
@pytest.mark.parametrize(
    "convert",
    [
        list,
        pd.Series,
        lambda ids: pd.Series(ids, dtype="Int64"),
        lambda ids: ids.astype(np.uint8),
        lambda ids: np.char.zfill(ids.astype(str), 2),
        lambda ids: np.char.zfill(ids.astype(str), 2).tolist(),
        lambda ids: np.char.zfill(ids.astype(str), 2).astype(object),
        lambda ids: np.char.zfill(ids.astype(str), 2).astype("S"),
        torch.tensor,
    ],
)
def test_usual_ids_are_read_alike(make, convert):
    np.testing.assert_allclose(
        fit(make, pair_id=convert(IDS)).transform(X), fit(make, pair_id=IDS).transform(X), atol=1e-12
    )


@pytest.mark.parametrize("kind", ["U", "S"])
def test_empty_text_is_an_unpaired_row(kind):
    ids = np.where(IDS < 5, "", np.char.zfill(IDS.astype(str), 2)).astype(kind)
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


def test_aligned_pairs_cannot_say_which_of_three_sources_they_are():
    with refused("pairs=(A, B) does not say which of the 3 sources each view is; use pair_id="):
        fit(closed, source=THREE)


def test_pairs_must_connect_all_sources():
    with refused("The pairs do not connect all 3 sources", "directly or through others"):
        fit(closed, source=THREE, pair_id=chain((0, 1), (0, 1)))
    unchecked = {"gate": MeasurementGate(rank=1)}  # these pairs differ in nothing but noise
    fit(closed, source=THREE, pair_id=chain((0, 1), (1, 2)), parameters=unchecked)


# Features and rows


@BOTH
def test_features_that_never_vary_are_refused(make):
    with refused("All 5 features of X are constant", "nothing to correct"):
        fit(make, np.ones((N, D)))


@BOTH
def test_a_dead_feature_is_never_edited(make):
    rows, first, second = (spoilt(part, (slice(None), 2), 0.0) for part in (X, A, B))
    second[:, 2] = 1.0
    model = fit(make, rows, pairs=(first, second))
    new = RNG.normal(size=(10, D))
    np.testing.assert_array_equal(model.transform(new)[:, 2], new[:, 2])


@BOTH
def test_fewer_rows_than_features_work(make):
    wide = RNG.normal(size=(D, 90))
    few = slice(20, 40)
    model = fit(make, X[few] @ wide, source=SOURCE[few], pairs=(A @ wide, B @ wide))
    out = model.transform(X @ wide)
    assert np.isfinite(out).all()
    assert not np.array_equal(out, X @ wide)


# Weights


@BOTH
@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.where(np.arange(N) == 3, -1.0, 1.0), "Negative values in data passed to `sample_weight`"),
        (np.zeros(N), "zero"),  # by scikit-learn from 1.7 on, by us before
        (np.full(N, np.nan), "sample_weight contains NaN"),
        (np.ones(3), "sample_weight.shape == (3,), expected (60,)"),
    ],
)
def test_unusable_weights_are_refused(make, weight, words):
    with refused(words):
        fit(make, sample_weight=weight)


@pytest.mark.filterwarnings("ignore")
@BOTH
def test_a_source_without_weight_is_refused(make):
    with refused("sample_weight", "dry"):
        fit(make, sample_weight=(SOURCE == "wet").astype(float))


# Operating points


@BOTH
def test_unusable_operating_points_are_refused(make):
    model = fit(make)
    with refused("strength must be a finite number; got nan"):
        model.transform(X, strength=np.nan)
    with refused("strength must not be negative; got -1.0"):
        model.transform(X, strength=-1)


def test_prefixes_beyond_the_map_are_refused():
    model = fit(iterative, parameters={"do_no_harm": False})
    for wrong in (3, -1):
        with refused(f"n_stages is {wrong}; this map has 2 stages"):
            model.transform(X, n_stages=wrong)
    with refused("fraction must lie in [0, 1]; got 2"):
        model.transform(X, fraction=2)
    with refused("fraction must lie in [0, 1]; got nan"):
        model.transform(X, fraction=np.nan)


# Held-out rows and participants


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"X_val": X}, "X_val without source_val"),
        ({"X_val": X, "source_val": np.full(N, "gel")}, "['gel'] in source_val; fitted on are ['dry', "),
        ({"X_val": X, "source_val": np.ones(N)}, "Unknown source [1.0] in source_val"),
        ({"X_val": X, "source_val": SOURCE[:3]}, "(3,); expected one label for each of the 60 rows of X_val"),
        ({"X_val": X, "source_val": [None] * N}, "source_val is missing (None or NaN) in 60 of 60 rows"),
        ({"X_val": X[:9], "source_val": SOURCE[:9]}, "No held-out rows of source ['wet']: do_no_harm"),
        ({"X_val": X[:0], "source_val": SOURCE[:0]}, "0 sample(s)"),
        ({"groups": np.arange(3)}, "for each of the 60 rows of X"),
    ],
)  # fmt: skip
def test_unusable_held_out_rows_are_refused(held, words):
    with refused(words):
        fit(iterative, **held)


def test_too_few_rows_to_hold_out_are_refused():
    few = A[:10], B[:10]  # too few to judge by
    with refused("too few rows to hold some out: at least two groups", "or do_no_harm=False"):
        fit(iterative, groups=np.zeros(N), pairs=few)
    fit(iterative, groups=np.zeros(N), pairs=few, parameters={"do_no_harm": False})


def test_held_out_sources_without_rows_are_refused():
    with refused("source_val without X_val"):
        fit(iterative, source_val=SOURCE)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([None, *["a"] * (N - 1)], "groups is missing (None or NaN) in 1 of 60 rows"),
        (np.where(IDS == 3, np.nan, IDS), "groups is missing (None or NaN) in 2 of 60 rows"),
        (np.zeros((N, 2)), "groups has shape (60, 2)"),
    ],
)
def test_unusable_participants_are_refused(groups, words):
    with refused(words):
        fit(iterative, groups=groups)


# What a failed call leaves behind


def half_bad():
    """Return calls to fit that fail at different depths, and what they say."""
    return {
        "rows": (spoilt(X, 0), {}, "X contains NaN"),
        "width": (X[:, :4], {}, "pairs have 5 features"),
        "one source": (X, {"source": np.full(N, "wet")}, "source has 1 distinct value"),
        "no source": (X, {"source": None}, "source is missing"),
        "pairs": (X, {"pairs": (A, B[:-1])}, "pairs are not aligned"),
        "identical": (X, {"pairs": (A, A)}, "contrasts are zero"),
        "ids": (X, {"pair_id": np.arange(N) // 2, "pairs": None}, "pair_id 0 occurs more than once"),
        "constant": (np.ones((N, D)), {}, "features of X are constant"),
    }


def assert_intact_or_unfitted(model, before):
    """A model after a failed fit answers as before, or not at all."""
    try:
        after = model.transform(X)
    except (NotFittedError, ValueError):
        return
    np.testing.assert_array_equal(after, before)


@BOTH
@pytest.mark.parametrize("why", half_bad())
def test_a_failed_refit_never_answers_wrongly(make, why):
    model = fit(make)
    before = model.transform(X)
    rows, changes, words = half_bad()[why]
    with refused(words):
        model.fit(rows, **({"source": SOURCE, "pairs": (A, B)} | changes))
    assert_intact_or_unfitted(model, before)


@pytest.mark.parametrize("why", half_bad())
def test_a_failed_iterative_refit_is_clearly_unfitted(why):
    model = fit(iterative)
    rows, changes, words = half_bad()[why]
    with refused(words):
        model.fit(rows, **({"source": SOURCE, "pairs": (A, B)} | changes))
    with pytest.raises(NotFittedError):
        model.transform(X)
    with pytest.raises(NotFittedError):
        model.to_map()


def test_a_refit_that_fails_late_mixes_nothing():
    model = fit(iterative)
    with refused("No held-out rows of source"):
        model.fit(-X, source=SOURCE, pairs=(A, B), X_val=X[:9], source_val=SOURCE[:9])
    with pytest.raises(NotFittedError):
        model.transform(X)


@pytest.mark.parametrize("on_missing", ["raise", "warn"])
def test_a_failed_closed_form_refit_is_clearly_unfitted(on_missing):
    model = fit(closed, parameters={"on_missing": on_missing})
    with refused("X contains NaN"):
        model.fit(spoilt(X, 0), source=SOURCE, pairs=(A, B))
    with pytest.raises(NotFittedError):
        model.transform(X)


def test_failed_token_refits_mix_nothing():
    model = fit_tokens()
    with refused("source has 1 distinct value"):
        model.fit(TOKENS[:, :2], source=np.full(N, "wet"), pairs=None)
    with pytest.raises(NotFittedError):
        model.transform(TOKENS)
    with pytest.raises(NotFittedError):
        model.to_map()


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        (spoilt(X, 0), {}),
        (X[:, :4], {}),
        (X, {"source": SOURCE[:-1]}),
        (X, {"pairs": (A, B[:-1])}),
        (X, {"pairs": (spoilt(A, 0), B)}),
        (X, {"pair_id": IDS}),
        (X, {"sample_weight": -np.ones(N)}),
        (X, {"source": None}),
        (X, {"source": (SOURCE == "wet").astype(int)}),
    ],
    ids=["nan", "width", "labels", "aligned", "nan-pairs", "both", "weight", "no-source", "label-type"],
)
def test_a_refused_batch_leaves_the_evidence_usable(rows, changes):
    streamed, whole = ClosedFormMGPA(), ClosedFormMGPA()
    good = {"source": SOURCE, "pairs": (A, B)}
    more = X[::-1] + 0.5
    for model in (streamed, whole):
        model.partial_fit(X, **good)
    before = streamed.transform(X)
    with pytest.raises((ValueError, TypeError)):
        streamed.partial_fit(rows, **(good | changes))
    np.testing.assert_array_equal(streamed.transform(X), before)
    for model in (streamed, whole):
        model.partial_fit(more, source=SOURCE[::-1])
    np.testing.assert_array_equal(streamed.transform(X), whole.transform(X))


def test_batches_with_other_types_of_label_are_refused():
    model = ClosedFormMGPA().partial_fit(X, source=SOURCE, pairs=(A, B))
    with refused("source"):
        model.partial_fit(X, source=(SOURCE == "wet").astype(int))


def test_bad_contrasts_leave_a_gate_usable():
    gate = MeasurementGate(rank=1).fit(B - A)
    basis = gate.basis_.copy()
    with refused("contains NaN"):
        gate.partial_fit(spoilt(B - A, 3))
    with refused("has 4 features"):
        gate.partial_fit((B - A)[:, :4])
    np.testing.assert_array_equal(gate.basis_, basis)
    both = MeasurementGate(rank=1).fit(np.concatenate([B - A, B - A]))
    np.testing.assert_allclose(gate.partial_fit(B - A).basis_, both.basis_, atol=1e-12)
