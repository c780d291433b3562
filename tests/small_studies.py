"""Small studies, and what tests of several modules do with them."""

import sys
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from mgpa.cli import main
from mgpa.paper import run_study
from mgpa.tables.files import write_table
from simulated import simulated_table

TINY = """
name = "tiny"
title = "Tiny & <quick>"
seeds = [17]
[data]
kind = "table"
table = "rows.npz"
[gate]
rank = 2
[methods."LEACE_50 %"]
method = "leace"
[methods.CF]
method = "closed_form_mgpa"
[methods.Iter]
method = "iterative_mgpa"
budget = 0.05
parameters = { n_stages = 3, critic_epochs = 2, do_no_harm = false, target = "conditional" }
[readers]
restarts = 0
[[contrasts]]
a = "CF"
paper = { S = [-0.25, -0.3, -0.2] }
[[contrasts]]
a = "CF"
b = "LEACE_50 %"
metrics = ["T_f", "worst"]
[paper]
identity = { S = 0.75 }
CF = { S = 0.5, M = 0.125 }
"""

# The same with one method, and without contrasts.
CLOSED_FORM = """
name = "tiny"
title = "Tiny"
seeds = [17]
[data]
kind = "table"
table = "rows.npz"
[gate]
rank = 2
[methods.CF]
method = "closed_form_mgpa"
[readers]
restarts = 0
"""

# Two amplifiers, five people, eight events.
RECORDED = """
name = "recorded"
title = "Recorded twice"
seeds = [17]
[data]
kind = "neuroscan_flex"
tasks = ["N170"]
[data.simulate]
n_events = 8
participants = ["1013", "1014", "1016", "1018", "1019"]
crosstalk = 1e-5
[encoder]
name = "temporal_bins"
[roles.people]
FIT = [1013, 1014]
HEAD = [1016]
EVAL = [1018, 1019]
[gate]
rank = 2
[methods.CF]
method = "closed_form_mgpa"
[readers]
restarts = 0
[[contrasts]]
a = "CF"
"""


def written(folder, text=TINY, table=None):
    """Return the path of a study, beside its table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "my.toml").write_text(text, "utf-8")
    write_table(simulated_table() if table is None else table, folder / "rows.npz", overwrite=True)
    return folder / "my.toml"


def run(study, work, **options):
    return run_study(study, work, verbose=False, **options)


def computed(study, work):
    """Run a study; return how often it fitted each method and measured one, and whether cells changed."""
    done = Counter()

    def noted(kind):
        @contextmanager
        def explain(what, store):
            yield
            verb, _, name = what.partition(" ")
            if verb != "cutting":
                done["measure" if verb == "measuring" else f"{kind} {name}"] += 1

        return explain

    old = {path: path.stat().st_mtime_ns for path in (work / "cells").glob("*")}
    with (
        patch("mgpa.audit.fits.explain", noted("fit")),
        patch("mgpa.audit.cells.explain", noted("fit")),
        patch("mgpa.paper.studies.reuse.explain", noted("select")),
    ):
        run(study, work)
    assert {path: path.stat().st_mtime_ns for path in old} == old, "a finished cell was written again"
    return done


def files_of(folder):
    """Return the bytes of every file, but for what killed writers left."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def assert_same_files(first, second):
    a, b = files_of(first), files_of(second)
    assert list(a) == list(b)
    differ = [name for name in a if a[name] != b[name]]
    assert not differ, differ


def in_process(monkeypatch, *arguments):
    """Run a command here, as if it had been typed; return its exit code."""
    words = [str(argument) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["mgpa", *words])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    return main(words)


def paired_table():
    """Events that both devices saw, of people without roles."""
    table = simulated_table(n_people=60)
    return replace(table.take(np.isin(table.role, ("HEAD", "EVAL"))), role=None)


def two_tasks():
    """Events that both devices saw, with two labels each: one of them is noise."""
    table = paired_table()
    event = np.unique(table.pair_id, return_inverse=True)[1]
    noise = np.random.default_rng(0).permutation(event.max() + 1) % 2
    return replace(table, label=None, other={"easy": np.asarray(table.label), "hard": noise[event]})
