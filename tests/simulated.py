"""Two devices, people, a task: a small table with known answers."""

from typing import Any

import numpy as np

from mgpa.tables import Table, assign_roles


def simulated_table(
    n_people: int = 20,
    events: int = 16,
    d: int = 8,
    K: int = 2,
    n_classes: int = 2,
    tokens: int = 0,
    association: float = 0.85,
    device_effect: float = 3.0,
    seed: int = 0,
    **changes: Any,
) -> Table:
    """Return events seen by all devices in HEAD, EVAL and a sixth of FIT and VAL; by one elsewhere.

    There the second device goes with the later classes. The device effect is of rank one.
    """
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n_people), events)
    y = np.tile(np.arange(n_classes), len(person) // n_classes + 1)[: len(person)]
    shape = (len(person), tokens, d) if tokens else (len(person), d)
    content = rng.normal(size=shape)
    directions = np.linalg.qr(rng.normal(size=(d, d)))[0]
    trait = 0.3 * rng.normal(size=(n_people, d))[person]
    level = trait + y[:, None] * 1.5 * directions[0]
    content = content + (level[:, None, :] if tokens else level)
    role = assign_roles(np.arange(n_people), random_state=1)[person]
    rows, sources = [], []
    for event in range(len(person)):
        if role[event] in ("HEAD", "EVAL") or event % 6 == 0:
            seen = range(K)
        elif rng.random() < association:
            seen = (y[event] * K // n_classes,)
        else:
            seen = (int(rng.integers(K)),)
        rows += [event] * len(seen)
        sources += list(seen)
    rows, sources = np.array(rows), np.array(sources)
    effect = device_effect * sources[:, None] * directions[1]
    X = content[rows] + (effect[:, None, :] if tokens else effect)
    columns: dict[str, Any] = {
        "source": np.array(["dry", "gel", "wet"])[sources] if K > 2 else np.array(["dry", "wet"])[sources],
        "participant": np.array([f"p{p:02d}" for p in person])[rows],
        "label": y[rows],
        "role": role[rows],
        "pair_id": np.where(np.bincount(rows)[rows] > 1, rows, -1),
    }
    return Table(X, **(columns | changes))
