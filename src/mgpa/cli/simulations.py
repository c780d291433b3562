"""Commands that simulate: a table of embeddings, or recordings in the files of public data sets."""

from __future__ import annotations

import sys

from cyclopts import App

from .application import Folder, Names, Out, Overwrite, Seed, app

simulate = App(name="simulate")
app.command(simulate)


@simulate.default
@simulate.command
def table(
    *,
    out: Out,
    people: int = 24,
    events: int = 24,
    features: int = 16,
    sources: int = 2,
    tokens: int = 0,
    association: float = 0.85,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write a table of simulated embeddings with a known device effect, to try things on.

    Example: mgpa simulate --out recordings.parquet

    Recordings in the files of public data sets: `mgpa simulate ssvep` and `mgpa simulate flex`.

    Parameters
    ----------
    out
        A .parquet or .npz file.
    people, events
        Participants, and events of each.
    features, tokens
        Width of the embedding, and tokens per event (0: vectors).
    sources
        Number of devices.
    association
        How often, in FIT and VAL, the class decides the device.
    seed
        Of the random numbers.
    """
    from ..tables.files import write_table
    from ..tables.simulate import simulate_table

    made = simulate_table(
        people, events, features, sources, tokens=tokens, association=association, random_state=seed
    )
    write_table(made, out, overwrite=overwrite)
    print(f"{len(made)} rows of {people} participants and {sources} devices in {out}")


@simulate.command
def ssvep(*, out: Folder, people: int = 102, blocks: int = 10, seed: Seed = 0) -> None:
    """Write simulated SSVEP recordings with dry and wet electrodes, in the files of the real data set.

    Example: mgpa simulate ssvep --out ssvep --people 12

    Finished files are kept: run again after an interruption, it continues. truth.json has what was planted.

    Parameters
    ----------
    out
        Folder for S001.mat and so on.
    people, blocks
        Participants, and blocks of each, of twelve trials with either electrode.
    seed
        Of the random numbers.
    """
    from ..eeg.simulate.ssvep import simulate_ssvep

    verbose = sys.stderr.isatty()
    simulate_ssvep(out, n_people=people, random_state=seed, blocks=blocks, verbose=verbose)
    print(f"{people} participants in {out}")


@simulate.command
def flex(
    *,
    out: Folder,
    people: int | None = None,
    tasks: Names | None = None,
    events: int = 40,
    seed: Seed = 0,
) -> None:
    """Write simulated ERP recordings by two devices at once, in the files of Neuroscan and Emotiv Flex.

    Example: mgpa simulate flex --out flex --people 3 --tasks N170

    Finished sessions are kept: run again after an interruption, it continues. truth.json has what was
    planted.

    Parameters
    ----------
    out
        Folder for a folder "Saline Raw Data", as the provider's.
    people, events
        How many of the real data set's participants, from the first (by default all); events of each task.
    tasks
        Of N170, oddball_active and oddball_passive; by default all.
    seed
        Of the random numbers.
    """
    from ..eeg.datasets.neuroscan_flex import PARTICIPANTS, TASKS
    from ..eeg.simulate.erp import simulate_flex

    if people is not None and not 1 <= people <= len(PARTICIPANTS):
        raise ValueError(f"--people is {people}; the data set has 1 to {len(PARTICIPANTS)}.")
    unknown = sorted(set(tasks or ()) - set(TASKS))
    if unknown:
        raise ValueError(f"No task {', '.join(unknown)}. Tasks: {', '.join(TASKS)}.")
    who, chosen = PARTICIPANTS[:people], tuple(tasks or TASKS)
    simulate_flex(
        out,
        participants=who,
        tasks=chosen,
        random_state=seed,
        n_events=events,
        verbose=sys.stderr.isatty(),
    )
    print(f"{len(who)} participants, {', '.join(chosen)}, in {out}")
