"""S where networks stop that can no longer be the best reader, beside S where they are trained to the end.

    python benchmarks/stopping.py --tools ../shared/tools              # the table of docs/audit.md
    python benchmarks/stopping.py --tools ../shared/tools corn demo

Ten sets: six of real recordings, as in benchmarks/outsiders.py, the demo, and three simulated worlds. Both
arms read the same corrected rows. "First bank" is the largest AUROC of the readers that audits had before
readers of covariance, length, kernels and own rows came, networks trained to the end, no luck taken off.
"""

import argparse
import importlib
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from mgpa.audit import estimate, run_readers
from mgpa.audit.ranks import within_auroc
from mgpa.audit.readers import FURTHER, vectors
from mgpa.tables import simulate_table
from outsiders import METHODS, corrected
from outsiders import sets as real_sets

FIRST_BANK = ("boosted_trees", "spread")
WORLDS = ("shift", "gain 2 in 4 directions + shift", "rotation + shift")


def sets(tool, worlds, data):
    """Yield the ten sets: name, (view0, view1, task, who, rotations, gamma)."""
    yield from real_sets(tool, worlds, data)
    yield "amplifiers with noise", dict(worlds.amplifiers())["13Hz 21Hz gains and noise"]
    yield "kalunga 17", dict(tool.open_sets())["gssc-17Hz-21Hz"]
    demo = simulate_table(24)
    paired = demo.take(np.flatnonzero(demo.pair_id >= 0))
    order = np.lexsort((paired.source, paired.pair_id))
    first, second = order[::2], order[1::2]
    who = paired.participant[first]
    rotations = tool.rotate(np.unique(who), 6, 6, 2)
    yield "demo", (paired.X[first], paired.X[second], paired.label[first], who, rotations, None)
    for name, world, _ in worlds.worlds():
        if name in WORLDS:
            drawn = worlds.World(0, **world)
            content, task = drawn.content(2400)
            who = np.array([f"p{i:02}" for i in np.arange(2400) % 12])
            views = (drawn.see(content, k) for k in (0, 1))
            yield name, (*views, task, who, tool.rotate(np.unique(who), 4, 4, 1), None)


def read(data, make_model):
    """Return S of the first bank, to the end and with stopping, and seconds of both."""
    to_the_end, stops = vectors.worth_training, []
    areas, seconds = {False: [], True: []}, {False: 0.0, True: 0.0}
    for head, held in corrected(data, make_model):
        who = np.unique(held[2], return_inverse=True)[1]
        for stopping in (False, True):
            vectors.worth_training = (
                to_the_end if stopping else lambda head, codes, people, epochs, *_: epochs
            )
            start = time.process_time()
            found = run_readers(
                *head[:2], held[0], bank="full", participants=(head[2], held[2]), device="cpu"
            )
            seconds[stopping] += time.process_time() - start
            areas[stopping].append(within_auroc(np.stack(list(found.values()), axis=1), held[1], who))
            stops = list(found)
    vectors.worth_training = to_the_end
    whole, early = (np.concatenate(areas[stopping]) for stopping in (False, True))
    first = [name not in FURTHER or name in FIRST_BANK for name in stops]
    S = (estimate(values, "best", n_draws=1).value for values in (whole, early))
    return whole[:, first].mean(axis=0).max(), *S, *seconds.values()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", help="beginnings of the sets' names; all by default")
    parser.add_argument("--methods", nargs="*", default=["LEACE", "MGPA"])
    parser.add_argument("--tools", type=Path, required=True, help="folder of trade_off.py and worlds.py")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(arguments.tools))
    tool, worlds = (importlib.import_module(name) for name in ("trade_off", "worlds"))
    print("| set | method | first bank | S to the end | S | difference | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name, data in sets(tool, worlds, arguments.tools.parent / "real"):
        if arguments.sets and not name.startswith(tuple(arguments.sets)):
            continue
        for method in arguments.methods:
            first, whole, early, slow, fast = read(data, METHODS[method])
            row = f"{first:.3f} | {whole:.3f} | {early:.3f} | {early - whole:+.3f} | {slow:.0f} → {fast:.0f}"
            print(f"| {name} | {method} | {row} |", flush=True)


if __name__ == "__main__":
    main()
