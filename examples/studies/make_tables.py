"""Make tables of the two data sets that the study tutorials use.

    python make_tables.py kalunga_gssc_tokens.npz kalunga.parquet            # pooled over channels
    python make_tables.py kalunga_gssc_tokens.npz kalunga_tokens.parquet --tokens
    python make_tables.py corn_nir.npz corn.parquet
    python make_tables.py corn_nir.npz corn_two.parquet --sources m5 mp6

Your own data need a script like this once: rows of numbers, and for every row who or what was measured
(participant), how (source), the label, and an id shared by rows that are the same event (pair_id).
"""

import argparse

import numpy as np

from mgpa.tables import Table, write_table

REFERENCES = ("car", "oz")
FLICKER = ("13Hz", "21Hz")
BLOCKS = 16


def kalunga(data, tokens=False):
    """Trials of two flicker frequencies, each under two references; a trial is one event."""
    keep = np.isin(data["label"], FLICKER)
    trial = np.flatnonzero(keep)
    views = [data[name][keep] if tokens else data[name][keep].mean(axis=1) for name in REFERENCES]
    return Table(
        np.concatenate(views),
        source=np.repeat(REFERENCES, len(trial)),
        participant=np.tile(data["participant"][keep], 2),
        label=np.tile(data["label"][keep], 2),
        pair_id=np.tile(trial, 2),
        other={"session": np.tile(data["session"][keep], 2)},
        info={"what": "SSVEP, Kalunga et al., frozen sleep-staging network, " + " against ".join(REFERENCES)},
    )


def corn(data, sources=None):
    """Samples of corn on several spectrometers; a sample is one event, a block of samples a participant."""
    instruments = data["instruments"].tolist()
    sources = list(sources or instruments)
    unknown = sorted(set(sources) - set(instruments))
    if unknown:
        raise SystemExit(f"No instrument {unknown[0]!r}. Instruments: {', '.join(instruments)}.")
    targets = data["targets"]
    high = targets > np.median(targets, axis=0)
    n = len(high)
    block = blocks_of(high)
    names = [str(name) for name in data["target_names"]]
    return Table(
        np.concatenate([data["spectra"][:, instruments.index(name)] for name in sources]),
        source=np.repeat(sources, n),
        participant=np.tile([f"block {b:02d}" for b in block], len(sources)),
        pair_id=np.tile(np.arange(n), len(sources)),
        other={
            name: np.tile(np.where(high[:, j], "high", "low"), len(sources)) for j, name in enumerate(names)
        },
        info={"what": "near-infrared spectra of corn on " + ", ".join(sources)},
    )


def blocks_of(high, n_blocks=BLOCKS, seed=0):
    """Return a block for every sample: the first shuffle that gives all blocks both classes of all targets.

    An AUROC within a block needs both classes, and one assignment must serve every target.
    """
    rng = np.random.default_rng(seed)
    while True:
        block = rng.permutation(np.arange(len(high)) % n_blocks)
        share = np.array([high[block == b].mean(axis=0) for b in range(n_blocks)])
        if ((share > 0) & (share < 1)).all():
            return block


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="kalunga_gssc_tokens.npz or corn_nir.npz")
    parser.add_argument("table", help="where to write: .parquet, .npz or .csv")
    parser.add_argument("--tokens", action="store_true", help="keep one vector a channel, not their mean")
    parser.add_argument("--sources", nargs="+", help="spectrometers to keep")
    given = parser.parse_args()
    with np.load(given.data) as data:
        table = corn(data, given.sources) if "spectra" in data else kalunga(data, given.tokens)
    write_table(table, given.table, overwrite=True)
    print(f"{given.table}: {table!r}")


if __name__ == "__main__":
    main()
