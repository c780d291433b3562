"""Let torchaudio load beside a torch it was not built for, by leaving its compiled extension out.

braindecode imports torchaudio. The registry's torchaudio is compiled for CUDA builds of torch and fails to
load beside a CPU build. Everything braindecode uses of it has a Python form, which torchaudio takes when the
extension is absent; so where loading fails, the extension is renamed to ``*.disabled``. `make` runs this
after installing; by hand: ``python tools/mend_torchaudio.py``.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path


def loads() -> bool:
    """Return whether torchaudio can be imported, in a process of its own."""
    return subprocess.run([sys.executable, "-c", "import torchaudio"], capture_output=True).returncode == 0


def main() -> int:
    """Rename the extension if torchaudio does not load; 0 if it loads in the end."""
    spec = importlib.util.find_spec("torchaudio")
    if spec is None or spec.origin is None:
        print("torchaudio is not installed; nothing to mend.")
        return 0
    if loads():
        print("torchaudio loads; nothing to mend.")
        return 0
    for library in Path(spec.origin).parent.glob("lib/_torchaudio*"):
        if library.suffix in (".so", ".pyd", ".dylib"):
            renamed = library.rename(library.with_name(library.name + ".disabled"))
            print(f"torchaudio does not load beside this torch; renamed {library.name} to {renamed.name}.")
    if loads():
        return 0
    print("torchaudio still does not load; install the build that matches your torch.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
