"""Commands end in one of three ways: done, refused, or stopped; and what is in place is said to be."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from mgpa import cli
from mgpa._common import files
from mgpa.tables import open_table
from terminal import ENVIRONMENT, here

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")


def stopped_at(monkeypatch, step, number, *, after):
    """Have a file be put in its place just before or after a signal."""
    original = getattr(os, step)

    def stopping(*names):
        if not after:
            os.kill(os.getpid(), number)
        original(*names)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(files.os, step, stopping)


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
@pytest.mark.parametrize("command", ["convert", "apply", "fit"])
def test_a_stopped_command_has_either_finished_or_left_nothing(
    command, number, word, folder, tmp_path, monkeypatch
):
    table, out = (
        folder / "rec ördings.parquet",
        tmp_path / ("m.safetensors" if command == "fit" else "new.csv"),
    )
    first = [table] if command != "apply" else [folder / "map one.safetensors", table]
    arguments = [command, *first, "--out", out]
    for step in ("link", "replace"):  # a new file is put in place by the one, another by the other
        more = ["--overwrite"] if step == "replace" else []
        with monkeypatch.context() as patch:
            stopped_at(patch, step, number, after=False)
            done = here(*arguments, *more)
        assert (done.returncode, word in done.stderr) == (128 + number, True), done.stderr
        assert not [*tmp_path.iterdir()]
        with monkeypatch.context() as patch:
            stopped_at(patch, step, number, after=True)
            done = here(*arguments, *more)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            0,
            f"mgpa: interrupted after {out} was complete.",
        )
        out.unlink()


def test_an_interrupt_that_a_destructor_swallows_is_asked_again(folder, tmp_path, monkeypatch):
    class Ends:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass

    def slowly(*arguments, **options):
        Ends()
        time.sleep(5)
        raise AssertionError("not interrupted")

    monkeypatch.setattr("mgpa.tables.files.write_table", slowly)
    done = here("convert", folder / "rec ördings.parquet", "--out", tmp_path / "new.csv")
    assert (done.returncode, done.stderr) == (130, "mgpa: interrupted; what was finished is kept.\n")


def test_handlers_of_signals_are_as_they_were_before(folder):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    here("inspect", folder / "rec ördings.parquet")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_fetch_that_is_interrupted_while_it_asks_is_no_traceback(monkeypatch, tmp_path):
    requests = pytest.importorskip("requests")
    pytest.importorskip("pooch")

    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        raise requests.ConnectionError("broken by the signal")

    monkeypatch.setattr(requests, "get", interrupted)
    done = here("data", "fetch", "wearable_ssvep", "--from", "osf:ab3de", "--out", tmp_path / "data")
    assert (done.returncode, done.stderr) == (130, "mgpa: interrupted; what was finished is kept.\n")


def test_a_signal_at_any_moment_is_no_traceback(folder, tmp_path):
    command = [sys.executable, "-m", "mgpa", "convert", folder / "rec ördings.parquet", "--out"]
    start = time.monotonic()
    subprocess.run([*command, tmp_path / "undisturbed.csv"], env=ENVIRONMENT, check=True)
    takes, stopped = time.monotonic() - start, 0
    for share, number in zip((0.2, 0.4, 0.6, 0.8), [signal.SIGINT, signal.SIGTERM] * 2, strict=True):
        process = subprocess.Popen(
            [*command, tmp_path / "new.csv"], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(share * takes)
        process.send_signal(number)  # nothing happens if it has ended
        _, said = process.communicate()
        assert "Traceback" not in said
        assert process.returncode in (0, 128 + number, -number)
        stopped += process.returncode != 0
        if (tmp_path / "new.csv").exists():
            assert process.returncode == 0
            assert open_table(tmp_path / "new.csv", embedding="f").n_rows
            (tmp_path / "new.csv").unlink()
    assert stopped
    assert cli.main(["doctor", "--nonsense"]) == 2
