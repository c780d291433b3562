"""The `mgpa` command as its users meet it: in a process, or, where that makes no difference, in this one."""

import contextlib
import io
import os
import subprocess
import sys
import warnings

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "110", "NO_COLOR": "1"}


def in_process(*arguments, folder=None, **options):
    """Run the command in a process of its own and return what became of it."""
    return subprocess.run(
        [sys.executable, "-m", "mgpa", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=ENVIRONMENT,
        **options,
    )


def here(*arguments, folder="."):
    """Run the command in this process, which saves seconds of imports, and return the same as above."""
    from mgpa.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", ResourceWarning)  # of objects that other tests left to be collected
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*map(str, arguments)])
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def done(*arguments, run=here, **options):
    """Run the command, which has to succeed."""
    result = run(*arguments, **options)
    assert result.returncode == 0, result.stderr
    return result


def refused(*arguments, **options):
    """Run the command, which has to refuse in one line; return that line."""
    result = here(*arguments, **options)
    assert result.returncode == 2, result.stdout + result.stderr
    (line,) = (line for line in result.stderr.splitlines() if not line.startswith("audit: "))
    assert line.startswith("mgpa: ")
    return line.removeprefix("mgpa: ")
