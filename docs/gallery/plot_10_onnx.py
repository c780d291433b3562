"""
Deploying with ONNX
===================

``to_onnx`` writes a map in a form that runs in C++, Java, JavaScript or on a phone, without mgpa or Python.
This page exports two kinds of map, runs them in a process without mgpa, and measures precision and time.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime

import mgpa
from mgpa.audit import plots
from mgpa.audit.plots import COLORS
from mgpa.tables import simulate_table

# %%
# Two maps
# --------

table = simulate_table(n_people=60, d=64, random_state=0)
fit, val, new = table.rows("FIT"), table.rows("VAL"), table.rows("EVAL")
known = {"source": fit.source, "pair_id": fit.pair_id}
gate = 2
closed = mgpa.ClosedFormMGPA(gate).fit(fit.X, **known)
staged = mgpa.IterativeMGPA(gate, random_state=0)
staged = staged.fit(fit.X, **known, X_val=val.X, source_val=val.source)
maps = {"Closed form": closed.to_map(), "Iterative": staged.to_map()}
for m in maps.values():
    print(m)

# %%
# Export, and run it elsewhere
# ----------------------------
# The second process starts in isolated mode and imports only onnxruntime and numpy.

DEPLOYED = """
import sys
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
numpy.save(sys.argv[3], session.run(["Y"], {"X": numpy.load(sys.argv[2])})[0])
print("modules of mgpa there:", [name for name in sys.modules if name.startswith("mgpa")])
"""

X = new.X.astype(np.float32)
one_thread = onnxruntime.SessionOptions()
one_thread.intra_op_num_threads = 1
sessions, deployed = {}, {}
with tempfile.TemporaryDirectory() as folder:
    rows, out = Path(folder) / "rows.npy", Path(folder) / "out.npy"
    np.save(rows, X)
    for name, m in maps.items():
        path = m.to_onnx(Path(folder) / f"{name.lower().replace(' ', '_')}.onnx")
        done = subprocess.run(
            [sys.executable, "-I", "-c", DEPLOYED, path, rows, out],
            check=True,
            capture_output=True,
            text=True,
        )
        print(f"{path.name}, {path.stat().st_size / 1024:.0f} kB; {done.stdout.strip()}")
        deployed[name] = np.load(out)
        sessions[name] = onnxruntime.InferenceSession(path, one_thread)

# %%
# Precision and time
# ------------------
# ONNX models compute in float32. We compare them with the transform of mgpa in float64, relative to the
# movement of rows, and measure the time of one call for different numbers of rows.

SIZES = (1, 10, 100, 1000)
errors, waits = {}, {}
for name, m in maps.items():
    exact = m.transform(new.X)
    typical = np.sqrt(np.mean((exact - new.X) ** 2))
    errors[name] = np.abs(deployed[name] - exact).ravel() / typical
    for where in ("numpy", "onnxruntime"):
        for n in SIZES:
            batch = np.resize(X, (n, X.shape[1]))
            times = []
            for _ in range(30):
                start = time.perf_counter()
                if where == "numpy":
                    m.transform(batch)
                else:
                    sessions[name].run(["Y"], {"X": batch})
                times.append(1e3 * (time.perf_counter() - start))
            waits[name, where, n] = min(times)
    worst, middle = errors[name].max(), np.median(errors[name])
    print(f"{name}: error at most {worst:.1e} of a typical move, half of them below {middle:.1e}")
    one = {where: waits[name, where, 1] for where in ("numpy", "onnxruntime")}
    print(f"  one row: numpy {one['numpy']:.3f} ms, onnxruntime {one['onnxruntime']:.3f} ms")

with plots.style():
    figure, panels = plt.subplots(1, 2, figsize=(plots.PAGE, 2.5), layout="constrained")
    bins = np.logspace(-10, -4, 60)
    for (name, values), color in zip(errors.items(), COLORS[1:], strict=False):
        panels[0].hist(
            np.maximum(values, 1e-10), bins, histtype="stepfilled", alpha=0.4, color=color, label=name
        )
    panels[0].set(xscale="log", xlabel="Error relative to a typical move", ylabel="Entries")
    panels[0].legend(loc="upper left")
    lines = {
        f"{name}, {where}": (SIZES, [waits[name, where, n] for n in SIZES])
        for name in maps
        for where in ("numpy", "onnxruntime")
    }
    for (name, line), color in zip(lines.items(), COLORS[1:], strict=False):
        panels[1].plot(*line, "-o", ms=3, color=color, label=name)
    panels[1].set_title("Milliseconds (best of 30)", loc="left")
    panels[1].set_xlabel("Rows in a call")
    panels[1].legend()
    panels[1].set(xscale="log", yscale="log")

# %%
# The error is the rounding error of float32, far smaller than the corrections. The closed form takes almost
# no time, and the iterative map about as much time as its small networks. Times were measured on the machine
# that built this page, with one thread (best of thirty). Source-aware methods such as CORAL can also be
# exported, but need the source of every row.

plt.show()
