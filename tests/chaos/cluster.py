"""Kill a cluster's workers while it fits and corrects, then its scheduler: the same bytes, or an error.

``python tests/chaos/cluster.py --rounds 10 --seed 1`` (part of ``make chaos``). Scheduler and workers are
processes of their own; workers that are killed are replaced, as on any cluster. Exit code 1 if a result is
not that of one process, if an error is not clear, or if something hangs.
"""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

HANG = 180.0
WORKERS = 2


class Cluster:
    """A scheduler at an address that stays the same, and workers that find it again."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.folder, self.processes = folder, {}
        self.start("scheduler")
        for i in range(WORKERS):
            self.start(i)

    def start(self, name):
        port = self.address.rpartition(":")[2]
        what = (
            ["scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]
            if name == "scheduler"
            else ["worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        )
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "dask", *what],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


def disturb(cluster, victims, moments, done):
    """Kill and replace one after another, until the work is done."""
    for name, moment in zip(victims, moments, strict=True):
        if done.wait(moment):
            return
        cluster.kill(name)
        cluster.start(name)
        if name == "scheduler":  # workers end with it, and are started again by whoever runs the cluster
            for worker in range(WORKERS):
                cluster.kill(worker)
                cluster.start(worker)


def attempt(folder, address):
    """Fit and correct on the cluster, as the command line does; return exit codes and what was said."""
    said = []
    for arguments in (
        ["fit", "parts", "--out", "new.safetensors", "--overwrite", "--scheduler", address],
        ["apply", "map.safetensors", "parts", "--out", "new", "--scheduler", address],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "mgpa", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=HANG,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        said.append((done.returncode, done.stderr[-2000:]))
    return said


def content(path):
    if path.suffix == ".safetensors":
        from mgpa import load_map
        from mgpa.maps.io.mapfile import map_digest

        return map_digest(load_map(path))
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(file.name, file.read_bytes()) for file in files if file.is_file()]


def main():
    from mgpa.cli import main as mgpa
    from mgpa.tables import TableWriter
    from simulated import simulated_table

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, counts, bad = random.Random(options.seed), Counter(), 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.chdir(folder)
        table, n_parts = simulated_table(n_people=40), 40
        size = len(table) // n_parts
        table = table.take(slice(0, n_parts * size))
        with TableWriter(folder / "parts", table, [size] * n_parts) as writer:
            for i in range(n_parts):
                writer.write(i, table.take(slice(i * size, (i + 1) * size)))
        assert mgpa(["fit", "parts", "--out", "map.safetensors"]) == 0
        assert mgpa(["apply", "map.safetensors", "parts", "--out", "corrected"]) == 0
        expected = [content(folder / name) for name in ("map.safetensors", "corrected")]
        cluster = Cluster(folder)
        try:
            for i in range(options.rounds):
                # The last rounds lose the scheduler, the others workers.
                lost = ["scheduler"] if i >= options.rounds - 3 else rng.choices(range(WORKERS), k=3)
                done = threading.Event()
                moments = [1 + 6 * rng.random() for _ in lost]
                killer = threading.Thread(target=disturb, args=(cluster, lost, moments, done))
                killer.start()
                try:
                    said = attempt(folder, cluster.address)
                except subprocess.TimeoutExpired as error:
                    said = [(124, f"hang: {error}")]
                done.set()
                killer.join()
                what = "scheduler" if lost == ["scheduler"] else "workers"
                for (code, text), name in zip(said, ("fit", "apply"), strict=False):
                    counts[f"{name}, {what} killed: {'same bytes' if code == 0 else 'error'}"] += 1
                    # Dask's own log may be long; what the command says is its last line.
                    clear = code == 2 and text.rstrip().rpartition("\n")[2].startswith("mgpa: ")
                    if code and not clear:
                        bad += 1
                        print(f"{name}, {what} killed: exit code {code}: {text}", flush=True)
                if any(code for code, _ in said):  # again, undisturbed
                    time.sleep(3)
                    try:
                        said = attempt(folder, cluster.address)
                    except subprocess.TimeoutExpired:
                        print(f"round {i}: hangs after it", flush=True)
                now = [content(folder / name) for name in ("new.safetensors", "new")]
                if now != expected or (folder / "new.partial").exists():
                    bad += 1
                    same = [a == b for a, b in zip(now, expected, strict=True)]
                    print(f"round {i}: other bytes than in one process: {same}; {said}", flush=True)
                subprocess.run(["rm", "-rf", "new", "new.safetensors", "new.partial"], check=True)
        finally:
            cluster.close()
            os.chdir("/")
    for what, n in sorted(counts.items()):
        print(f"{n:>5}  {what}")
    print(f"{bad} lost or wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
