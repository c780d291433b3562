"""Simulated worlds: content with a task, recorded by devices with known differences.

Content has 32 correlated features and a task with two classes along one direction. Each world defines the
effects of its devices on content and has three seeds. In the fitting rows, nine of ten events of a class are
recorded by one device. Paired events, and the events for readers and scoring, are new content recorded by all
devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg

from .settings import Events, Floats, Round, Setting, record_once

D, RANK, SEEDS = 32, 8, 3
JUDGED = 800  # number of events for readers, and for scoring
BLOCKS = 8  # blocks of these events, which take the place of participants in intervals
Device = Callable[[Floats, int], Floats]


@dataclass(frozen=True)
class World:
    """The effects of devices on content, and the amount of data.

    Attributes
    ----------
    device : function
        A function of content and the number of the device that returns the recording without noise.
    noise : tuple of float
        Standard deviation of the noise of each device.
    rows, pairs : int
        Number of events recorded by one device, and by all devices.
    association : float
        Association of device and class, from 0 to 1.
    task_shift : float
        Length of a further shift in nearly the direction of the task.
    """

    device: Device
    noise: tuple[float, ...] = (0.1, 0.1)
    rows: int = 400
    pairs: int = 60
    association: float = 0.8
    task_shift: float = 0.0

    def rounds(self, quick: bool = False) -> Iterator[Round]:
        """Yield one round per seed."""
        judged = JUDGED // 2 if quick else JUDGED
        for seed in range(1 if quick else SEEDS):
            draw = partial(self._events, *self._content(seed))
            yield Round(
                record_once(draw(self.rows), np.random.default_rng(1000 + seed), self.association),
                draw(self.pairs),
                draw(judged, f"{seed} train "),
                draw(judged, f"{seed} scored "),
            )

    def _content(self, seed: int) -> tuple[np.random.Generator, Floats, Floats, Floats]:
        """Return a generator, the feature mixing matrix, the task direction, and the shift near the task."""
        rng = np.random.default_rng(seed)
        low = rng.normal(size=(RANK, D)).T @ rng.normal(size=(RANK, D)) / np.sqrt(RANK * D)
        task = rng.normal(size=D)
        task /= np.linalg.norm(task)
        other = np.random.default_rng(8).normal(size=D)
        other -= (other @ task) * task
        near = self.task_shift * (0.9 * task + 0.44 * other / np.linalg.norm(other))
        return rng, 0.6 * np.eye(D) + 2.1 * low, task, near

    def _events(
        self, rng: np.random.Generator, mixing: Floats, task: Floats, near: Floats, n: int, whose: str = ""
    ) -> Events:
        label = rng.integers(0, 2, n)
        content = rng.normal(size=(n, D)) @ mixing + np.outer(label - 0.5, task) * 2
        views = [
            self.device(content, k) + k * near + sd * rng.normal(size=content.shape)
            for k, sd in enumerate(self.noise)
        ]
        participant = np.char.add(whose, (np.arange(n) * BLOCKS // n).astype(str))
        names = tuple(f"device {k + 1}" for k in range(len(views)))
        return Events(
            np.stack(views), names, label, participant, np.char.add(f"{n} ", np.arange(n).astype(str))
        )


def rotation(seed: int, angle: float) -> Floats:
    """Return a rotation of all features by at most ``angle``."""
    A = np.random.default_rng(seed).normal(size=(D, D))
    A = (A - A.T) / 2
    return np.asarray(scipy.linalg.expm(angle * A / np.linalg.norm(A, 2)))


def worlds() -> dict[str, World]:
    """Return all worlds by name."""
    shift = np.random.default_rng(5).normal(size=D)
    shift *= 2 / np.linalg.norm(shift)
    V = np.linalg.qr(np.random.default_rng(6).normal(size=(D, D)))[0]
    turn, four = rotation(7, 0.5), np.eye(D) + V[:, :4] @ V[:, :4].T

    def shifted(c: Floats, k: int) -> Floats:
        return c + k * shift

    def second(change: Callable[[Floats], Floats]) -> Device:
        return lambda c, k: change(c) if k else c

    unequal = (0.1, 1.0)
    return {
        "shift": World(shifted),
        "shift, association .99": World(shifted, association=0.98),
        "shift, 8 pairs": World(shifted, noise=(0.5, 0.5), pairs=8),
        "shift, 60 rows": World(shifted, rows=60, pairs=20),
        "gain 1.5 of all": World(second(lambda c: 1.5 * c)),
        "gain 1.5 of all + shift": World(second(lambda c: 1.5 * (c + shift))),
        "gain 2 in 4 directions": World(second(lambda c: c @ four)),
        "gain 2 in 4 directions + shift": World(second(lambda c: c @ four + shift)),
        "rotation": World(second(lambda c: c @ turn)),
        "rotation + shift": World(second(lambda c: c @ turn + shift)),
        "shift that depends on content": World(second(lambda c: c + np.outer(1 + c @ V[:, 0], shift) * 0.75)),
        "directions that depend on content": World(
            second(lambda c: c + shift + np.outer(c @ V[:, 0], V[:, 5]) + np.outer(c @ V[:, 1], V[:, 6]))
        ),
        "saturation": World(second(lambda c: 1.5 * np.tanh(c / 1.5))),
        "shift, nearly the task": World(lambda c, k: c, task_shift=4.0),
        "weak shift": World(lambda c, k: c + 0.25 * k * shift),
        "noise .1 and 1": World(lambda c, k: c, noise=unequal),
        "noise .1 and 1 + shift": World(shifted, noise=unequal),
        "5 devices, shift": World(_population(0.0, 0.0), noise=(0.1,) * 5),
        "5 devices, shift, gain, rotation": World(_population(0.2, 0.3), noise=(0.1,) * 5),
    }


def _population(gain: float, angle: float) -> Device:
    """Return a device function with a different shift, gains and rotation for each device."""

    def device(c: Floats, k: int) -> Floats:
        rng = np.random.default_rng(50 + k)
        gained = c * np.exp(gain * rng.normal(size=D))
        return np.asarray(gained @ rotation(60 + k, angle) + rng.normal(size=D) * 2 / np.sqrt(D))

    return device


#: The worlds in a quick benchmark.
QUICK = ("shift", "gain 2 in 4 directions + shift", "rotation + shift")


def world_settings(quick: bool = False) -> Iterator[Setting]:
    """Yield all worlds as settings."""
    for name, world in worlds().items():
        if not quick or name in QUICK:
            yield Setting("worlds", name, world.rounds)
