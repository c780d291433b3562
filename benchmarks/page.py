"""The numbers of docs/performance.md: tables and picture, written from what quiet.py measured.

    python benchmarks/quiet.py --out numbers
    python benchmarks/page.py numbers       # keeps the numbers in docs/performance/, and writes the page
    python benchmarks/page.py               # writes the page again, from the numbers in docs/performance/

Everything between the page's markers is replaced, and nothing else.
"""

import argparse
import json
import re
import shutil
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = DOCS / "performance"
WORDS = {
    "rows": "rows (128 features)",
    "features": "features (500 rows)",
    "pairs": "pairs (10 000 rows, 128 features)",
    "sources": "sources (12 000 rows, 64 features)",
    "people": "people (50 000 rows, 64 features)",
    "tokens": "tokens (200 rows, 128 features each)",
    "stages": "stages (transform, 2 000 rows, 512 features)",
}
PICTURE = "![Time and memory of fits against seven sizes](performance/growth.svg)"
COLORS = {
    "MGPA()": "mgpa", "closed form": "closed_form_mgpa", "staged transform": "iterative_mgpa",
    "LEACE (concept-erasure)": "leace", "CORAL (skada)": "coral", "ComBat (combatlearn)": "combat",
    "PDS (chemotools)": "pds",
}  # fmt: skip


def words(seconds):
    """Return a time with two or three digits."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1.0 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    return ""


def machine_words(facts):
    """Return where and when something was measured, and what else the machine did."""
    state = facts.get("state") or {}
    busy = "" if state.get("quiet") else ", **not a quiet machine**"
    others = f"others used {state.get('others', 0):.0%} of it"
    return f"{facts['machine']}, commit {facts['commit']}, {facts.get('date', '')}; {others}{busy}."


def speed_table(facts):
    """Return the lines of run.py."""
    rows = ["| operation | time | against | ratio | aim | |", "|---|---|---|---|---|---|"]
    for line in facts["lines"]:
        aim = "" if line["aim"] == "-" else line["aim"]
        rows.append(
            f"| {line['name']} | {words(line['seconds'])} | {line['bare_name']} | {line['ratio']:.2f} "
            f"| {aim} | {line['verdict']} |"
        )
    return "\n".join([machine_words(facts), "", *rows])


def peers_table(facts):
    """Return the lines of peers.py: theirs, ours, and how many times as long ours take."""
    rows = ["| what | fit | transform | ours / theirs |", "|---|---|---|---|"]
    theirs = {line["name"]: line for line in facts["lines"]}
    for line in facts["lines"]:
        other = theirs.get(line["against"])
        ratio = ""
        if other is not None and other is not line:
            ratio = f"{line['fit'] / other['fit']:.2f}, {line['transform'] / other['transform']:.2f}"
        name = line["name"] if other is line or not line["against"] else f"— `{line['name']}` here"
        rows.append(f"| {name} | {words(line['fit'])} | {words(line['transform'])} | {ratio} |")
    return "\n".join([machine_words(facts), "", *rows])


def growth_table(facts):
    """Return, for every curve, the largest size each method reached, with time, memory and last exponent."""
    import math

    rows = ["| as these grow | method | largest | time | memory added | time grows with the power |"]
    rows.append("|---|---|---|---|---|---|")
    for curve, points in curves(facts).items():
        for name, found in points.items():
            done = [p for p in found if "seconds" in p]
            if not done:
                continue
            (last, before), power = (done[-1], done[-2] if len(done) > 1 else None), ""
            if before is not None:
                ratio = math.log(last["seconds"] / before["seconds"])
                power = f"{ratio / math.log(last['size'] / before['size']):.1f}"
            note = "" if last is found[-1] else f" (then: {found[len(done)]['refused'][:60]})"
            rows.append(
                f"| {WORDS[curve]} | {name} | {last['size']:,}{note} | {words(last['seconds'])} "
                f"| {last['added']:.0f} MiB | {power} |"
            )
    return "\n".join([PICTURE, "", machine_words(facts), "", *rows])


def curves(facts):
    """Return the points by curve and method."""
    found = {}
    for point in facts["points"]:
        found.setdefault(point["curve"], {}).setdefault(point["method"], []).append(point)
    return found


def draw(facts, path):
    """Draw time and memory against every size, on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from mgpa.audit.plots.drawing import MUTED, PAGE, figure_bytes, style
    from mgpa.audit.plots.palette import colour_of, marker_of

    with style():
        found = curves(facts)
        figure, axes = plt.subplots(2, len(found), figsize=(2.0 * PAGE, 4.2), sharey="row", squeeze=False)
        names = []
        for column, (curve, methods) in enumerate(found.items()):
            for name, points in methods.items():
                done = [p for p in points if "seconds" in p]
                key, x = COLORS.get(name, ""), [p["size"] for p in done]
                look = {"color": colour_of(key), "marker": marker_of(key)} if key else {
                    "color": MUTED, "ls": ":", "marker": ""}  # fmt: skip
                (line,) = axes[0, column].plot(x, [p["seconds"] for p in done], label=name, **look)
                axes[1, column].plot(x, [max(p["added"], 1.0) for p in done], **look)
                if name not in [label for _, label in names]:
                    names.append((line, name))
            for row in axes[:, column]:
                row.set(xscale="log", yscale="log")
                if max(x) < 100:  # a decade has too few ticks, and matplotlib would name those between
                    row.set_xticks(x, [str(size) for size in x])
                    row.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            axes[0, column].set_title(curve)
            axes[1, column].set_xlabel(WORDS[curve].partition("(")[2].rstrip(")"))
        axes[0, 0].set_ylabel("seconds")
        axes[1, 0].set_ylabel("MiB added")
        figure.legend(*zip(*names, strict=True), loc="lower center", ncols=len(names))
        figure.tight_layout(rect=(0, 0.06, 1, 1))
        path.write_bytes(figure_bytes(figure))
        plt.close(figure)


def fill(page, name, text):
    """Return the page with the text between the markers of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"The page has no place for {name}: {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page)


TABLES = {"speed": speed_table, "peers": peers_table, "growth": growth_table, "speed_gpu": speed_table}


def keep_history(path):
    """Append lines that the history lacks."""
    kept = Path(__file__).with_name("history.jsonl")
    known = kept.read_text("utf-8")
    lines = [line for line in path.read_text("utf-8").splitlines() if line not in known]
    kept.write_text(known + "".join(f"{line}\n" for line in lines), "utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="what quiet.py wrote")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    if options.folder is not None:
        for name in TABLES:
            if (options.folder / f"{name}.json").is_file():
                shutil.copy(options.folder / f"{name}.json", FOLDER)
        if (options.folder / "history.jsonl").is_file():
            keep_history(options.folder / "history.jsonl")
    path = DOCS / "performance.md"
    page = path.read_text("utf-8")
    for name, table in TABLES.items():
        if (FOLDER / f"{name}.json").is_file():
            facts = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
            page = fill(page, name, table(facts))
            if name == "growth":
                draw(facts, FOLDER / "growth.svg")
    path.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
