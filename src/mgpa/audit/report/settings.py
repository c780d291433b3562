"""What was run on what: confounding of the fitting rows, settings, fitted maps, and how to run it again."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..design import FEW
from ..methods_text import INTERVALS
from ..verdict import shortcut_note
from ..words import label
from .pieces import bullets, facts_list, plain_table

if TYPE_CHECKING:
    from ..result import Audit


def confounding_section(audit: Audit) -> str:
    """Return how source, task and participants are associated in the fitting rows."""
    c = audit.confounding
    lines = c.sentences()
    if not c.nested_participants:
        lines.append("Every fitting participant has rows of more than one source.")
    if c.source_label is None:
        lines.append("The table has no labels, so source and task cannot be compared.")
    text = bullets(lines)
    if c.counts:
        labels = list(dict.fromkeys(label for row in c.counts.values() for label in row))
        rows = [[source, *(row.get(label, 0) for label in labels)] for source, row in c.counts.items()]
        text += "\n" + plain_table(["Source", *labels], rows, "Fitting rows of each source and label")
    return text


def settings(audit: Audit) -> str:
    """Return the roles, the settings that are not defaults, code that runs them again, and the maps."""
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
    readers = f"{len(audit['identity'].readers)}, the {'paper' if s['bank'] == 'paper' else 'full'} bank"
    if s["preliminary"]:
        changed = {} if isinstance(s["readers"], str) else s["readers"]
        sizes = (f"{name} {value}" for name, value in changed.items() if name != "bank")
        readers = ", ".join([f"{len(audit['identity'].readers)}, a small bank", *sizes])
    budget = s["budget"]
    facts = {
        "mgpa": s["version"],
        "Data": f"checksum {s['data']}",
        "Sources": ", ".join(s["sources"]),
        "Folds": f"{s['splits']}, pooled over their EVAL participants" if "splits" in s else "",
        "Coordinates": f"those of the maps, {s['coordinates']}" if s["coordinates"] else "",
        "Features": " tokens × ".join(map(str, features)) + (" features" if len(features) > 1 else ""),
        "Seeds": ", ".join(map(str, s["seeds"])),
        "Movement budget": "" if budget is None else f"{budget} on validation rows",
        "Task head": s["head"],
        "Association": shortcut_note(audit).partition(": ")[2],
        "Readers": readers,
        "Device": s["device"],
        "Intervals": INTERVALS,
    }
    return {name: text for name, text in facts.items() if text}


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
