"""What was run on what: confounding of the fitting rows, settings, fitted maps, and how to run it again."""

from __future__ import annotations

from html import escape

from ..design import FEW
from ..looks import label
from ..methods_text import INTERVALS
from ..result import Audit
from .pieces import bullets, facts_list, plain_table


def confounding_section(audit: Audit) -> str:
    """Return how source, task and people go together in the fitting rows."""
    found = audit.confounding
    lines = found.sentences()
    if not found.nested_participants:
        lines.append("Every fitting participant was seen by more than one source.")
    if found.source_label is None:
        lines.append("The table has no labels, so source and task cannot be compared.")
    text = bullets(lines)
    if found.counts:
        labels = list(dict.fromkeys(label for row in found.counts.values() for label in row))
        rows = [[source, *(row.get(label, 0) for label in labels)] for source, row in found.counts.items()]
        text += "\n" + plain_table(["Source", *labels], rows, "Fitting rows of each source and label")
    return text


def settings(audit: Audit) -> str:
    """Return who was used for what, the settings, code that runs them again, and the fitted maps."""
    s = audit.settings
    roles = [[what, *s[what].values()] for what in ("rows", "participants")]
    if "splits" in s:  # in which people change roles
        *others, judges = s["participants"].values()
        roles = [
            ["rows, in all folds", *s["rows"].values()],
            ["participants, in one", *others, f"{judges} in all"],
        ]
    parts = [
        plain_table(["", *s["rows"]], roles, "Who was used for what"),
        facts_list(_facts(audit).items()),
        "<h3>Run it again</h3>",
        f"<pre><code>{escape(snippet(audit))}</code></pre>",
        "<h3>The fitted maps</h3>",
    ]
    for name, result in audit.results.items():
        drift = [float(f["complement_drift"]) for f in result.facts if "complement_drift" in f]
        text = result.summary
        if drift:
            text += f"\n  outside the gate, rows moved by at most {max(drift):.1e} of what they moved inside"
        parts.append(f"<details><summary>{escape(label(name))}</summary><pre>{escape(text)}</pre></details>")
    return "\n".join(parts)


def _facts(audit: Audit) -> dict[str, str]:
    s, features = audit.settings, audit.settings["features"]
    budget = "none: complete maps" if s["budget"] is None else f"{s['budget']} on validation rows"
    bank = {"full": "the full bank", "paper": "the paper's bank"}[s["bank"]]
    given = {} if isinstance(s["readers"], str) else s["readers"]
    readers = ", ".join([bank, *(f"{name} {value}" for name, value in given.items() if name != "bank")])
    return {
        "mgpa": s["version"],
        "Data": f"checksum {s['data']}",
        "Sources": ", ".join(s["sources"]),
        **({"Folds": f"{s['splits']}, pooled over their EVAL participants"} if "splits" in s else {}),
        **({"Coordinates": f"those of the maps, {s['coordinates']}"} if s["coordinates"] else {}),
        "Features": " tokens × ".join(map(str, features)) + (" features" if len(features) > 1 else ""),
        "Seeds": ", ".join(map(str, s["seeds"])),
        "Movement budget": budget,
        "Task head": s["head"] or "the paper's",
        **({"Association": audit.direction.partition(": ")[2]} if audit.direction else {}),
        "Readers": f"{readers}; {len(audit['identity'].readers)} in all",
        "Device": s["device"],
        "Intervals": INTERVALS,
    }


def snippet(audit: Audit) -> str:
    """Return Python that runs the same audit on the same table."""
    from ...baselines import available

    s, known = audit.settings, {method.name for method in available()}
    names = list(audit.methods[1:])
    methods = repr(names)
    if not known.issuperset(names):
        entries = (f"{n!r}: {n!r}," if n in known else f"{n!r}: ...,  # your estimator or map" for n in names)
        methods = "{\n" + "".join(f"        {entry}\n" for entry in entries) + "    }"
    role = ", role=role" if s.get("roles", True) else ""
    lines = [
        "from mgpa import audit",
        "from mgpa.tables import Table",
        "",
        f"table = Table(X, source=source, participant=participant, label=label, pair_id=pair_id{role})",
        f"assert table.digest.startswith({s['data']!r})  # the same data",
        "result = audit.run(",
        "    table,",
        f"    {methods},",
    ]
    if isinstance(s["pairs"], dict):
        lines.append(f"    pairs={{...}},  # of each method, as many as {s['pairs']}")
    elif s["pairs"] is not None:
        lines.append(f"    pairs=(A, B),  # the same {s['pairs']} calibration pairs")
    lines.append(f"    seeds={tuple(s['seeds'])!r},")
    if s["budget"] is not None:
        lines.append(f"    budget={s['budget']!r},")
    if s["head"]:
        lines.append(f"    head=...,  # {' '.join(s['head'].split())}")
    if s["readers"] != "full":
        lines.append(f"    readers={s['readers']!r},")
    if s["association"] is not None:
        lines.append(f"    association={tuple(s['association'])!r},")
    if "folds" in s:
        lines.append(f"    folds={s['folds']},")
    elif s["participants"]["EVAL"] < FEW:
        lines.append("    folds=1,")
    for name in ("floor", "standardize"):
        if not s[name]:
            lines.append(f"    {name}=False,")
    lines += [f"    device={s['device']!r},", ")", 'result.report("report.html")']
    return "\n".join(lines)
