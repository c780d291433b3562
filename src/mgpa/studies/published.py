"""The paper's reuse study from its published participant values: tables 3, 10 and 11 without recordings."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Any

import numpy as np

from ..audit.bootstrap import contrast, estimate
from .config import REUSE, TASKS, load_study

_PARTS = ("reversed", "independent", "aligned")


def published_reuse() -> dict[str, Any]:
    """Return the reuse study's results as ``mgpa study run`` would, from published participant values.

    Examples
    --------
    >>> rows = published_reuse()["contrasts"]
    >>> [round(r["value"], 4) for r in rows if r["task"] == "N170" and r["metric"] == "worst"][:2]
    [0.0364, 0.0574]
    """
    text = files(__package__).joinpath("published_reuse.csv").read_text("utf-8")
    fits: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        fits.setdefault((row["task"], row["method"]), {}).setdefault(row["fit"], []).append(row)

    def values(task: str, method: str, metric: str) -> Any:
        heads = _PARTS if metric == "worst" else (metric,)
        rows = [
            [[float(row[head]) for head in heads] for row in sorted(fit, key=lambda row: row["participant"])]
            for fit in fits[task, method].values()
        ]
        return np.array(rows) if metric == "worst" else np.array(rows)[..., 0]

    def entry(task: str, method: str, against: str, metric: str) -> dict[str, Any]:
        statistic: Any = "worst" if metric == "worst" else "mean"
        first = values(task, method, metric)
        if against:
            e = contrast(first, values(task, against, metric), statistic)
        else:
            e = estimate(first, statistic)
        single = [float(estimate(fit[None], statistic, n_draws=1).value) for fit in first]
        names = {"task": task, "method": method, "against": against, "metric": metric}
        numbers = {"value": e.value, "low": e.low, "high": e.high}
        return names | numbers | {"fit_low": min(single), "fit_high": max(single)}

    metrics, declared = ("worst", "control", *_PARTS), load_study(REUSE).contrasts
    return {
        "study": REUSE,
        "heading": "Published participant values",
        "deviations": ["recomputed from the public release's participant values; no recordings were read"],
        "digest": "published",
        "settings": {"methods": {}},
        "protocol": {},
        "facts": {"protocol": "published participant values"},
        "estimates": [entry(task, method, "", m) for task, method in fits for m in metrics],
        "contrasts": [entry(task, c.a, c.b, m) for task in TASKS for c in declared for m in c.metrics],
        "omitted": {},
    }
