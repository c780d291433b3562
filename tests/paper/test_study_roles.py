"""Roles are disjoint and rotate; views agree with labels exactly as often as a study says."""

import numpy as np
import pytest

from mgpa.errors import StudyError, TableError
from mgpa.paper.studies.config import EndpointsSection, RolesSection
from mgpa.paper.studies.splits import associate, roles_of, rotated
from mgpa.tables import Table

SEED = 20260903


def strata(n=102):
    """People with an electrode order and a gender each, in uneven numbers."""
    rng = np.random.default_rng(1)
    return {f"S{i:03d}": f"{rng.choice(['dry', 'wet'])}|{rng.choice(['f', 'm'])}" for i in range(1, n + 1)}


def test_folds_of_102_people_are_even_and_balanced():
    people = strata()
    roles = [rotated(people, r, 5, SEED) for r in range(5)]
    fold = {person: next(r for r in range(5) if roles[r][person] == "EVAL") for person in people}
    assert sorted(np.bincount(list(fold.values()))) == [20, 20, 20, 21, 21]
    for stratum in set(people.values()):
        members = [fold[p] for p in people if people[p] == stratum]
        assert np.ptp(np.bincount(members, minlength=5)) <= 1
    for r in range(5):
        at = {role: {fold[p] for p in people if roles[r][p] == role} for role in ("HEAD", "VAL", "FIT")}
        assert at == {"HEAD": {(r + 1) % 5}, "VAL": {(r + 2) % 5}, "FIT": {(r + 3) % 5, (r + 4) % 5}}
    assert rotated(dict(reversed(people.items())), 1, 5, SEED) == roles[1]


@pytest.fixture(scope="module")
def trials():
    """102 people, 12 targets of which half are fast, 10 blocks, two views of each, in no order."""
    person, block, target = (
        values.reshape(-1)
        for values in np.meshgrid(sorted(strata()), np.arange(10), np.arange(12), indexing="ij")
    )
    n = len(person)
    table = Table(
        np.zeros((2 * n, 1)),
        source=np.tile(["car", "oz"], n),
        participant=np.repeat(person, 2),
        label=np.repeat(target % 2, 2),
        pair_id=np.repeat(np.arange(n), 2),
        other={"block": np.repeat(block, 2), "target": np.repeat(target, 2)},
    )
    return table.take(np.random.default_rng(0).permutation(2 * n))


def seen_second(trials, rotation, association=0.9):
    roles = rotated(strata(), rotation, 5, SEED)
    plan = EndpointsSection(gamma=0.5, association=association, cells=("target",), seed=SEED)
    seen = trials.take(associate(trials, roles, plan, rotation))
    assert len(seen) == len(trials) // 2
    keys = zip(seen.participant.tolist(), *(seen.other[k].tolist() for k in ("target", "block")), strict=True)
    return roles, dict(zip(keys, (seen.source == "oz").tolist(), strict=True))


def test_nine_of_ten_trials_of_a_cell_go_with_the_class(trials):
    roles, second = seen_second(trials, 1)
    counts = {}
    for (person, target, _), value in second.items():
        counts[person, target] = counts.get((person, target), 0) + value
    assert len(counts) == 102 * 12
    for (person, target), count in counts.items():
        assert count == ((9 if target % 2 else 1) if roles[person] in ("FIT", "VAL") else 5)


def test_views_are_drawn_in_the_papers_order(trials):
    roles, second = seen_second(trials, 3)
    for number, role in enumerate(("FIT", "VAL", "HEAD", "EVAL"), start=1):
        rng = np.random.default_rng(SEED + 100000 * 3 + 4000 + number)
        for person in sorted(p for p in roles if roles[p] == role):
            for target in range(12):
                ones = (9 if target % 2 else 1) if role in ("FIT", "VAL") else 5
                chosen = set(rng.permutation(10)[:ones].tolist())
                assert [second[person, target, block] for block in range(10)] == [
                    block in chosen for block in range(10)
                ]


def test_roles_are_drawn_listed_or_folded(trials):
    drawn = list(roles_of(trials, RolesSection(seed=SEED), None).values())
    assert [drawn.count(role) for role in ("FIT", "VAL", "HEAD", "EVAL")] == [41, 21, 20, 20]
    listed = roles_of(trials, RolesSection(people={"FIT": ("S001",), "EVAL": ("S002",)}), None)
    assert listed == {"S001": "FIT", "S002": "EVAL"}
    folded = roles_of(trials, RolesSection(rotations=(1,), seed=SEED), 1)
    assert folded == rotated(dict.fromkeys(strata(), ""), 1, 5, SEED)


@pytest.mark.parametrize(
    ("plan", "rotation", "message"),
    [
        (RolesSection(people={"FIT": ("S001",), "EVAL": ("S001",)}), None, "S001 two roles"),
        (RolesSection(people={"FIT": ("S999",)}), None, "participants without rows: S999"),
        (RolesSection(rotations=(5,)), 5, "rotation is 5 of 5 folds"),
        (RolesSection(rotations=(1,), stratify=("age",)), 1, "names 'age'; the columns are"),
        (RolesSection(rotations=(1,), stratify=("block",)), 1, "block of S004 varies"),
    ],
)
def test_roles_that_cannot_be_given_are_refused(trials, plan, rotation, message):
    with pytest.raises((StudyError, TableError), match=message):
        roles_of(trials, plan, rotation)


def test_association_needs_both_views_and_two_labels(trials):
    roles = rotated(strata(), 1, 5, SEED)
    plan = EndpointsSection(association=0.9)
    with pytest.raises(StudyError, match="both views of every event"):
        associate(trials.take(slice(1, None)), roles, plan, 1)
    one = trials.take(trials.columns["label"] == 1)
    with pytest.raises(StudyError, match="two labels; there are 1"):
        associate(one, roles, plan, 1)
