"""Where a study's time goes: the controlled study on a table of simulated recordings, on a CPU or a GPU.

    python benchmarks/study.py --make table.npz               # once: simulate and embed (needs mne)
    python benchmarks/study.py table.npz --device cuda --jobs 8

The table holds both views of every trial, so that a machine without the EEG packages can run the rest.
"""

import argparse
import tempfile
import time
from pathlib import Path

from mgpa.paper import load_study, run_study, write_results


def make(path: Path) -> None:
    from mgpa.paper.studies.recordings import Recordings
    from mgpa.tables.files import write_table

    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        recordings = Recordings(load_study("controlled-ssvep"), Path(folder), verbose=True)
        print(recordings.folder)
        simulated = time.monotonic() - started
        table = recordings.table()
        embedded = time.monotonic() - started - simulated
        print(f"simulated in {simulated:.0f} s, embedded in {embedded:.0f} s")
        write_table(table, path, overwrite=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", nargs="?", type=Path)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rotations", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 29, 43])
    parser.add_argument("--out", type=Path, default=Path("study"))
    options = parser.parse_args()
    if options.make:
        make(options.make)
        return
    study = load_study(
        "controlled-ssvep",
        data={"kind": "table", "table": str(options.table)},
        encoder=None,
        views=None,
        endpoints={"gamma": 0.02},
        roles={"rotations": options.rotations},
        seeds=options.seeds,
    )
    started = time.monotonic()
    result = run_study(study, options.out / "work", n_jobs=options.jobs, device=options.device)
    total = time.monotonic() - started
    write_results(result, options.out)
    print(result.audits[""])
    print(f"total {total:.0f} s with {options.jobs} at a time on {options.device}")


if __name__ == "__main__":
    main()
