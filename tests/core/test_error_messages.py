"""Errors are ordinary Python errors, and survive a trip between processes."""

import pickle
from pathlib import Path

import pytest

from mgpa.errors import MapError, MissingEvidenceWarning, OutputExists, ParameterError, TableError

EXAMPLES = [
    (ParameterError("ridge", "a lot", "a number"), ValueError, "ridge must be a number; got 'a lot'."),
    (OutputExists(Path("a b.npz")), FileExistsError, "a b.npz exists; pass overwrite=True to replace it."),
    (TableError("t.npz: damaged"), ValueError, "t.npz: damaged"),
    (MapError("line\n\x1b[2J"), ValueError, "line\n\\x1b[2J"),
    (MissingEvidenceWarning("No pairs."), UserWarning, "No pairs."),
]


@pytest.mark.parametrize(("error", "base", "message"), EXAMPLES)
def test_an_error_says_its_message_here_and_in_another_process(error, base, message):
    assert isinstance(error, base)
    error.add_note("This happened while fitting.")
    back = pickle.loads(pickle.dumps(error))
    assert str(error) == str(back) == message
    assert (type(back), vars(back)) == (type(error), vars(error))
