"""Fit a correction to a table of any size and apply it, on this machine, under SLURM or on Kubernetes.

python correct_table.py big/ corrected --cluster local --workers 4
python correct_table.py big/ corrected --cluster slurm --workers 20
python correct_table.py big/ corrected --cluster kubernetes --workers 20
python correct_table.py big/ corrected --scheduler tcp://host:8786      # a cluster that is there already

Only how the workers are started differs. A worker that is lost costs the part it was at. If the scheduler is
lost, or a disk is full, the script tries again with a new cluster, as often as --attempts says: parts that
are written already are kept, and the map comes out with the same bits whoever computes it.
"""

import argparse
import errno
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from mgpa import ClosedFormMGPA, load_map
from mgpa.errors import ClusterError
from mgpa.tables import apply_to_file, fit_table
from mgpa.tables.scale import connect

HERE = Path(__file__).parent
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # a worker is one core; more threads would fight for it


def local(n_workers):
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )


def slurm(n_workers):
    """A job of eight workers each, on whatever partition is the default; edit to your site's rules."""
    from dask_jobqueue import SLURMCluster

    cluster = SLURMCluster(
        cores=8,
        processes=8,
        memory="16GB",
        walltime="02:00:00",
        job_name="mgpa",
        job_script_prologue=[f"export {name}={value}" for name, value in ONE_THREAD.items()],
        # Workers end before their job does, one after another, and hand over what they have.
        worker_extra_args=["--lifetime", "110m", "--lifetime-stagger", "5m"],
    )
    cluster.scale(n=n_workers)
    return cluster


def kubernetes(n_workers):
    """Pods as kubernetes.yaml beside this file describes them; the Dask operator must be installed."""
    from dask_kubernetes.operator import KubeCluster

    cluster = KubeCluster(custom_cluster_spec=str(HERE / "kubernetes.yaml"))
    cluster.scale(n_workers)
    return cluster


CLUSTERS = {"local": local, "slurm": slurm, "kubernetes": kubernetes}


@contextmanager
def client_of(options):
    """Yield a client of the scheduler that was named, or of a cluster of our own."""
    if options.scheduler:
        with connect(options.scheduler) as client:
            yield client
        return
    with CLUSTERS[options.cluster](options.workers) as cluster, connect(cluster.scheduler_address) as client:
        client.wait_for_workers(1)  # the others join when the queue lets them
        yield client


def work(options):
    """Fit, unless the map is there already, and correct; what an earlier attempt finished is kept."""
    with client_of(options) as client:
        if not options.map.exists():
            start = time.perf_counter()
            fit_table(ClosedFormMGPA(), options.table, client=client).to_map().save(options.map)
            print(f"fitted {options.map} in {time.perf_counter() - start:.1f} s", flush=True)
        start = time.perf_counter()
        n = apply_to_file(load_map(options.map), options.table, options.out, client=client)
        print(f"corrected {n} rows in {time.perf_counter() - start:.1f} s", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("table", help="a folder of Parquet files that all workers can read")
    parser.add_argument("out", help="a new folder that all workers can write to")
    parser.add_argument("--map", type=Path, default=Path("adapter.safetensors"))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--cluster", choices=CLUSTERS, default="local")
    where.add_argument("--scheduler", help="address of a cluster that is there already")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--pause", type=float, default=30.0, help="seconds before another attempt")
    options = parser.parse_args(arguments)
    for left in reversed(range(options.attempts)):
        try:
            work(options)
            return 0
        except (ClusterError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in NO_ROOM:
                raise  # no such table, no permission: another attempt would not help
            again = f"; trying again in {options.pause:g} s" if left else ""
            print(f"{error}{again}", file=sys.stderr, flush=True)
            time.sleep(options.pause if left else 0)
    return 1


if __name__ == "__main__":
    sys.exit(main())
