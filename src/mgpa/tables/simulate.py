"""Simulate embeddings with participants, a task, and known device effects."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UsageError
from .columns import assign_roles
from .table import Table

DEVICES = ("dry", "wet", "gel", "pad")


def simulate_table(
    n_people: int = 24,
    events: int = 24,
    d: int = 16,
    n_sources: int = 2,
    n_classes: int = 2,
    tokens: int = 0,
    association: float = 0.85,
    device_effect: float = 3.0,
    overlap: float = 0.0,
    random_state: int = 0,
    **columns: Any,
) -> Table:
    """Simulate embeddings of events that several devices recorded.

    The task changes embeddings along one direction, the device along another. Every participant has an
    offset, and every measurement has noise. For HEAD and EVAL participants, and in every sixth event, all
    devices record the event (``pair_id``). Other events are recorded by one device, which is associated with
    the class for FIT and VAL participants. A method that erases everything that predicts the device therefore
    erases part of the task; pairs separate the two.

    Parameters
    ----------
    n_people, events : int
        Number of participants, and number of events per participant.
    d : int
        Number of features.
    n_sources, n_classes : int
        Number of devices (at most four) and classes.
    tokens : int
        Number of tokens per event; 0 for vectors.
    association : float
        The share of FIT and VAL events in which the class determines the device.
    device_effect : float
        Shift from one device to the next, in standard deviations of the noise.
    overlap : float
        Cosine between the directions of device and task. At 0, a decoder of one device works on the others;
        above 0, it does not.
    random_state : int
        Seed.
    **columns
        Columns to replace (``label=None`` omits the task).

    Examples
    --------
    >>> table = simulate_table(n_people=8)
    >>> table.X.shape[1], table.sources.tolist()
    (16, ['dry', 'wet'])
    """
    if (
        min(n_people, events, n_classes, d - 1) < 1
        or min(tokens, random_state) < 0
        or not (0 <= association <= 1 and 0 <= overlap <= 1)
    ):
        raise UsageError(
            "n_people, events and n_classes must be 1 or more, d 2 or more, association and overlap 0 to 1."
        )
    if not 2 <= n_sources <= len(DEVICES):
        raise UsageError(f"n_sources must be 2 to {len(DEVICES)}; got {n_sources}.")
    rng = np.random.default_rng(random_state)
    person = np.repeat(np.arange(n_people), events)
    y = np.tile(np.arange(n_classes), len(person) // n_classes + 1)[: len(person)]
    content = rng.normal(size=(len(person), tokens, d) if tokens else (len(person), d))
    directions = np.linalg.qr(rng.normal(size=(d, d)))[0]
    trait = 0.3 * rng.normal(size=(n_people, d))[person]
    level = trait + 1.5 * y[:, None] * directions[0]
    content = content + (level[:, None, :] if tokens else level)
    role = assign_roles(np.arange(n_people), random_state=random_state + 1)[person]
    rows: list[int] = []
    devices: list[int] = []
    for event in range(len(person)):
        if role[event] in ("HEAD", "EVAL") or event % 6 == 0:
            seen = list(range(n_sources))
        elif rng.random() < association:
            seen = [int(y[event]) * n_sources // n_classes]
        else:
            seen = [int(rng.integers(n_sources))]
        rows += [event] * len(seen)
        devices += seen
    event_of, device = np.array(rows), np.array(devices)
    direction = np.sqrt(1 - overlap**2) * directions[1] + overlap * directions[0]
    effect = device_effect * device[:, None] * direction
    # Two measurements of the same event are nearly, not exactly, equal.
    effect = effect + 0.1 * rng.normal(size=effect.shape)
    made = {
        "source": np.array(DEVICES)[device],
        "participant": np.array([f"p{p:02d}" for p in person])[event_of],
        "label": y[event_of],
        "role": role[event_of],
        "pair_id": np.where(np.bincount(event_of)[event_of] > 1, event_of, -1),
    }
    return Table(content[event_of] + (effect[:, None, :] if tokens else effect), **(made | columns))
