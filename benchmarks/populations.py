"""Populations that differ along the shift of the pairs: is their difference taken for the device?

    python benchmarks/populations.py --fits 40
    python benchmarks/populations.py --fits 10 --less    # corrections that do less
    python benchmarks/populations.py --harmless          # right worlds and real rows

Twelve people have rows with one device (nested) or with both (crossed), eight other people have pairs. Nine
of ten rows of the first device are of one population, nine of ten of the second device of the other. The
populations differ by 2, at some cosine to the pairs' shift. Rows have no device effect, or all of it.

Each line: how often the closed form is applied, and T_f, the AUROC of a classifier of the populations that
was trained on one device's uncorrected rows, for corrected rows of the other device; uncorrected, and with
the closed form, in brackets as it would be if it did not ask where rows lie (``mgpa.effect.displacement``).
With ``--less``: S of a linear reader (rows with the full effect) and T_f of corrections that do less.
"""

import argparse
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa import position
from mgpa.bench.worlds import world_settings
from unseen import two_views

D, PEOPLE, PAIRED, ROWS, PAIRS = 10, 12, 8, 30, 40
APART, ASSOCIATION, SESSION = 2.0, 0.9, 0.5
DESIGNS, EFFECTS, COSINES = ("nested", "crossed"), (0.0, 1.0), (0.3, 0.6, 0.9)
SIZES = ((1.0, 0.5), (2.0, 1.0))  # of the shift; and of differences between people, in spreads of rows


class World:
    """People of two populations, and two devices."""

    def __init__(
        self, rng: np.random.Generator, cosine: float, shift: float, trait: float, effect: float
    ) -> None:
        self.rng, self.trait, self.effect = rng, trait, effect
        self.mix = rng.normal(size=(D, D)) / np.sqrt(D) + 0.5 * np.eye(D)
        across = rng.normal(size=D) * (np.arange(D) > 0)
        along = np.eye(D)[0]
        self.population = APART * (cosine * along + np.sqrt(1 - cosine**2) * across / np.linalg.norm(across))
        self.shift = shift * along

    def content(self, n: int) -> Any:
        return self.rng.normal(size=(n, D)) @ self.mix + 0.3 * self.rng.normal(size=(n, D))

    def person(self) -> Any:
        return self.trait * self.rng.normal(size=D) @ self.mix

    def rows(self, device: int, population: Any, person: Any) -> Any:
        """Return rows of one person, each of this population, with this device in one session."""
        session = SESSION * self.rng.normal(size=D) @ self.mix * (self.trait > 0)
        rows = self.content(len(population)) + person + session + self.effect * device * self.shift
        return rows + (population - 0.5)[:, None] * self.population

    def fitting(self, design: str) -> dict[str, Any]:
        """Return what a fit takes."""
        X, source, people = [], [], []
        for p in range(PEOPLE):
            person = self.person()
            for device in (0, 1) if design == "crossed" else (p % 2,):
                of_second = self.rng.random(ROWS) < (ASSOCIATION if device else 1 - ASSOCIATION)
                X.append(self.rows(device, of_second, person))
                source += [device] * ROWS
                people += [p] * ROWS
        whose = np.arange(PAIRS) % PAIRED
        traits = np.stack([self.person() for _ in range(PAIRED)])
        population = self.rng.integers(0, 2, PAIRS) - 0.5
        events = self.content(PAIRS) + traits[whose] + population[:, None] * self.population
        views = tuple(
            events + device * self.shift + 0.1 * self.rng.normal(size=events.shape) for device in (0, 1)
        )
        return {"X": np.concatenate(X), "source": np.array(source), "groups": np.array(people),
                "pairs": views, "pair_groups": whose}  # fmt: skip

    def judged(self) -> list[tuple[Any, Any]]:
        """Return balanced rows of new people and their populations, of each device."""
        population = np.arange(800) % 2
        return [
            (
                np.concatenate([self.rows(device, population[:40], self.person()) for _ in range(20)]),
                population,
            )
            for device in (0, 1)
        ]


def population_auroc(correct: Any, training: Any, judged: Any) -> float:
    """Return T_f: heads of uncorrected rows of one device, on corrected rows of the other."""
    scores = []
    for a, b in ((0, 1), (1, 0)):
        head = RidgeClassifier(alpha=10).fit(*training[a])
        scores.append(roc_auc_score(judged[b][1], head.decision_function(correct(judged[b][0]))))
    return float(np.mean(scores))


def measure(seed: int, design: str, effect: float, cosine: float, shift: float, trait: float) -> list[float]:
    """Return whether a fit acted and T_f, without and with asking where rows lie; and uncorrected T_f."""
    world = World(np.random.default_rng(seed), cosine, shift, trait, effect)
    data, training, judged = world.fitting(design), world.judged(), world.judged()
    results, asked = [], position.displacement
    for ask in (lambda *_: None, asked):
        position.displacement = ask
        stored = mgpa.ClosedFormMGPA().fit(**data).to_map()
        results += [stored.rank > 0, population_auroc(stored.transform, training, judged)]
    return [*results, population_auroc(lambda rows: rows, training, judged)]


def device_auroc(correct: Any, training: Any, judged: Any) -> float:
    """Return S: how well a linear reader tells the devices of corrected rows apart."""
    device = np.repeat([0, 1], len(training[0][0]))
    reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=100.0))
    rows, new = (correct(np.concatenate([X for X, _ in views])) for views in (training, judged))
    return float(roc_auc_score(device, reader.fit(rows, device).decision_function(new)))


def less(n_fits: int) -> None:
    """Print S with the full effect in rows, and T_f without an effect, of corrections that do less."""
    print("| cosine | correction | S, full effect | T_f, no effect |\n" + "|" + " --- |" * 4)
    position.displacement = lambda *_: None
    for cosine in COSINES:
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(n_fits):
            for effect, measured in zip(EFFECTS, (population_auroc, device_auroc), strict=True):
                world = World(np.random.default_rng(seed), cosine, *SIZES[0], effect)
                data, training, judged = world.fitting("nested"), world.judged(), world.judged()
                full = mgpa.MGPA().fit(**data).to_map()
                corrections = {
                    "uncorrected": lambda rows: rows,
                    "MGPA()": full.transform,
                    "at half strength": full.with_strength(0.5).transform,
                    "MGPA(collapse='never')": mgpa.MGPA(collapse="never").fit(**data).transform,
                }
                for name, correct in corrections.items():
                    found.setdefault(name, []).append((effect, measured(correct, training, judged)))
        for name, values in found.items():
            T_f, S = (np.mean([value for effect, value in values if effect == one]) for one in EFFECTS)
            print(f"| {cosine:g} | {name} | {S:.3f} | {T_f:.3f} |", flush=True)


def right_pairs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and what a fit takes: worlds of mgpa bench, and real rows with pairs of other people."""
    for setting in world_settings():
        for one in setting.make(False):
            if len(one.singles.devices) == 2:
                source = one.singles.seen.argmax(axis=0)
                X = one.singles.views[source, np.arange(len(source))]
                whose = {"groups": one.singles.participant, "pair_groups": one.pairs.participant}
                yield "worlds", {"X": X, "source": source, "pairs": tuple(one.pairs.views), **whose}
    for name, X, _, people, label, _ in two_views():
        A, B = np.split(X, 2)
        whose, task = people[: len(A)], label[: len(A)]
        for seed, nested in itertools.product(range(15), (True, False)):
            rng = np.random.default_rng(seed)
            order = rng.permutation(np.unique(whose))
            paired = np.isin(whose, order[: max(4, len(order) // 2)])
            first = np.isin(task, np.unique(task)[: len(np.unique(task)) // 2])
            device = np.isin(whose, order[::2]) if nested else rng.random(len(A)) < np.where(first, 0.9, 0.1)
            rows = np.where(device[:, None], B, A)[~paired]
            yield name, {"X": rows, "source": device[~paired].astype(int), "groups": whose[~paired],
                         "pairs": (A[paired], B[paired]), "pair_groups": whose[paired]}  # fmt: skip


def harmless() -> None:
    """Print how often a fit of right pairs asks where rows lie, and how often it then corrects nothing."""
    counts: dict[str, list[int]] = {}
    for name, data in right_pairs():
        effect = mgpa.MGPA(on_missing="warn").fit(**data).effect_
        asked = effect is not None and effect.displacement is not None
        left = effect is not None and bool(effect.lies_with)
        counts[name] = [a + b for a, b in zip(counts.get(name, [0, 0, 0]), (1, asked, left), strict=True)]
    for name, (n, asked, left) in counts.items():
        print(f"{name}: {n} fits, {asked} asked where rows lie, {left} corrected nothing for it", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description="Populations along the shift, taken for the device?")
    parser.add_argument("--fits", type=int, default=40, help="fits of each line")
    parser.add_argument("--less", action="store_true", help="corrections that do less")
    parser.add_argument("--harmless", action="store_true", help="worlds and real rows with right pairs")
    options = parser.parse_args()
    n_fits = options.fits
    if options.less or options.harmless:
        raise SystemExit(less(n_fits) if options.less else harmless())
    print("| design | shift | people | effect in rows | cosine | applied | T_f uncorrected | T_f corrected |")
    print("|" + " --- |" * 8)
    for (shift, trait), design, effect, cosine in itertools.product(SIZES, DESIGNS, EFFECTS, COSINES):
        cell = [measure(seed, design, effect, cosine, shift, trait) for seed in range(n_fits)]
        before, T_before, after, T_after, T_raw = np.mean(cell, axis=0)
        print(f"| {design} | {shift:g} | {trait:g} | {effect:.0%} | {cosine:g} | {after:.2f} ({before:.2f}) "
              f"| {T_raw:.3f} | {T_after:.3f} ({T_before:.3f}) |", flush=True)  # fmt: skip
