"""From recordings with two headsets to a report: simulate, correct, audit, and write everything down.

People do a task of two classes, recorded with a dry and a wet headset; some events with both at once. The wet
headset adds a shift in a few directions and noise of its own. In the rows that corrections are fitted on, wet
recordings are mostly of one class, as they would be if one lab ran most sessions of one condition. The audit
asks of every correction whether the headset can still be told, and whether the task survived.

    python examples/audit_report.py --out audit_example

writes report.html, which opens in any browser, the figures as PDF, SVG and PNG, and the table as CSV and
LaTeX. It is one simulated data set: it shows how an audit is read, not which method is better.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from mgpa import audit
from mgpa.audit.verdict import findings
from mgpa.tables import Table, assign_roles

METHODS = ["leace", "closed_form_mgpa", "iterative_mgpa", "coral"]
# The paper's bank has three restarts; one is enough to see how it works.
READERS = {"restarts": 1}


def simulate(n_people: int = 96, n_events: int = 24, n_features: int = 24, seed: int = 0) -> Table:
    """Return rows of all four roles; all events are paired in HEAD and EVAL, one in six elsewhere."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n_people), n_events)
    right = np.tile([0, 1], len(person) // 2)
    mixing = np.eye(n_features) + rng.normal(size=(n_features, n_features)) / np.sqrt(n_features)
    task = 0.3 * rng.normal(size=n_features)
    content = rng.normal(size=(len(person), n_features)) @ mixing + (2 * right - 1)[:, None] * task
    content += 0.5 * rng.normal(size=(n_people, n_features))[person]

    directions = rng.normal(size=(3, n_features)) / np.sqrt(n_features)
    response = 1.5 * rng.normal(size=3) + 0.5 * rng.normal(size=(len(person), 3))
    noise = rng.normal(size=(2, len(person), n_features)) * np.linspace(0.2, 0.8, n_features)
    views = np.stack([content, content + response @ directions]) + noise

    role = assign_roles(person, random_state=1)
    paired = np.isin(role, ("HEAD", "EVAL")) | (np.arange(len(person)) % 6 == 0)
    wet = rng.random(len(person)) < np.where(right, 0.85, 0.15)
    rows = [(event, u) for event in range(len(person)) for u in (0, 1) if paired[event] or wet[event] == u]
    event, u = np.array(rows).T
    return Table(
        views[u, event],
        source=np.array(["dry", "wet"])[u],
        participant=[f"p{p:02d}" for p in person[event]],
        label=np.array(["left", "right"])[right[event]],
        role=role[event],
        pair_id=np.where(paired[event], event, -1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("audit_example"), help="where to write")
    parser.add_argument("--cache", type=Path, help="where to keep finished cells; a run goes on from there")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    with tempfile.TemporaryDirectory() as temporary:
        result = audit.run(
            simulate(),
            METHODS,
            seeds=(17, 29),
            readers=READERS,
            cache=options.cache or temporary,
            n_jobs=options.jobs,
        )

    print(result)
    for method in result.methods[1:]:
        print(f"\n{method}")
        print("\n".join(f"  {line}" for line in findings(result, method)))

    figures = result.figures(options.out / "figures")
    result.to_csv(options.out / "audit.csv")
    report = result.report(options.out / "report.html", title="Two headsets, simulated")
    print(f"\nwrote {report}, {len(figures)} figures and audit.csv")


if __name__ == "__main__":
    main()
