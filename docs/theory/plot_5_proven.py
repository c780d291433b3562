r"""
.. _theory-proven:

What is proven, and what is not
===============================

Everything the paper proves is about a *fixed* gate: the basis :math:`B` was fitted before, and all statements
take it as given. Those about scores take the score and the metric as given, too. The theory explains the
closed form and motivates the iterative target. It does not say how well either works on recordings; that is
what audits are for.

The paper has one proposition and one theorem (they share a counter, so that the theorem is printed as number
2).

Proven
------

.. list-table::
   :header-rows: 1
   :widths: 40 28 32

   * - Statement
     - Assuming
     - It does not say
   * - Every admissible correction preserves :math:`q`; so do compositions, prefixes and fractions of them.
       (1), A.1
     - :math:`B` orthonormal; exact arithmetic
     - that :math:`q` is free of the source, or of measurement
   * - What is left of the source is :math:`\mathrm I(U;Q)`, the floor, plus :math:`\mathrm I(U;R(H)\mid Q)`.
       (2), A.1
     - nothing else: it is the chain rule
     - how high the floor is on your data, or why
   * - The full closed-form step is a score-level projection; the sign of :math:`\widehat\delta` does not
       matter. (3)
     - :math:`C` positive definite, :math:`\widehat\delta\ne0`
     - that it erases the source: :math:`\widehat\delta`, :math:`C` and the anchor are estimates
   * - A step of strength :math:`\alpha\ne1` has determinant :math:`1-\alpha` and can be undone given
       :math:`q`. A.5
     - as above
     - that existing heads notice nothing: they do
   * - Anchors do not change while a row is edited. (4)
     - anchors are functions of :math:`q`
     - that a ridge regression equals the conditional mean
   * - The bounded step is the unique minimiser of its linearised problem and no longer than :math:`\rho`.
       (5), (13), (14), A.7
     - :math:`\lambda,\tau,\rho>0`
     - that a sequence of refitted stages converges, erases the source, or moves least
   * - Proposition 1: :math:`T_a` is the one shortest edit to a score level. (6), A.2
     - score affine in :math:`z`; score and metric fixed
     - anything about critics that are not affine, or about an active radius
   * - Proposition 1: all targets retain the same information, that of :math:`(Q,N)`. A.2
     - as above, any law of the data
     - that they retain all task information of the input, or that a fixed head answers alike
   * - Proposition 1: a target costs the score's conditional variance plus its squared bias; the conditional
       mean is cheapest. (7), A.2
     - finite conditional second moments
     - that the source is erased: that holds exactly when :math:`N` is independent of it given :math:`Q`
   * - The Bayes score is the context's log-odds plus the log likelihood ratio of :math:`z`. (11), A.1
     - :math:`0<p(q)<1`; the two laws have the same null sets
     - that a trained critic is a Bayes score
   * - The theorem: every :math:`R_\kappa` erases the source given :math:`Q`. A.3
     - the Gaussian model (8) with the *true* :math:`\delta`: one covariance, one shift for all :math:`q`
     - that this holds for unequal covariances, a shift that depends on :math:`q`, or :math:`\widehat\delta`
   * - The theorem: what a target costs, and what aiming at zero costs more. (9), (10), A.3
     - the Gaussian model (8), movement in the metric :math:`\Sigma^{-1}`
     - anything about other metrics, or about task performance
   * - The theorem: mean anchoring moves least among conditional erasers that are affine in :math:`z` at each
       :math:`q`. A.4
     - the Gaussian model (8), deterministic maps that preserve :math:`Q`
     - that no other map, not affine, moves less
   * - Replacing the whole block costs :math:`r-1` more than selective anchoring. A.4
     - the Gaussian model (8)
     - that the directions left alone carry task information: they may
   * - An estimated anchor costs its mean squared error over :math:`d_\Omega`. (12), A.6
     - fixed gate, score and metric; fitting rows independent of evaluation rows
     - how many rows are enough for your data

Not proven
----------

- That pairs reveal the measurement subspace. It is an assumption that views share their content and that
  responses add up inside a fixed subspace; recovering it needs contrasts that are diverse enough.
  ``mgpa.held_out_coverage`` gives evidence, not proof.
- That source information in :math:`Q` is content. A gate that misses part of the measurement change leaves it
  in the floor.
- Optimality, or convergence, of the iterative correction: its critics are nonlinear, refitted, and held by a
  radius.
- Conditional erasure by a *fitted* map. With an estimated direction a part :math:`D\sin^2\theta` of the
  separation stays in the Gaussian model (:ref:`theory-targets`), and data need not be Gaussian.
- Three and more sources. The package projects out the span of all mean contrasts
  (``mgpa.closed_form.projection``); the paper's proposition and theorem are stated for one score and two
  sources.
- That a task is served better afterwards. The proposition compares movement and information, not heads.

Where it is, and what checks it
-------------------------------

Tests are in ``tests/core/test_theory.py``, ``tests/core/test_trust_region.py`` and
``tests/docs/test_gaussian_theory.py``.

Equation (1)
   ``mgpa.gate.Gate.preserved``. Page: :ref:`theory-gate`. Test:
   ``test_what_the_context_says_about_the_source_stays``.

Equation (2)
   ``gaussian.context_information``, ``gaussian.information``. Page:
   :ref:`theory-gate`. Test: ``test_information_is_what_simulated_posteriors_say``.

Equation (3)
   ``mgpa.ClosedFormMGPA``, ``mgpa.closed_form.anchor_and_covariance``, ``mgpa.closed_form.projection``. Page:
   :ref:`theory-closed-form`. Tests: ``test_anchor_and_covariance_equal_regressions_on_the_rows``,
   ``test_the_projection_is_orthogonal_in_its_metric``.

Partial steps, A.5
   ``mgpa.AffineMap.with_strength``. Page: :ref:`theory-closed-form`. Tests:
   ``test_any_other_strength_than_one_can_be_undone``,
   ``test_partial_steps_leave_the_covariance_adjusted_separation``.

Equation (4)
   ``mgpa.anchor.ConditionalMean``, ``mgpa.stages.Stage.residuals``. Page: :ref:`theory-step`. Test:
   ``test_an_estimated_anchor_costs_its_error``.

Equations (5) and (14)
   ``mgpa.trust_region.trust_region_step``, ``mgpa.trust_region.multiplier``, ``mgpa.stages.Step``. Page:
   :ref:`theory-step`. Tests: ``test_steps_equal_an_independent_solver``,
   ``test_steps_meet_the_optimality_conditions``.

Equation (13)
   ``mgpa.trust_region.smooth_weights``. Page: :ref:`theory-step`. Test:
   ``test_critics_of_any_scale_get_about_unit_rows``.

Proposition 1, equations (6) and (7)
   ``mgpa.closed_form.projection``. Page: :ref:`theory-targets`. Tests:
   ``test_no_other_edit_to_the_same_score_is_shorter``, ``test_all_targets_retain_the_same_information``,
   ``test_the_cost_of_an_affine_score_needs_no_gaussian_data``.

Equations (8) and (11)
   ``gaussian.gaussian_model``, ``gaussian.GaussianModel.residual_score``. Page:
   :ref:`theory-targets`. Test: ``test_the_costs_at_the_captions_setting``.

The theorem, erasure
   ``gaussian.target_map``, ``gaussian.separation_left``. Page:
   :ref:`theory-targets`. Tests: ``test_every_target_erases_the_source_given_the_context``,
   ``test_a_direction_that_is_off_leaves_the_part_it_does_not_cover``.

The theorem, costs: equations (9) and (10)
   ``gaussian.costs``. Page: :ref:`theory-targets`. Tests:
   ``test_the_cost_of_a_target_at_fixed_context``, ``test_aiming_at_zero_pays_the_stated_excess``.

The theorem, least movement, A.4
   ``gaussian.target_map``. Page: :ref:`theory-targets`. Test:
   ``test_no_other_affine_eraser_moves_less``.

Completion, A.4
   ``gaussian.completion_map``. Page: :ref:`theory-targets`. Test:
   ``test_replacing_the_whole_block_costs_r_minus_one_more``.

Equation (12)
   ``mgpa.anchor.ConditionalMean``. Page: :ref:`theory-closed-form`. Tests:
   ``test_an_estimated_anchor_costs_its_error``,
   ``test_an_anchor_that_cannot_follow_the_context_costs_its_misfit``.

The numbers, in one list
------------------------

The numbers of section 5 at the setting of figure 2 (source means
:math:`(\pm1,0)`, identity covariance, :math:`p=.8`), three times: from the package's maps and exact
moments, from the paper's equations, and from simulated rows with their standard error.
"""

import matplotlib.pyplot as plt
import numpy as np
from gaussian import (
    completion_map,
    context_information,
    costs,
    gaussian_model,
    information,
    linear_part,
    separation_left,
    target_map,
)

from mgpa.audit import plots
from mgpa.audit.plots import COLORS
from mgpa.audit.plots.drawing import rows as as_rows


def entry_of(ours, paper, where, draws=None):
    """Return one number by the package, by the paper's equation, and by simulation."""
    return {
        "ours": float(ours),
        "paper": None if paper is None else float(paper),
        "difference": None if paper is None else float(ours) - float(paper),
        "where": where,
        "simulated": None if draws is None else float(np.mean(draws)),
        "error": None if draws is None else float(np.std(draws) / np.sqrt(len(draws))),
    }


def squared_movement(mapping, Z, metric):
    """Return how far a map moves each row, squared, in a metric."""
    step = mapping.transform(Z) - Z
    return np.asarray(np.einsum("ni,ij,nj->n", step, metric, step))


model = gaussian_model()
conditional, zero = target_map(model, model.mean_score[0]), target_map(model, 0.0)
completion, half = completion_map(model), conditional.with_strength(0.5)
cost = {name: float(values[0]) for name, values in costs(model).items()}
even = costs(gaussian_model([0.5]))
w = model.metric @ model.delta

# The paper's side: its equations with the caption's numbers, none of them taken from the model.
p, D, r = 0.8, 4.0, 2
prior, middle = float(np.log(p / (1 - p))), (2 * p - 1) * D / 2
least, excess = 1 + D * p * (1 - p), (prior + middle) ** 2 / D

rows = model.sample(200_000, 0, context=0)
ell = model.residual_score(rows.Z)
by_conditional, by_zero, by_completion = (
    squared_movement(m, rows.Z, model.metric) for m in (conditional, zero, completion)
)
numbers = {
    "probability of source 1": entry_of(model.p[0], p, "caption", rows.source),
    "separation": entry_of(model.D, D, "caption and eq. (8)"),
    "evidence of the context": entry_of(model.evidence[0], prior, "section 5"),
    "mean residual score": entry_of(model.mean_score[0] - model.evidence[0], middle, "section 5", ell),
    "variance of the residual score": entry_of(
        w @ model.covariance[0] @ w, D + D**2 * p * (1 - p), "appendix A.3", (ell - middle) ** 2
    ),
    "conditional target": entry_of(model.mean_score[0], prior + middle, "theorem 1", prior + ell),
    "cost of conditional": entry_of(cost["conditional"], least, "eq. (9)", by_conditional),
    "cost of zero": entry_of(cost["zero"], least + excess, "eq. (9)", by_zero),
    "cost of mean": entry_of(cost["mean"], None, "as zero, for E[s] = 0 with balanced sources"),
    "cost of completion": entry_of(cost["completion"], r + D * p * (1 - p), "section 5", by_completion),
    "excess of zero": entry_of(
        cost["zero"] - cost["conditional"], excess, "eq. (10)", by_zero - by_conditional
    ),
    "excess of zero at p = 1/2": entry_of(even["zero"][0] - even["conditional"][0], 0, "theorem 1"),
    "excess of completion": entry_of(
        cost["completion"] - cost["conditional"], r - 1, "appendix A.4", by_completion - by_conditional
    ),
    "directions untouched": entry_of(np.linalg.matrix_rank(linear_part(conditional)), r - 1, "section 5"),
    "separation left by conditional": entry_of(separation_left(model, conditional), 0, "theorem 1"),
    "separation left by zero": entry_of(separation_left(model, zero), 0, "theorem 1"),
    "separation left by completion": entry_of(separation_left(model, completion), 0, "appendix A.1"),
    "separation left by half a step": entry_of(separation_left(model, half), D, "appendix A.5"),
    "determinant of half a step": entry_of(np.linalg.det(linear_part(half)), 0.5, "appendix A.5"),
    "bits in the context": entry_of(context_information(model), None, "eq. (2), first term"),
    "bits in the gate before": entry_of(information(model.p[0], model.D), None, "eq. (2), second term"),
    "bits in the gate after": entry_of(
        information(model.p[0], separation_left(model, conditional)), 0, "eq. (2), second term"
    ),
}


def cell(value, digits=4):
    """Return a number as text, or nothing."""
    return "" if value is None else f"{value + 0.0:.{digits}f}"


print(f"{'':<47} {'package':>8} {'paper':>8} {'simulated':>10} {'error':>8}")
for name, entry in numbers.items():
    found = [
        cell(round(entry["ours"], 9)),
        cell(entry["paper"]),
        cell(entry["simulated"]),
        cell(entry["error"]),
    ]
    print("{:<47} {:>8} {:>8} {:>10} {:>8}".format(name, *found))
    assert entry["difference"] is None or abs(entry["difference"]) < 1e-9, name

# %%
# "Paper" is the value of the paper's equation at this setting; the caption of the figure states the setting
# only. Empty: there is nothing to compare with, or nothing to draw.
#
# How far simulation is from theory
# ---------------------------------
# In standard errors. If the equations hold, these are draws of a standard normal variable (the rows are the
# same for all, so the points are not independent of each other).

drawn = {name: e for name, e in numbers.items() if e["simulated"] is not None}
distance = np.array([(e["simulated"] - e["ours"]) / e["error"] for e in drawn.values()])
print(f"largest distance: {np.abs(distance).max():.2f} standard errors")
assert np.abs(distance).max() < 4

with plots.style():
    figure, ax = plt.subplots(figsize=(plots.PAGE, 2.3), layout="constrained")
    ax.axvspan(-2, 2, color="#f0f0f0", lw=0)
    ax.axvline(0, color=COLORS[0], lw=0.9)
    ax.plot(distance, np.arange(len(distance)), "o", color=COLORS[1])
    ax.set_yticks(range(len(distance)), drawn)
    ax.set(
        xlim=(-4, 4),
        ylim=(len(distance) - 0.5, -0.5),
        xlabel="Simulated minus exact, in standard errors (shaded: ±2)",
    )
    as_rows(ax)

# %%
# Agreement of code and equations says that the package computes what the paper states. Whether the statements
# apply to your recordings is a question about their assumptions, in the first table above.

plt.show()
