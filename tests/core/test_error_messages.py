"""Errors are ordinary ones with one plain message, and survive a trip between processes."""

import pickle
from pathlib import Path

import pytest

from mgpa.errors import BudgetNotAttained, MissingEvidenceWarning, OutputExists, ParameterError, UsageError


@pytest.mark.parametrize(
    ("error", "base", "text"),
    [
        (UsageError("try eb=False."), ValueError, "try eb=False."),
        (ParameterError("ridge", "a lot", "a number"), ValueError, "ridge must be a number; got 'a lot'."),
        (
            OutputExists(Path("{a} b.npz")),
            FileExistsError,
            "{a} b.npz exists; pass overwrite=True (--overwrite) to replace it.",
        ),
        (MissingEvidenceWarning("(on_missing='warn')"), UserWarning, "(on_missing='warn')"),
        (BudgetNotAttained("a smaller budget"), RuntimeError, "a smaller budget"),
    ],
)
def test_a_message_is_plain_and_comes_back_whole_from_another_process(error, base, text):
    assert isinstance(error, base)
    assert str(error) == text
    error.add_note("This happened while fitting.")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), back.__notes__, vars(back)) == (text, error.__notes__, vars(error))
