"""Commands that simulate: a table of embeddings, or recordings in the files of public data sets."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from .application import AsJson, Folder, Out, Seed, UserError, app, show

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
    overwrite: bool = False,
) -> None:
    """Write a table of simulated embeddings with a known device effect, to try things on.

    Example: mgpa simulate --out recordings.parquet

    Recordings in the files of public data sets: `mgpa simulate ssvep` and `mgpa simulate flex`.

    Parameters
    ----------
    out
        A .parquet, .npz or .zarr file.
    people
        Participants.
    events
        Events of each.
    features
        Width of the embedding.
    sources
        Number of devices.
    tokens
        Tokens per event, 0 for vectors.
    association
        How often, in FIT and VAL, the class decides the device.
    seed
        Of the random numbers.
    overwrite
        Replace an existing table.
    """
    from ..tables.files import write_table
    from ..tables.simulate import simulate_table

    made = simulate_table(
        people, events, features, sources, tokens=tokens, association=association, random_state=seed
    )
    write_table(made, out, overwrite=overwrite)
    print(f"{len(made)} rows of {people} participants and {sources} devices in {out}")


@simulate.command
def ssvep(
    *,
    out: Folder,
    people: int = 102,
    blocks: int = 10,
    population: float = 0.0,
    seed: Seed = 0,
    json_: AsJson = False,
) -> None:
    """Write simulated SSVEP recordings with dry and wet electrodes, in the files of the real data set.

    Example: mgpa simulate ssvep --out ssvep --people 12

    Finished files are kept: run again after an interruption, it goes on where it was. What was planted is in
    truth.json.

    Parameters
    ----------
    out
        Folder for S001.mat and so on.
    people
        Participants.
    blocks
        Blocks of each, of twelve trials with either electrode.
    population
        How much people differ, besides their electrodes, by which of them they used first; 0 is not at all.
    seed
        Of the random numbers.
    """
    from ..eeg.simulate.ssvep import simulate_ssvep

    simulate_ssvep(
        out,
        n_people=people,
        random_state=seed,
        blocks=blocks,
        population=population,
        verbose=sys.stderr.isatty(),
    )
    show({"folder": str(out), "participants": people}, f"{people} participants in {out}", json_)


@simulate.command
def flex(
    *,
    out: Folder,
    people: int | None = None,
    tasks: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    events: int = 40,
    population: float = 0.0,
    seed: Seed = 0,
    json_: AsJson = False,
) -> None:
    """Write simulated ERP recordings by two devices at once, in the files of Neuroscan and Emotiv Flex.

    Example: mgpa simulate flex --out flex --people 3 --tasks N170

    Finished sessions are kept: run again after an interruption, it goes on where it was. What was planted is
    in truth.json.

    Parameters
    ----------
    out
        Folder for a folder "Saline Raw Data", as the provider's.
    people
        How many of the real data set's participants, from the first; by default all.
    tasks
        Of N170, oddball_active and oddball_passive; by default all.
    events
        Events of each participant and task.
    population
        How much people differ physiologically besides their devices; 0 is not at all.
    seed
        Of the random numbers.
    """
    from ..eeg.datasets.neuroscan_flex import PARTICIPANTS, TASKS
    from ..eeg.simulate.erp import simulate_flex

    if people is not None and not 1 <= people <= len(PARTICIPANTS):
        raise UserError(f"--people is {people}; the data set has 1 to {len(PARTICIPANTS)}.")
    who = PARTICIPANTS[:people]
    unknown = sorted(set(tasks or ()) - set(TASKS))
    if unknown:
        raise UserError(f"There is no task {', '.join(unknown)}; there are {', '.join(TASKS)}.")
    chosen = tuple(tasks or TASKS)
    simulate_flex(
        out,
        participants=who,
        tasks=chosen,
        random_state=seed,
        n_events=events,
        population=population,
        verbose=sys.stderr.isatty(),
    )
    facts = {"folder": str(out), "participants": list(who), "tasks": list(chosen)}
    show(facts, f"{len(who)} participants, {', '.join(chosen)}, in {out}", json_)
