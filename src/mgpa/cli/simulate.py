"""The command that simulates a table."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from .application import Out, Overwrite, Seed, app
from .ending import will_write


@app.command
def simulate(
    *,
    out: Out,
    people: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 24,
    sources: Annotated[int, Parameter(validator=validators.Number(gte=2, lte=4))] = 2,
    tokens: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    device_effect: float = 3.0,
    overlap: Annotated[float, Parameter(validator=validators.Number(gte=0, lte=1))] = 0.0,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write a table of simulated embeddings with a known device effect.

    Example: mgpa simulate --out recordings.parquet

    Parameters
    ----------
    out
        A .parquet or .npz file.
    people
        Number of participants.
    sources
        Number of devices that recorded each participant, from 2 to 4.
    tokens
        Tokens per event; 0 for vectors.
    device_effect
        Shift from one device to the next, in standard deviations of the noise.
    overlap
        Cosine between the directions of device and task. At 0, a decoder of one device works on the others;
        above 0, it does not.
    """
    from ..tables.files import write_table
    from ..tables.simulate import simulate_table

    will_write(out)
    made = simulate_table(
        people,
        n_sources=sources,
        tokens=tokens,
        device_effect=device_effect,
        overlap=overlap,
        random_state=seed,
    )
    write_table(made, out, overwrite=overwrite)
    print(f"{len(made)} rows of {people} participants and {sources} devices in {out}")
