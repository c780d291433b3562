"""The protocol: fit the methods, correct HEAD and EVAL, measure everything, store finished cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..coordinates import Coordinates
from ..tables.table import Table
from .plan import DEFAULT_METHODS, AuditPlan
from .result import Audit


def run(
    table: Table,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    *,
    pairs: Any = None,
    seeds: Sequence[int] = (17, 29, 43),
    budget: float | Mapping[str, float] | None = None,
    coordinates: Coordinates | None = None,
    head: Any = None,
    head_source: Any = None,
    task: str | None = None,
    readers: str | Mapping[str, Any] = "full",
    association: tuple[Any, Any] | None = None,
    floor: bool = True,
    standardize: bool = True,
    folds: int | None = None,
    repeats: int | None = None,
    refits: int = 0,
    cache: Any = None,
    n_jobs: int = 1,
    device: str = "auto",
    verbose: bool = True,
) -> Audit:
    """Measure what corrections do to source, task and movement, on people they were not fitted on.

    Parameters
    ----------
    table : Table
        With roles: methods are fitted on FIT (and VAL), readers and heads on HEAD, everything is scored on
        EVAL. Without, or with few EVAL participants, roles rotate (``folds``).
    methods : names, or dict of name to method
        Names as in :func:`mgpa.baselines.list_methods`. A dict's values are names, estimators, fitted
        estimators, maps, or lists of them (several fits of one method). "identity" is always measured too.
        Maps with coordinates must share them; the whole audit then takes place there.
    pairs : Table or path, tuple (A, B), dict of name to either, or None
        Calibration pairs, if they are not rows of the table (then its ``pair_id`` in FIT is used). If they
        are a table that names participants, pairs of HEAD and EVAL participants are left out in every fold.
        In a dict, those of each method; methods it leaves out use the rows.
    seeds : sequence of int
        Fits of every method that has a ``random_state`` of None; the others are fitted once.
    budget : float, dict of name to float, or None
        Compare at this relative movement of the VAL rows instead of with complete maps: all methods, or those
        of the dict. A method that does not move as far in every fit is left out, and
        ``settings["omitted"]`` says why.
    coordinates : Coordinates or None
        Those that the table is in (``info["coordinates"]``); fitted maps will carry them.
    head : scikit-learn classifier or regressor, or None
        Task head; None: the paper's balanced ridge head, its network for tokens, ridge regression for
        numbers. One that is fitted, your deployed model, is scored as it is on corrected and uncorrected
        rows, in the table's own units; copies of it are refitted.
    task : {"classification", "regression"} or None
        What labels are. None: many distinct numbers that differ between participants are a quantity.
    readers : {"full", "paper"} or dict
        Who tries to read the source: the paper's eleven readers (41 for tokens) alone, or these and those
        of ``mgpa.audit.readers.FURTHER`` ("full"). A dict has ``bank``, one of these names, and
        ``restarts`` and ``checkpoints`` for smaller ones.
    association : tuple (source, label), or None
        Which source a label is associated with where the heads behind ``worst`` learn their shortcut. None:
        as in the FIT rows; where these show no association, the curves of both directions are averaged.
    floor : bool
        Also read the source from what each gate preserves.
    standardize : bool
        Measure in features scaled to unit spread over the FIT rows. False measures in the table's own
        coordinates: where several tables share them, they are not to be made again from each.
    cache : path or None
        Folder for finished cells. Running again with the same data and settings reads them; a run that was
        killed goes on where it was. After changing a class of your own, take another folder.
    folds : int or None
        Let roles rotate over this many folds, so that each participant is EVAL once, scored by models
        trained on others; 1 keeps the table's roles. None: folds are made if the table has no roles or fewer
        than twelve EVAL participants, and all methods are fitted here. There are five folds, six if
        participants have one source or label each, fewer with small cells, and one per participant with
        three to seven participants.
    repeats : int or None
        How often participants are divided into folds; results are means over the divisions. None: 3 with
        fewer than 24 participants and the whole bank of readers, and 1 otherwise.
    n_jobs : int
        Cells at a time (joblib; ``joblib.parallel_config("dask")`` sends them to a cluster).
    device : str
        Where networks are trained, unless a method says so itself; "auto" is CUDA if torch sees it here.
    verbose : bool
        Say what is being done.

    Returns
    -------
    Audit

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa.tables import Table, assign_roles
    >>> rng = np.random.default_rng(0)
    >>> person, event = np.repeat(np.arange(16), 20), np.repeat(np.arange(160), 2)
    >>> source, y = np.tile(["dry", "wet"], 160), np.repeat(np.arange(160) % 2, 2)
    >>> X = rng.normal(size=(160, 5))[event] + (source == "wet")[:, None] + y[:, None] * [0, 2, 0, 0, 0]
    >>> table = Table(X, source=source, participant=person, label=y, pair_id=event, role=assign_roles(person))
    >>> audit = run(table, ["closed_form_mgpa"], readers={"restarts": 0}, verbose=False)
    >>> bool(audit["closed_form_mgpa"].estimate("S").value < audit["identity"].estimate("S").value)
    True
    """
    plan = AuditPlan(
        table, methods, pairs=pairs, seeds=seeds, budget=budget, coordinates=coordinates, head=head,
        head_source=head_source, task=task, readers=readers, association=association, floor=floor,
        standardize=standardize, folds=folds, repeats=repeats, refits=refits, cache=cache, n_jobs=n_jobs,
        device=device, verbose=verbose,
    )  # fmt: skip
    return plan.run()
