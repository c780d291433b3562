"""Run an audit: fit methods, correct HEAD and EVAL rows, measure, and store finished cells."""

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
    """Measure the effects of corrections on source, task and movement, on held-out participants.

    Parameters
    ----------
    table : Table
        With roles, methods are fitted on FIT (and VAL) participants, readers and heads are trained on HEAD
        participants, and scores come from EVAL participants. Without roles, or with few EVAL participants,
        roles rotate (``folds``).
    methods : names, or dict of name to method
        Names as in :func:`mgpa.baselines.list_methods`. The values of a dict are names, estimators, fitted
        estimators, maps, or lists of these (several fits of one method). "identity" is always included. Maps
        with coordinates must share them; the complete audit then uses these coordinates.
    pairs : Table or path, tuple (A, B), dict of name to either, or None
        Calibration pairs that are not rows of the table; by default, ``pair_id`` of FIT rows is used. If they
        are a table with participants, pairs of HEAD and EVAL participants are left out in every fold. A dict
        has pairs for each method; other methods use the rows.
    seeds : sequence of int
        Seeds for several fits of every method with a ``random_state`` of None; the others are fitted once.
    budget : float, dict of name to float, or None
        Compare methods at this relative movement of the VAL rows instead of complete maps: all methods, or
        those in the dict. A method that cannot move as far in every fit is left out; ``settings["omitted"]``
        has the reason.
    coordinates : Coordinates or None
        The coordinates of the table (``info["coordinates"]``), which are stored in fitted maps.
    head : scikit-learn classifier or regressor, or None
        Task head. None is the paper's balanced ridge classifier, its network for tokens, or ridge regression
        for numbers. A fitted head, such as your deployed model, is scored without refitting on corrected and
        uncorrected rows, in the units of the table; copies of it are refitted.
    task : {"classification", "regression"} or None
        The kind of labels. None: many distinct numbers that differ between participants are a regression
        target.
    readers : {"full", "paper"} or dict
        The source readers: only the paper's eleven readers (41 for tokens), or also those of
        ``mgpa.audit.readers.FURTHER`` ("full"). A dict has ``bank``, one of these names, and ``restarts`` and
        ``checkpoints`` for fewer readers.
    association : tuple (source, label), or None
        The association from which the heads for ``worst`` learn their shortcut. None uses the association in
        the FIT rows; if there is none, the curves of both directions are averaged.
    floor : bool
        Also read the source from the part that each gate preserves.
    standardize : bool
        Standardise features on the FIT rows for measurements. False uses the coordinates of the table, for
        example if several tables share them.
    cache : path or None
        Folder for finished cells. Another run with the same data and settings reuses them, so interrupted
        runs can be continued. After you change a class of your own, use another folder.
    folds : int or None
        Rotate roles over this number of folds, so that each participant is EVAL once and is scored by models
        trained on others; 1 keeps the roles of the table. None: folds are made if the table has no roles or
        fewer than twelve EVAL participants, and if all methods are fitted here. There are five folds, six if
        participants have one source or label each, fewer with small cells, and one per participant with three
        to seven participants.
    repeats : int or None
        Number of random divisions of participants into folds; results are means over the divisions. None is 3
        with fewer than 24 participants and the full bank of readers, and 1 otherwise.
    n_jobs : int
        Number of cells computed in parallel (joblib; ``joblib.parallel_config("dask")`` uses a cluster).
    device : str
        Device for training networks, unless a method has its own; "auto" is CUDA if available.
    verbose : bool
        Show progress.

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
