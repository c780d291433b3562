"""A progress line moves on a terminal and leaves one line, not a thousand, in a log."""

import io
import re

import pytest

from mgpa._common.progress import progress, tell, waiting


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, monkeypatch, steps=3):
    monkeypatch.setattr("sys.stderr", stream)
    assert list(progress(range(steps), "fitting", True)) == list(range(steps))
    return stream.getvalue()


def test_on_a_terminal_the_line_is_updated(monkeypatch):
    text = shown(Terminal(), monkeypatch)
    assert "0/3" in text
    assert re.search(r"2/3, \d+ s, at most", text)
    assert text.count("\n") == 1


@pytest.mark.parametrize("steps", [0, 3])
def test_elsewhere_there_is_one_line_at_the_end(monkeypatch, steps):
    assert re.fullmatch(r"fitting done in \d+\.\d s\n", shown(io.StringIO(), monkeypatch, steps))


def test_a_loop_that_is_left_early_ends_its_line(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    steps = progress(range(9), "fitting", True)
    next(steps)
    steps.close()
    assert stream.getvalue().endswith("s\n")


def test_nothing_is_said_unless_it_is_asked_for(monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    assert list(progress(range(2), "fitting", False)) == [0, 1]
    with waiting("loading", enabled=False):
        pass
    assert stream.getvalue() == ""


def test_what_is_waited_for_is_gone_afterwards(monkeypatch):
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    with waiting("loading"):
        assert "loading …" in stream.getvalue()
    assert stream.getvalue().rstrip("\r").endswith(" " * 70)


def test_in_a_notebook_progress_is_on_stdout(monkeypatch, capsys):
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    tell("to a shell\n")
    monkeypatch.setattr("sys.stderr", stream)
    tell("to a notebook\n")
    assert list(progress(range(2), "steps", True)) == [0, 1]
    out, error = capsys.readouterr()
    assert out.startswith("to a notebook\nsteps done")
    assert error == "to a shell\n"
    assert stream.getvalue() == ""
