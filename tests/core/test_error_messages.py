"""Errors keep the parameters they speak of apart from their text, and survive a trip between processes."""

import pickle
from pathlib import Path

import pytest

import mgpa
from mgpa.errors import (
    BudgetNotAttained,
    MapError,
    Mention,
    MissingEvidence,
    MissingEvidenceWarning,
    OutputExists,
    ParameterError,
    TableError,
    UsageError,
    Worded,
)

EXAMPLES = [
    (UsageError("try ", Mention("eb", False), "."), ValueError, "try eb=False.", "try <eb>."),
    (
        ParameterError("ridge", "a lot", "a number"),
        ValueError,
        "ridge must be a number; got 'a lot'.",
        "<ridge> must be a number; got 'a lot'.",
    ),
    (
        OutputExists(Path("{a} b.npz")),
        FileExistsError,
        "{a} b.npz exists; pass overwrite=True to replace it.",
        "{a} b.npz exists; pass <overwrite> to replace it.",
    ),
    (
        TableError("t.npz: ", Mention("columns", ["age"])),
        ValueError,
        "t.npz: columns=['age']",
        "t.npz: <columns>",
    ),
    (MapError("damaged"), ValueError, "damaged", "damaged"),
    (
        MissingEvidence("pass ", Mention("pairs", python="two views")),
        ValueError,
        "pass two views",
        "pass <pairs>",
    ),
    (
        MissingEvidenceWarning("(", Mention("on_missing", "warn"), ")"),
        UserWarning,
        "(on_missing='warn')",
        "(<on_missing>)",
    ),
    (
        BudgetNotAttained("a smaller ", Mention("budget")),
        RuntimeError,
        "a smaller budget",
        "a smaller <budget>",
    ),
]


@pytest.mark.parametrize(("error", "base", "python", "other"), EXAMPLES)
def test_a_message_has_python_s_words_or_any_other(error, base, python, other):
    assert isinstance(error, base)
    assert isinstance(error, Worded)
    assert str(error) == python
    assert error.worded(lambda mention: f"<{mention.name}>") == other


@pytest.mark.parametrize("error", [example[0] for example in EXAMPLES])
def test_an_error_comes_back_whole_from_another_process(error):
    error.add_note("This happened while fitting.")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), back.parts, back.__notes__) == (str(error), error.parts, error.__notes__)
    assert vars(back) == vars(error)


def test_a_table_error_is_named_after_its_file_and_keeps_its_mentions(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"X": [[0.0, 1.0]] * 4, "wide": [[0.0, 1.0]] * 4, "source": list("abab")}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"Leave it out with columns=\['source'\]") as caught:
        mgpa.tables.open_table(tmp_path / "t.parquet")
    assert str(caught.value).startswith(f"{tmp_path / 't.parquet'}: wide ")
    assert Mention("columns", ["source"]) in caught.value.parts
