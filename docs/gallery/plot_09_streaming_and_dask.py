"""
Tables larger than memory: streaming and Dask
=============================================

The closed form needs only moments of the rows. So it can read a table part by part, without keeping the parts
in memory, and merge the moments of several machines. The result is the same map. With the same parts, it is
*bit-identical*.
"""

import pickle
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

import mgpa
from mgpa.audit import plots
from mgpa.audit.plots import COLORS
from mgpa.maps.io.mapfile import map_digest
from mgpa.tables import TableWriter, apply_to_file, fit_table, open_table, simulate_table

# %%
# A table in parts
# ----------------
# The table is a folder of Parquet files with ten participants per part. Even the two rows of a pair may be in
# different parts.

folder = tempfile.TemporaryDirectory()
root = Path(folder.name)
table = simulate_table(n_people=400, d=48, random_state=0)
people = np.array_split(np.unique(table.participant), 40)
parts = [np.flatnonzero(np.isin(table.participant, some)) for some in people]
with TableWriter(root / "embeddings", table, rows=[len(part) for part in parts]) as writer:
    for i, part in enumerate(parts):
        writer.write(i, table.take(part))
file = open_table(root / "embeddings")
print(f"{file.n_rows} rows of {file.shape[0]} in {len(file.parts)} parts, columns {', '.join(file.columns)}")

# %%
# Three ways to the same map
# --------------------------
# The map is fitted in memory, from the files one part after another, and on a Dask cluster, here with two
# workers on this machine (for your cluster, use ``Client("tcp://scheduler:8786")``). Only FIT rows are used.

fit = table.rows("FIT")
in_memory = mgpa.ClosedFormMGPA().fit(fit.X, source=fit.source, pair_id=fit.pair_id).to_map()
streamed = fit_table(mgpa.ClosedFormMGPA(), root / "embeddings").to_map()
with (
    LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
    Client(cluster) as client,
):
    distributed = fit_table(mgpa.ClosedFormMGPA(), root / "embeddings", client=client).to_map()
    n = apply_to_file(distributed, root / "embeddings", root / "corrected", client=client)

print(f"streamed and distributed, same bits: {map_digest(streamed) == map_digest(distributed)}")
difference = np.abs(streamed.transform(fit.X) - in_memory.transform(fit.X)).max()
print(f"streamed against in memory: corrected rows differ by {difference:.0e} at most (rounding)")
print(f"{n} rows corrected from file to file, all columns kept: {open_table(root / 'corrected').columns}")

# %%
# Fit in your own loop
# --------------------
# ``partial_fit`` adds a batch, and ``merge`` adds another estimator. The estimator stores the moments of each
# source (d x d numbers) and the paired rows, because the other row of a pair may be in a later batch.

model, seen, moved, kept = mgpa.ClosedFormMGPA(), [], [], []
reference = in_memory.transform(fit.X)
size = np.linalg.norm(reference - fit.X)
for part in file.parts:
    for batch in part.batches(4096):
        rows = batch.rows("FIT")
        if len(rows):
            model.partial_fit(rows.X, source=rows.source, pair_id=rows.pair_id)
            seen.append(len(rows) + (seen[-1] if seen else 0))
            moved.append(np.linalg.norm(model.to_map().transform(fit.X) - reference) / size)
            kept.append(len(pickle.dumps(model)))
halves = [mgpa.ClosedFormMGPA(), mgpa.ClosedFormMGPA()]
for k, half in enumerate(halves):
    own = fit.take(np.isin(fit.participant, np.unique(fit.participant)[k::2]))
    half.partial_fit(own.X, source=own.source, pair_id=own.pair_id)
together = halves[0].merge(halves[1]).to_map()
print(f"two halves merged, largest difference {np.abs(together.transform(fit.X) - reference).max():.0e}")

with plots.style():
    figure, panels = plt.subplots(1, 2, figsize=(plots.PAGE, 2.5), layout="constrained")
    panels[0].loglog(seen[:-1], moved[:-1], "s", color=COLORS[1], ms=3)
    panels[0].set(xlabel="FIT rows seen", ylabel="Relative distance")
    panels[0].set_title("Distance from the final map", loc="left")
    panels[1].plot(seen, np.array(kept) / 1e6, "-o", ms=3, color=COLORS[1], label="the estimator")
    panels[1].plot(seen, np.array(seen) * fit.X[0].nbytes / 1e6, color=COLORS[2], label="the rows themselves")
    panels[1].set_title("What is kept, in MB", loc="left")
    panels[1].set_xlabel("FIT rows seen")
    panels[1].legend()
folder.cleanup()
print(f"estimator after {seen[0]} rows {kept[0] / 1e6:.2f} MB, after {seen[-1]} rows {kept[-1] / 1e6:.2f} MB")
print(f"distance from the final map after {seen[len(seen) // 4]} rows: {moved[len(seen) // 4]:.1%}")

# %%
# The estimator grows with the *paired* rows only.
#
# How far to trust this
# ---------------------
# Bit-identical results need the same parts; with other parts, results differ by rounding.
# :class:`mgpa.IterativeMGPA` trains its critics on a random sample of rows. It computes standardisation and
# anchors from all rows, with one pass over the table per stage. Its map records this.

plt.show()
