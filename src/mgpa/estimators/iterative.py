"""Iterative correction with source critics (section 4.2, Algorithm 1).

Stage k refits the critics on the current embeddings and moves every row by one bounded step toward the
anchors of their scores inside the gate:

    h ← h + B Δz,   Δz = argmin_{‖Δz‖ ≤ ρ} ½‖W(A Δz + e)‖² + ½ τ‖Δz‖²,   e = s(h) - a(q(h)).

The paper's anchor a(q) is a regression of the score on the preserved coordinates, over the rows of all
sources (``target="conditional"``), and learns associations of source and task. The default is the critic's
score at the anchored point, a(q) = s(q + B ẑ(q)), with ẑ the regression of the gate coordinates within
sources (:func:`mgpa.effect.within_anchor`), so that no row moves past ẑ(q). Its first stage is the closed
form, which needs no critics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .._common.arrays import cast
from .._common.extras import torch_device
from .._common.parameters import Constraint, flag, gate, number, one_of, read_seed, seed, some_of, text, whole
from .._common.progress import progress
from ..anchor import TARGETS
from ..critics import CRITICS
from ..effect import Effect
from ..errors import UsageError
from ..gate import fit_gate
from ..maps import MapInfo, StagedMap
from ..moments import Standardizer
from ..pair_checks import far_off, require_right_pairs
from ..pairs import Pairs
from ..stages import (
    AffinePoint,
    ClosedForm,
    Recipe,
    Rows,
    Trajectory,
    closed_form,
    complete_stages_kept,
    staged_map,
    supported_basis,
)
from ..statistics import LabelledRows, collect_pairs, require_several
from ..stopping import FEW_EVENTS, StoppingRule, events_of_rows, judged_run, paired_rows
from .base import GatedEstimator, HeldOut, SequentialEstimator

Floats = NDArray[np.float64]

ONE_THREAD_SIZE = 2**22  # up to this size of X, one thread is fastest
# The GELU critic is the mean of this number of networks, so that maps hardly depend on the seed.
N_NETWORKS = 4
# Error rate for the closed form as first stage. It is below the rate of the closed form on its own, because
# the evidence of critics can also start stages.
START_LEVEL = 0.01


class IterativeMGPA(SequentialEstimator, GatedEstimator):
    """Correct embeddings by bounded, critic-guided steps inside the measurement gate.

    Parameters
    ----------
    gate : int, float, gate estimator or None
        The directions in which rows may move. An int is the rank of a :class:`~mgpa.MeasurementGate`, a float
        the share of directional energy to retain; with None, held-out pairs decide.
    n_stages : int
        Maximum number of stages.
    critics : sequence of {"linear", "lbfgs", "gelu"}
        Source critics, which are refitted at every stage; a single critic has half the damping.
        ``("linear",)`` does not need torch. On a GPU, "linear" is fitted to convergence by Newton steps;
        "lbfgs" is the published solver with early stopping on any device. A critic has one score for two
        sources, and K scores for K > 2.
    target : {"within", "conditional", "mean", "zero"}
        The target of the scores. "within": the scores of the critics at the gate coordinates expected within
        sources, which learns no association of source and task. "conditional": their conditional mean given
        the preserved coordinates over all rows, as published. "mean": their mean. "zero": zero. With "within"
        (and no ``anchor_gate``), the first stage is the closed form.
    radius : float
        Maximum length of the step of a stage, divided by √d.
    damping, stabilizer : float
        τ, the penalty of movement, and λ, which limits the weight of weak critics.
    ridge : float or "auto"
        Penalty of the anchor regression, on the sum-of-squares scale; "auto" is generalised cross-validation
        for anchors within sources, and the published 10 for anchors over all rows.
    critic_epochs, learning_rate : int, float
        Training settings of the GELU critic.
    early_stopping, patience : bool, int
        Keep the epoch of each GELU critic with the lowest source cross-entropy on (X_val, source_val); stop
        after ``patience`` epochs without improvement. ``critic_epochs`` is then a maximum.
    do_no_harm : bool
        Add stages only while critics predict the source of held-out rows better than the preserved
        coordinates do, tested over participants. Without such evidence, the map is the identity. Held-out
        rows are X_val if given. Otherwise they are paired views, if pairs and rows show the same effect, or
        other rows: a fifth of many rows, or five cross-fitted runs with few rows. If the gate was set by
        hand, only the part that held-out pairs support is used.
    standardize : bool
        As in :class:`~mgpa.ClosedFormMGPA`; radius and movement are in standardised units.
    anchor_gate : int, float, gate estimator or None
        A separate gate for the anchors, used with control gates: anchors use the complement of this gate, and
        the anchored point changes coordinates inside this gate. None uses ``gate``.
    device : {"auto", "cpu", "cuda", ...}
        Device on which critics are trained; "auto" uses CUDA if available.
    random_state : int, RandomState or None
        Seed of the critics for the published targets. With "within", a GELU critic is the mean of four
        networks with fixed seeds, so the map depends only on the data.
    verbose : bool
        Show progress.
    on_missing : {"raise", "warn"}
        As in :class:`~mgpa.ClosedFormMGPA`.

    Attributes
    ----------
    gate_, anchor_gate_ : fitted gates
        The editable subspace, and the subspace whose complement the anchors use.
    map_ : StagedMap
        The stored correction.
    n_stages_ : int
        Stages fitted.
    history_ : list of dict
        For each stage: the data of its test (``evidence``: "effect", "rows" or "pairs"), the residual AUROC
        of each score (``auroc``), its excess over chance (``z``), whether the stage was ``kept``, and the
        movement.
    sources_ : array
        Source labels.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat([0, 1], 300)
    >>> shift = np.array([2.0, 0, 0, 0, 0, 0])
    >>> X = rng.normal(size=(600, 6)) + source[:, None] * shift
    >>> A = rng.normal(size=(40, 6)); B = A + shift + 0.1 * rng.normal(size=(40, 6))
    >>> model = IterativeMGPA(critics=("linear",), random_state=0)
    >>> Xc = model.fit(X, source=source, pairs=(A, B)).transform(X)
    >>> bool(abs(np.diff([Xc[source == s, 0].mean() for s in (0, 1)])[0]) < 0.3)
    True
    """

    map_: StagedMap
    history_: list[dict[str, Any]]

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "gate": gate,
        "n_stages": whole(),
        "critics": some_of(*CRITICS),
        "target": one_of("within", *TARGETS),
        "radius": number(above=0),
        "damping": number(above=0),
        "stabilizer": number(above=0),
        "ridge": number(0) | one_of("auto"),
        "critic_epochs": whole(1),
        "learning_rate": number(above=0),
        "early_stopping": flag,
        "patience": whole(1),
        "do_no_harm": flag,
        "standardize": flag,
        "anchor_gate": gate,
        "device": text,
        "random_state": seed,
        "verbose": flag,
        "on_missing": one_of("raise", "warn"),
    }

    def __init__(
        self,
        gate: Any = None,
        *,
        n_stages: int = 48,
        critics: Sequence[str] = ("linear", "gelu"),
        target: str = "within",
        radius: float = 0.05,
        damping: float = 1e-3,
        stabilizer: float = 0.1,
        ridge: float | str = "auto",
        critic_epochs: int = 12,
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        patience: int = 10,
        do_no_harm: bool = True,
        standardize: bool = True,
        anchor_gate: Any = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
        on_missing: str = "raise",
    ) -> None:
        self.gate = gate
        self.n_stages = n_stages
        self.critics = critics
        self.target = target
        self.radius = radius
        self.damping = damping
        self.stabilizer = stabilizer
        self.ridge = ridge
        self.critic_epochs = critic_epochs
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.patience = patience
        self.do_no_harm = do_no_harm
        self.standardize = standardize
        self.anchor_gate = anchor_gate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.on_missing = on_missing

    @classmethod
    def paper(cls, study: str = "native", **changes: Any) -> Self:
        """Return the published settings: anchors over all sources, all 48 stages, no stopping rule, seed 17.

        "native" has the settings of controlled SSVEP, N170 and, with ``gate=0.99``, recorded SSVEP. "reuse"
        has longer critic training with early stopping on (X_val, source_val), smaller steps and a gate of
        rank 8. ``changes`` override parameters.
        """
        settings: dict[str, Any] = {
            "gate": 0.9,
            "target": "conditional",
            "ridge": 10.0,
            "do_no_harm": False,
            "random_state": 17,
        }
        if study == "reuse":
            settings |= {"critic_epochs": 100, "learning_rate": 3e-4, "early_stopping": True, "radius": 0.025}
            settings["gate"] = 8
        elif study != "native":
            raise ValueError(f"study must be 'native' or 'reuse'; got {study!r}.")
        return cls(**(settings | changes))

    def _fit(self, data: LabelledRows, views: Pairs | None, held: HeldOut) -> None:
        # For small critics, threads cost more time than they save, above all on busy machines.
        with threadpool_limits(1 if data.X.size < ONE_THREAD_SIZE else None):
            self._fit_map(data, views, held)

    def _fit_nothing(self) -> None:
        d = self.n_features_in_
        self.sources_, self.history_, self.n_stages_ = np.array([]), [], 0
        as_it_is, nowhere = Standardizer(np.zeros(d), np.ones(d), np.ones(d, bool)), np.zeros((d, 0))
        recipe = self._recipe(np.asarray, nowhere, nowhere)
        self.map_ = staged_map([], recipe, nowhere, as_it_is, info=self._info(gate_rank=0))

    def _fit_map(self, data: LabelledRows, views: Pairs | None, held_out: HeldOut) -> None:
        """Fit standardisation and gate, then the stages (Algorithm 1)."""
        require_several(data.sources, data.source_weights)
        pairs, views, doubt = self._usable_pairs(data, views)
        X_val, held_codes = self._read_judges(data, held_out)
        standardizer = Standardizer.from_rows(data.X, data.sample_weight, self.standardize)
        H, to_backend = standardizer.apply(data.X), self._backend()
        rows = Rows(to_backend(H), data.codes, data.sample_weight)
        held = None if X_val is None else Rows(to_backend(standardizer.apply(X_val)), held_codes)
        self._fit_gates(pairs, standardizer, H, rows)
        self.sources_, self.history_, gate = data.sources, [], self.gate_
        basis, first, effect = gate.basis_, None, None
        if self.do_no_harm and gate.rank_:
            basis = supported_basis(gate, pairs, standardizer, lambda: rows.moments.within)
        if gate.rank_ and (self.do_no_harm or self.target == "within"):
            first = closed_form(data, views, pairs, standardizer, basis, self.ridge)
            effect = None if first is None else first(rows.moments)[1]
        anchor_basis = basis if self.anchor_gate is None else self.anchor_gate_.basis_
        recipe = self._recipe(to_backend, basis, anchor_basis)
        run, rule, evidence = Trajectory(recipe, rows, held), None, ""
        if gate.rank_ and self.do_no_harm:
            run, rule = self._judged_run(recipe, rows, held, data, views, standardizer, effect)
            judged = "X_val" if held is not None else f"held-out {rule.evidence}"
            evidence = f"{effect or 'no mean contrast'}; stages judged on {judged}"
        info = self._info(
            standardizer,
            random_state=recipe.seed,
            n_contrasts=len(pairs),
            gate_rank=gate.rank_,
            gate_energy=gate.retained_energy,
            evidence=evidence,
            doubt=doubt,
            **data.facts,
        )
        with complete_stages_kept(lambda: self._finish(run, basis, standardizer, info)):
            if first is not None and effect is not None and self._starts_with(effect):
                self._start(first, basis, run, rule)
            self._fit_stages(run, rule)

    def _usable_pairs(self, data: LabelledRows, views: Pairs | None) -> tuple[Pairs, Pairs | None, str]:
        """Return all pairs and the pairs given as arrays, both without outliers, and doubts in words."""
        labelled = () if data.pair_id is None else (data.paired(),)
        pairs = collect_pairs(() if views is None else (views,), labelled, data.sources)
        doubt = require_right_pairs(pairs)
        if self.do_no_harm and len(far := far_off(pairs)):
            bad = pairs.take(far)
            pairs, views = pairs.without(bad), None if views is None else views.without(bad)
            doubt = doubt and require_right_pairs(pairs)
        return pairs, views, doubt

    def _read_judges(
        self, data: LabelledRows, held_out: HeldOut
    ) -> tuple[Floats | None, NDArray[np.int64] | None]:
        """Return the held-out rows for the stopping rule, and their sources."""
        if self.early_stopping and all(value is None for value in held_out):
            raise UsageError("early_stopping=True needs X_val and source_val: held-out rows with sources.")
        return self._read_held_out(
            data.sources,
            held_out,
            "early_stopping and do_no_harm need them (or turn both off)",
            sources_needed=self.early_stopping or self.do_no_harm,
        )

    def _starts_with(self, effect: Effect) -> bool:
        """Return whether the closed form is the first stage."""
        if self.target != "within" or self.anchor_gate is not None or not self.n_stages:
            return False
        return not self.do_no_harm or effect.is_clear(START_LEVEL)

    def _fit_gates(self, pairs: Pairs, standardizer: Standardizer, H: NDArray[Any], rows: Rows) -> None:
        """Fit the gate and, for control gates, the gate for the anchors."""
        gates = [
            fit_gate(gate, pairs, standardizer, lambda: H, lambda: rows.moments.within)
            for gate in (self.gate, self.anchor_gate)[: 1 if self.anchor_gate is None else 2]
        ]
        self.gate_, self.anchor_gate_ = gates[0], gates[-1]

    def _judged_run(
        self,
        recipe: Recipe,
        rows: Rows,
        held: Rows | None,
        data: LabelledRows,
        views: Pairs | None,
        standardizer: Standardizer,
        effect: Effect | None,
    ) -> tuple[Trajectory, StoppingRule]:
        """Return the run of stages for the map, and the stopping rule on held-out rows or views."""
        pair_id, judged = data.pair_id, None
        # If pairs show a reversed effect, the sources of their views are not certain.
        shared = effect is not None and effect.matches_pairs and effect.size > 0
        if held is None and shared and pair_id is not None:
            judged = paired_rows(rows, pair_id)
        elif held is None and shared and views is not None and len(views) >= FEW_EVENTS:
            both = cast(standardizer.apply(np.concatenate([views.a, views.b])), rows.H)
            event = np.arange(len(views))
            judged = Rows(both, np.repeat([0, 1], len(event)), event=np.tile(event, 2))
            pair_id = events_of_rows((views.a, views.b), data.X)
        return judged_run(recipe, rows, held, groups=data.participant, pair_id=pair_id, views=judged)

    def _start(self, first: ClosedForm, basis: Floats, run: Trajectory, rule: StoppingRule | None) -> None:
        """Use the closed form, fitted on the rows of each run, as its first stage."""
        for each in (run, *(() if rule is None else rule.witnesses)):
            path, B = first(each.rows.moments)[0], run.recipe.basis
            along = path.direction.T @ basis  # (k, r)
            each.advance(AffinePoint(cast(path.readout @ along, B), cast(path.offset @ along, B), B))
        moved = None if run.held is None else run.held.movement()
        self.history_.append({"stage": 0, "evidence": "effect", "kept": True, "held_movement": moved})

    def _fit_stages(self, run: Trajectory, rule: StoppingRule | None) -> None:
        """Repeat steps 3 and 4 of Algorithm 1, up to ``n_stages`` times or until the rule stops them."""
        stages = range(len(run.stages), self.n_stages if self.gate_.rank_ else 0)
        for k in progress(stages, "MGPA stages", self.verbose):
            stage = run.fit_stage()
            record: dict[str, Any] = {"stage": k} | ({} if rule is None else rule.weigh(stage))
            goes_on = record.get("kept", True)
            if goes_on:
                run.advance(stage)
                record["held_movement"] = None if run.held is None else run.held.movement()
            self.history_.append(record)
            if not goes_on:
                break

    def _finish(self, run: Trajectory, basis: Floats, standardizer: Standardizer, info: MapInfo) -> None:
        self.n_stages_ = len(run.stages)
        anchored = run.anchor if self.target == "within" and self.gate_.rank_ else None
        assert anchored is None or isinstance(anchored, AffinePoint)
        self.map_ = staged_map(run.stages, run.recipe, basis, standardizer, anchored=anchored, info=info)

    def _recipe(self, to_backend: Callable[[Any], Any], basis: Floats, anchor_basis: Floats) -> Recipe:
        within = self.target == "within"
        return Recipe(
            critics=tuple(self.critics),
            target=self.target,
            # The damping is defined for the summed losses of two critics; one critic uses half of it.
            damping=float(self.damping * len(tuple(self.critics)) / 2),
            radius=float(self.radius * np.sqrt(self.n_features_in_)),
            stabilizer=float(self.stabilizer),
            ridge=None if self.ridge == "auto" else float(self.ridge),
            epochs=self.critic_epochs,
            learning_rate=self.learning_rate,
            patience=self.patience if self.early_stopping else None,
            seed=0 if within else read_seed(self.random_state),
            sources=self.sources_,
            basis=to_backend(basis),
            anchor_basis=to_backend(anchor_basis),
            n_networks=N_NETWORKS if within else 1,
        )

    def _backend(self) -> Callable[[Any], Any]:
        """Return the function that moves float32 rows to the device of the critics."""
        if "gelu" not in self.critics and self.device in ("auto", "cpu"):
            return lambda array: np.asarray(array, dtype=np.float32)
        device = torch_device(self.device, "A GELU critic")
        import torch

        return lambda array: torch.as_tensor(np.asarray(array), dtype=torch.float32, device=device)
