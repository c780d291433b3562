"""Section 5 in numbers, and figure 2: three choices in measurement-gated correction.

Everything is at the setting of the figure's caption: source means (±1, 0), covariance I, Pr(U = 1 | q) = .8.
:func:`figure_numbers` has each number three times over: from the maps and exact moments
(:mod:`mgpa.studies.gaussian`), from the paper, and by simulation. :func:`figure` draws figure 2,
:func:`cost_figure` the two equations of theorem 1.

>>> from mgpa.studies import theory
>>> theory.write_figure("figures")                                                       # doctest: +SKIP
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.files import write_atomically
from ..audit.plots import COLORS, SOURCE_COLORS, save_figures
from ..audit.plots.drawing import FAINT, INK, MUTED, PAGE, canvas, grid, style
from ..closed_form import ClosedFormMGPA
from ..gate import MeasurementGate
from ..maps import AffineMap
from .gaussian import (
    CAPTION_MEANS,
    CAPTION_P,
    GaussianModel,
    completion_map,
    context_information,
    costs,
    expected_movement,
    gaussian_model,
    information,
    linear_part,
    population_leace,
    separation_left,
    target_map,
)

__all__ = ["cost_figure", "costs", "curves", "figure", "figure_numbers", "gaussian_model", "write_figure"]

Floats = NDArray[np.float64]
CONDITIONAL, ZERO, COMPLETION = COLORS[1], COLORS[2], COLORS[4]


def figure_numbers(n: int = 200_000, random_state: int = 0) -> dict[str, dict[str, Any]]:
    """Return the numbers of figure 2 and section 5: the costs of eq. (9), the excess of eq. (10) and others.

    Parameters
    ----------
    n : int
        Simulated rows of the context that is drawn.
    random_state : int
        Seed.

    Returns
    -------
    dict of name to dict
        ``ours``; ``paper`` (None: it has no such number); their ``difference``; ``where`` in the paper. The
        caption states its setting in numbers; all else the paper states as equations, whose value at that
        setting stands here. ``simulated`` is what drawn rows give, ``error`` its standard error (None:
        there is nothing to draw).

    Examples
    --------
    >>> entry = figure_numbers(n=2000)["excess of zero"]
    >>> round(entry["ours"], 4), abs(entry["difference"]) < 1e-12, entry["where"]
    (1.6722, True, 'eq. (10)')
    """
    model = gaussian_model()
    conditional, zero = target_map(model, model.mean_score[0]), target_map(model, 0.0)
    completion, half = completion_map(model), conditional.with_strength(0.5)
    cost = {name: float(values[0]) for name, values in costs(model).items()}
    even = costs(gaussian_model([0.5]))
    leace, mean, covariance = population_leace(model)
    context_only = np.diag([1 / covariance[0, 0], *np.zeros(model.r)])
    w = model.metric @ model.delta

    # The paper's side: its equations with the caption's numbers, none of them taken from the model.
    p, D, r = CAPTION_P, 4.0, 2
    prior, middle = float(np.log(p / (1 - p))), (2 * p - 1) * D / 2
    least, excess = 1 + D * p * (1 - p), (prior + middle) ** 2 / D

    rows = model.sample(n, random_state, context=0)
    ell = model.residual_score(rows.Z)
    by_conditional, by_zero, by_completion = (
        _squared_movement(m, rows.Z, model.metric) for m in (conditional, zero, completion)
    )
    return {
        "probability of source 1": _entry(model.p[0], p, "caption", rows.source),
        "separation": _entry(model.D, D, "caption and eq. (8)"),
        "evidence of the context": _entry(model.evidence[0], prior, "section 5"),
        "mean residual score": _entry(model.mean_score[0] - model.evidence[0], middle, "section 5", ell),
        "variance of the residual score": _entry(
            w @ model.covariance[0] @ w, D + D**2 * p * (1 - p), "appendix A.3", (ell - middle) ** 2
        ),
        "conditional target": _entry(model.mean_score[0], prior + middle, "theorem 1", prior + ell),
        "cost of conditional": _entry(cost["conditional"], least, "eq. (9)", by_conditional),
        "cost of zero": _entry(cost["zero"], least + excess, "eq. (9)", by_zero),
        "cost of mean": _entry(cost["mean"], None, "as zero, for E[s] = 0 with balanced sources"),
        "cost of completion": _entry(cost["completion"], r + D * p * (1 - p), "section 5", by_completion),
        "excess of zero": _entry(
            cost["zero"] - cost["conditional"], excess, "eq. (10)", by_zero - by_conditional
        ),
        "excess of zero at p = 1/2": _entry(even["zero"][0] - even["conditional"][0], 0, "theorem 1"),
        "excess of completion": _entry(
            cost["completion"] - cost["conditional"], r - 1, "appendix A.4", by_completion - by_conditional
        ),
        "directions untouched": _entry(np.linalg.matrix_rank(linear_part(conditional)), r - 1, "section 5"),
        "separation left by conditional": _entry(separation_left(model, conditional), 0, "theorem 1"),
        "separation left by zero": _entry(separation_left(model, zero), 0, "theorem 1"),
        "separation left by completion": _entry(separation_left(model, completion), 0, "appendix A.1"),
        "separation left by half a step": _entry(separation_left(model, half), D, "appendix A.5"),
        "determinant of half a step": _entry(np.linalg.det(linear_part(half)), 0.5, "appendix A.5"),
        "bits in the context": _entry(context_information(model), None, "eq. (2), first term"),
        "bits in the gate before": _entry(information(model.p[0], model.D), None, "eq. (2), second term"),
        "bits in the gate after": _entry(
            information(model.p[0], separation_left(model, conditional)), 0, "eq. (2), second term"
        ),
        "context moved by LEACE of (q, z), in variances": _entry(
            expected_movement(leace, mean, covariance, context_only), None, "not in the paper"
        ),
    }


def _entry(ours: Any, paper: float | None, where: str, draws: Any = None) -> dict[str, Any]:
    return {
        "ours": float(ours),
        "paper": None if paper is None else float(paper),
        "difference": None if paper is None else float(ours) - float(paper),
        "where": where,
        "simulated": None if draws is None else float(np.mean(draws)),
        "error": None if draws is None else float(np.std(draws) / np.sqrt(len(draws))),
    }


def _squared_movement(mapping: AffineMap, Z: Floats, metric: Floats) -> Floats:
    step = mapping.transform(Z) - Z
    return np.asarray(np.einsum("ni,ij,nj->n", step, metric, step))


def curves() -> dict[str, Floats]:
    """Return the costs of theorem 1: against the target at the caption's setting, and against D.

    Returns
    -------
    dict of name to array
        ``target`` (t,) and its ``cost`` (t,); ``separation`` (s,), ``p`` (k,), and in ``excess`` (k, s) what
        aiming at zero costs more than the conditional target.

    Examples
    --------
    >>> drawn = curves()
    >>> float(drawn["target"][drawn["cost"].argmin()].round(2)), drawn["excess"].shape
    (2.59, (3, 121))
    """
    model = gaussian_model()
    target = np.linspace(-1.5, 6.5, 801)
    moments = model.mean[0], model.covariance[0], model.metric
    cost = np.array([expected_movement(target_map(model, a), *moments) for a in target])
    p, separation = np.array([0.6, CAPTION_P, 0.95]), np.geomspace(0.1, 100, 121)
    excess = []
    for D in separation:
        by_target = costs(gaussian_model(p, means=np.sqrt(D) * np.array(CAPTION_MEANS) / 2))
        excess.append(by_target["zero"] - by_target["conditional"])
    return {"target": target, "cost": cost, "separation": separation, "p": p, "excess": np.array(excess).T}


def figure() -> Any:
    """Draw figure 2, its points drawn from the model and moved by the package's maps; return the figure."""
    model = gaussian_model()
    with style():
        made, [a, b, c] = canvas(None, PAGE, 2.2, 3, 3, width_ratios=[1.15, 1, 1])
        _embedding_panel(a, model)
        _block_panel(b, model)
        _target_panel(c, model)
        for ax, letter, title in (
            (a, "a", "Where: the gate from pairs"),
            (b, "b", "What: along δ, or the whole block"),
            (c, "c", "How far: which target"),
        ):
            ax.set_title(rf"$\bf{{{letter}}}$  {title}", loc="left", pad=5)
    return made


def cost_figure() -> Any:
    """Draw what targets cost (eq. (9)) and what aiming at zero adds (eq. (10)); return the figure."""
    model, drawn = gaussian_model(), curves()
    cost = {name: float(values[0]) for name, values in costs(model).items()}
    with style():
        made, [left, right] = canvas(None, PAGE, 2.2, 2, 2)
        left.plot(drawn["target"], drawn["cost"], color=INK)
        left.axhline(cost["completion"], color=COMPLETION, ls=(0, (4, 3)), lw=0.9)
        words = f"whole block, {cost['completion']:.2f}"
        _say(left, words, (2.6, cost["completion"]), (0, 3), color=COMPLETION)
        least = float(model.mean_score[0])
        left.plot(0, cost["zero"], "o", color=ZERO, ms=5)
        left.plot(least, cost["conditional"], "o", color=CONDITIONAL, ms=5)
        _say(left, f"zero, {cost['zero']:.2f}", (0, cost["zero"]), (7, 0), ha="left", color=ZERO)
        words = f"conditional mean, {cost['conditional']:.2f}"
        _say(left, words, (least, cost["conditional"]), (0, -12), color=CONDITIONAL)
        left.set(xlabel="Target of the score $a(q)$", ylabel="Expected squared movement")
        left.set(xlim=(-1.5, 6.5), ylim=(1, 6))
        for p, excess in zip(drawn["p"], drawn["excess"], strict=True):
            right.plot(drawn["separation"], excess, color=ZERO)
            _say(right, f"$p={p:g}$", (drawn["separation"][-1], excess[-1]), (3, 0), ha="left", va="center")
        right.plot(model.D, cost["zero"] - cost["conditional"], "o", color=ZERO, ms=5)
        right.set(xscale="log", yscale="log", ylim=(0.05, 200), xlim=drawn["separation"][[0, -1]])
        right.set(xlabel="Separation of the sources $D$", ylabel="Excess of aiming at zero")
        for ax, letter in ((left, "a"), (right, "b")):
            grid(ax, "y")
            ax.set_title(rf"$\bf{{{letter}}}$", loc="left", pad=5)
    return made


def write_figure(folder: Any, formats: Iterable[str] = ("pdf", "svg", "png")) -> list[Path]:
    """Write both figures, in every format, and the numbers as JSON; return the paths."""
    made = {"theory_geometry": figure(), "theory_costs": cost_figure()}
    paths = save_figures(made, folder, formats)
    numbers = json.dumps(figure_numbers(), indent=2) + "\n"
    return [*paths, write_atomically(Path(folder) / "theory_numbers.json", numbers.encode())]


def _arrow(ax: Any, ends: Any, color: str, width: float = 0.8, **options: Any) -> None:
    shape = {"arrowstyle": "-|>,head_length=.28,head_width=.14", "shrinkA": 0, "shrinkB": 0} | options
    ax.annotate("", ends[1], ends[0], arrowprops=shape | {"color": color, "lw": width}, zorder=2.5)


def _embedding_panel(ax: Any, model: GaussianModel) -> None:
    """Draw pairs, their contrasts, and the closed form moving a new input; Q upward, the gate lying flat."""

    def flat(*H: Any) -> Floats:
        q, one, two = np.array(H, np.float64).T
        return np.column_stack([one + 0.5 * two, 1.7 * q + 0.55 * two])

    # Five trials, at places where they can be told apart, recorded twice.
    first = np.array([[-0.8, -2.9, 0], [-0.5, 0.6, 0], [0.05, -2.5, 0], [0.35, 0.8, 0], [0.85, -2.6, 0]])
    one, other = model.record_twice(len(first), random_state=12)
    contrasts = other - one
    rows = model.sample(20_000)
    fitted = ClosedFormMGPA.paper(MeasurementGate(rank=2), standardize=False)
    fitted.fit(rows.H, source=rows.source, pairs=(first, first + contrasts))

    floor = -2.05
    gate = flat(*((floor, x, y) for x, y in ((-2.6, -1.3), (3.0, -1.3), (3.0, 1.5), (-2.6, 1.5))))
    ax.fill(*gate.T, fc="#f4f4f4", ec=FAINT, lw=0.7, zorder=0)
    foot = np.array([floor, -1.2, 0])
    for k, contrast in enumerate(contrasts):
        ends = flat(first[k], first[k] + contrast)
        ax.plot(*ends.T, color=MUTED, ls=(0, (3, 2)), lw=0.8, zorder=1)
        for u, end in enumerate(ends):
            ax.plot(*end, "os"[u], mfc="white", mec=SOURCE_COLORS[u], ms=3.6, mew=0.9)
            if k == 0:
                _say(ax, f"$U={u}$", end, (0, -10), color=SOURCE_COLORS[u])
        _arrow(ax, flat(foot, foot + contrast), "#a6a6a6")
    mean = flat(foot, foot + contrasts.mean(0))
    _arrow(ax, mean, INK, 1.5)
    _say(ax, r"$\widehat{\delta}$", mean[1], (11, 0), va="center")
    _say(ax, "gate $BZ$", gate[0], (7, 3), ha="left", color=MUTED)

    h = np.array([1.0, 2.7, 0])
    here, there = flat(h, fitted.transform(h[None])[0])
    _arrow(ax, (here, there), CONDITIONAL, 1.3, shrinkA=3, shrinkB=3)
    ax.plot(*here, "o", color=INK, ms=4)
    ax.plot(*there, "o", color=CONDITIONAL, ms=4)
    _say(ax, "$h$", here, (0, 4))
    _say(ax, "$h'$", there, (0, 4), color=CONDITIONAL)
    axis = flat((floor, -3.3, -1.3), (1.2, -3.3, -1.3))
    _arrow(ax, axis, MUTED)
    _say(ax, "$Q$", axis[1], (0, 2), color=MUTED)
    ax.set(aspect="equal", xlim=(-4.3, 3.9), ylim=(-4.3, 2.5), anchor="N")
    ax.axis("off")


def _slice_panel(ax: Any, Z: Floats, source: NDArray[np.int64]) -> None:
    for u in (0, 1):
        ax.plot(*Z[source == u].T, "os"[u], mfc="white", mec=SOURCE_COLORS[u], ms=3.6, mew=0.9, zorder=3)
    ax.set(
        xlim=(-3.1, 3.4), ylim=(-2.4, 2.75), xticks=[-2, 0, 2], yticks=[-2, 0, 2], aspect="equal", anchor="N"
    )
    ax.set(xlabel=r"$z_1$, along the device direction $\delta$", ylabel="$z_2$")


def _block_panel(ax: Any, model: GaussianModel) -> None:
    """Draw rows of three groups before, moved along δ only, and replaced by one point."""
    Z, source, edges = _slice_rows()
    selective = target_map(model, model.mean_score[0]).transform(Z)
    whole = completion_map(model).transform(Z)
    bounds = (-2.1, *edges, 2.1)
    for name, low, high in zip("ABC", bounds[:-1], bounds[1:], strict=True):
        ax.axhspan(low + 0.04, high - 0.04, color="#f4f4f4", lw=0, zorder=0)
        ax.text(-3.0, (low + high) / 2, f"group {name}", color=MUTED, va="center", fontsize=6.5)
    for start, along, onto in zip(Z, selective, whole, strict=True):
        ax.plot(*np.array([start, onto]).T, color=COMPLETION, lw=0.7, ls=(0, (1, 1.5)), zorder=1)
        _arrow(ax, (start, along), CONDITIONAL, 0.7, shrinkA=2, shrinkB=1.5)
    ax.plot(*selective.T, "o", color=CONDITIONAL, ms=2.8, zorder=3)
    ax.plot(*whole[0], "*", color=COMPLETION, ms=10, mec="white", mew=0.6, zorder=4)
    _slice_panel(ax, Z, source)
    _say(ax, "selective", (0.6, 2.2), (0, 2), color=CONDITIONAL)
    _say(ax, "whole block", (3.4, 2.2), (0, 2), ha="right", color=COMPLETION)


def _target_panel(ax: Any, model: GaussianModel) -> None:
    """Draw the same slice with the levels of two targets, and the way of some rows to each."""
    cost = {name: float(values[0]) for name, values in costs(model).items()}
    Z, source, _ = _slice_rows()
    Z, source = Z[::2], source[::2]
    turn = np.linspace(0, 2 * np.pi, 100)
    for u, side in ((0, -0.5), (1, 0.5)):
        center = model.m[0] + side * model.delta
        circle = center + np.column_stack([np.cos(turn), np.sin(turn)]) @ np.linalg.cholesky(model.Sigma).T
        ax.fill(*circle.T, fc=SOURCE_COLORS[u], alpha=0.1, lw=0, zorder=0)
        _say(ax, f"$U={u}$", center + np.array([side, -1]), (0, -8), color=SOURCE_COLORS[u])
    target = float(model.mean_score[0])
    for level, color, side, align, words in (
        (0.0, ZERO, -1, "right", f"zero\ncost {cost['zero']:.2f}"),
        (target, CONDITIONAL, 1, "left", f"$\\mu(q)={target:.2f}$\ncost {cost['conditional']:.2f}"),
    ):
        moved, lift = target_map(model, level).transform(Z), np.array([0, 0.06 * side])
        ax.axvline(moved[0, 0], ymax=0.98, color=color, lw=1.1)
        _say(ax, words, (moved[0, 0], 2.65), (3 * side, 0), ha=align, va="top", color=color)
        for start, end in zip(Z + lift, moved + lift, strict=True):
            _arrow(ax, (start, end), color, 0.7, shrinkA=2)
    _slice_panel(ax, Z, source)


def _slice_rows() -> tuple[Floats, NDArray[np.int64], tuple[float, float]]:
    """Return fifteen rows, at even quantiles of the drawn context's law, and where the thirds of z₂ meet."""
    from scipy.stats import norm

    n = 15
    source = (np.arange(n) % 5 > 0).astype(np.int64)  # one in five is of source 0: p = .8
    first = np.zeros(n)
    for u in (0, 1):
        count = int((source == u).sum())
        order = np.random.default_rng(7).permutation(count)
        first[source == u] = (2 * u - 1) + norm.ppf((order + 0.5) / count)
    second = norm.ppf((np.arange(n) + 0.5) / n)
    third = float(norm.ppf(1 / 3))
    return np.column_stack([first, second]), source, (third, -third)


def _say(ax: Any, words: str, at: Any, offset: tuple[float, float], **options: Any) -> None:
    options = {"ha": "center", "fontsize": 7} | options
    ax.annotate(words, at, offset, textcoords="offset points", **options)
