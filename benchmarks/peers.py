"""Fits and transforms beside the packages people use, on the same data, each by its own interface.

    python benchmarks/peers.py                    # 10 000 rows x 512 features, 500 pairs
    python benchmarks/peers.py --json peers.json  # for the table of docs/performance.md, by page.py

Below every peer is this package's implementation of the same method. pyRiemann recentres covariances of
channels; there this package corrects the tangent vectors of the same matrices.
"""

import argparse
import warnings
from datetime import date
from pathlib import Path

import quiet

if __name__ == "__main__":
    quiet.pin()

import numpy as np

import history
import run

N_CHANNELS = 32


def whole_frame(model, X, names):
    """Return a transform by combatlearn, which keeps the batches of the rows to come."""
    import pandas as pd

    model.batch = pd.Series(names)
    return model.transform(pd.DataFrame(X))


def peers(X, source, pairs):
    """Yield name, method here, and a function that returns fit and transform of a peer.

    A transform corrects all rows, a fit returns its model.
    """
    names, order, (A, B) = source.astype(str), np.argsort(source, kind="stable"), pairs
    domain = np.where(source[order] == 0, 1, -2)

    def leace():
        import torch
        from concept_erasure import LeaceEraser

        Z, tensor = torch.tensor(np.eye(2)[source]), torch.tensor(X)
        return lambda: LeaceEraser.fit(tensor, Z), lambda model: model(tensor)

    def coral():
        from skada import CORALAdapter

        return (
            lambda: CORALAdapter().fit(X[order], sample_domain=domain),
            lambda model: model.transform(X, sample_domain=np.ones(len(X), int), allow_source=True),
        )

    def combat():
        import pandas as pd
        from combatlearn import ComBat

        return (
            lambda: ComBat(batch=pd.Series(names), method="johnson").fit(pd.DataFrame(X)),
            lambda model: whole_frame(model, X, names),
        )

    def pds():
        from chemotools.adaptation import PiecewiseDirectStandardization

        return (
            lambda: PiecewiseDirectStandardization(window_length=5, n_components=2).fit(B, X_source=A),
            lambda model: model.transform(X),
        )

    def ds():
        from pycaltransfer.caltransfer import ds_pc_transfer_fit

        return lambda: ds_pc_transfer_fit(B, A, max_ncp=20), lambda model: X @ model[0] + model[1]

    yield "LEACE (concept-erasure)", "leace", leace
    yield "CORAL (skada)", "coral", coral
    yield "ComBat (combatlearn)", "combat", combat
    yield "PDS (chemotools)", "pds", pds
    yield "DS (pycaltransfer)", "ds", ds


def own(name, X, source, pairs):
    """Return fit and transform of this package's method, with what it needs."""
    from mgpa.baselines import make_method

    def fit():
        return make_method(name).fit(X, source=source, pairs=pairs)

    def transform(model):
        m = model.to_map() if hasattr(model, "to_map") else model
        return m.transform(X) if m.source_blind else m.transform(X, source=source)

    return fit, transform


def seconds_of(ways, repeats=3):
    """Return the shortest fit and transform of every (fit, transform), taking turns."""
    fits = quiet.shortest([fit for fit, _ in ways], repeats)
    models = [fit() for fit, _ in ways]
    pairs = zip(ways, models, strict=True)
    transforms = quiet.shortest([lambda t=t, m=m: t(m) for (_, t), m in pairs], repeats)
    return list(zip(fits, transforms, strict=True))


def riemannian(rng, n=2_000, n_pairs=200):
    """Yield pyRiemann's recentring of covariances, and this package on their tangent vectors."""
    from pyriemann.tangentspace import TangentSpace
    from pyriemann.transfer import TLCenter, encode_domains

    def covariances(size, gain):
        Z = rng.normal(size=(size, N_CHANNELS, 4 * N_CHANNELS)) * np.sqrt(gain)[:, None]
        return Z @ Z.swapaxes(1, 2) / Z.shape[2]

    gain = np.where(np.arange(N_CHANNELS) < 8, 2.0, 1.0)
    C = np.concatenate([covariances(n // 2, np.ones(N_CHANNELS)), covariances(n // 2, gain)])
    source, root = np.repeat([0, 1], n // 2), np.sqrt(gain)
    first = covariances(n_pairs, np.ones(N_CHANNELS))
    second = first * root[:, None] * root
    domains = encode_domains(C, np.arange(n) % 2, source.astype(str))[1]

    def recentre():
        return TLCenter("0", metric="riemann").fit(C, domains)

    tangent = TangentSpace(metric="riemann").fit(C[:200])
    X, A, B = (tangent.transform(matrices) for matrices in (C, first, second))
    yield "recentring (pyRiemann)", recentre, lambda model: model.transform(C)
    for name in ("closed_form_mgpa", "mgpa"):
        yield name, *own(name, X, source, (A, B))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all lines and the machine's state")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    watch, lines = quiet.Watch(), []
    X, source, pairs = run.spread_world(np.random.default_rng(0))

    def keep(what, name, times):
        lines.append({"against": what, "name": name, "fit": times[0], "transform": times[1]})
        print(f"{what:<26}{name:<26}{times[0]:>10.3f} s{times[1] * 1e3:>12.2f} ms", flush=True)

    for name in ("closed_form_mgpa", "mgpa"):
        keep("", name, *seconds_of([own(name, X, source, pairs)]))
    for peer, name, theirs in peers(X, source, pairs):
        try:
            ours, theirs = seconds_of([own(name, X, source, pairs), theirs()], 2)
        except Exception as error:  # not installed, or a peer's own limits
            print(f"{peer}: {error!r}"[:200], flush=True)
            continue
        keep(peer, peer, theirs)
        keep(peer, name, ours)
    names, ways = zip(*[(name, way) for name, *way in riemannian(np.random.default_rng(0))], strict=True)
    for name, times in zip(names, seconds_of(ways, 2), strict=True):
        keep(names[0], name, times)
    if options.json:
        facts = {"machine": history.machine(), "commit": history.commit(), "date": str(date.today())}
        quiet.save(options.json, **facts, state=watch.state(), lines=lines)


if __name__ == "__main__":
    main()
