"""Fit here, deploy there: a correction as an ONNX model, run by a process that has never heard of mgpa.

    python examples/onnx_deployment.py

The second process imports onnxruntime and numpy only; a C++, Java or JavaScript runtime would do the same.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import mgpa

DEPLOYED = """
import sys
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
X = numpy.load(sys.argv[2])
numpy.save(sys.argv[3], session.run(["Y"], {"X": X})[0])
print("modules of ours in the deployed process:", [name for name in sys.modules if name.startswith("mgpa")])
"""


def main() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(2, size=1000)
    X = (rng.normal(size=(1000, 16)) + source[:, None] * np.eye(16)[0] * 2).astype(np.float32)
    pairs = X[:50], X[:50] + 2 * np.eye(16, dtype=np.float32)[0] + 0.1 * X[50:100]
    m = mgpa.ClosedFormMGPA().fit(X, source=source, pairs=pairs).to_map()
    with tempfile.TemporaryDirectory() as folder:
        model, rows, out = (Path(folder) / name for name in ("map.onnx", "rows.npy", "out.npy"))
        m.to_onnx(model)
        np.save(rows, X)
        subprocess.run([sys.executable, "-I", "-c", DEPLOYED, model, rows, out], check=True)
        deployed = np.load(out)
    print(f"largest difference from mgpa's own transform: {np.abs(deployed - m.transform(X)).max():.1e}")


if __name__ == "__main__":
    main()
