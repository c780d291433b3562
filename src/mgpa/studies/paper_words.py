"""The paper's tables of words, 4 to 6: how studies are set up, there and here."""

from __future__ import annotations

from inspect import signature

from .config import load_study
from .paper_layout import CONTROLLED, N170, RECORDED, REUSE, Line, PaperTable
from .paper_numbers import Runs

NOTHING = "–"


def protocol_table(runs: Runs) -> PaperTable:
    """Return the paper's protocol map (table 4) with what was found here beside it."""
    paper = {
        CONTROLLED: ("Controlled SSVEP", "pooled EEGPT512; same-trial CAR/Oz contrasts; 90 % energy, ranks "
                     "3, 3, 3, 2; four rotations, 81 EVAL people"),
        N170: ("Temporal N170", "240 temporal features; simultaneous pairs; 90 % energy, rank 56; people "
               "4/2/4/10"),
        RECORDED: ("Recorded SSVEP", "mean512, 15 × 512 read out; six virtual contrasts; 99 % energy, rank "
                   "328; people 41/20/20/21"),
        REUSE: ("P300-selected reuse", "EEGPT/PCA256; 400 calibration pairs, rank 8; people 4/2/4/8"),
    }  # fmt: skip
    lines = []
    for study, (title, said) in paper.items():
        found = runs.results.get(study)
        ours = NOTHING
        if found is not None:
            p = found["protocol"]
            people = "/".join(str(p["participants"][role]) for role in ("FIT", "VAL", "HEAD", "EVAL"))
            ranks = ", ".join(map(str, p["ranks"])) or NOTHING
            data = "simulated recordings" if found["simulated"] else "recordings"
            features = " × ".join(map(str, p["features"]))
            ours = f"{data}; {features} features ({p['encoder']}); ranks {ranks}; people {people}"
        lines.append(Line((title,), (said, ours)))
    return PaperTable("4", "Protocol map", ("Study",), ("Paper", "Here"), tuple(lines))


def settings_table() -> PaperTable:
    """Return the paper's shared settings (table 5) and ours, read off the published recipes and presets."""
    from ..audit.bootstrap import draws
    from ..closed_form import ClosedFormMGPA
    from ..critics import HIDDEN_WIDTH
    from ..iterative import IterativeMGPA

    controlled, reuse = load_study(CONTROLLED), load_study(REUSE).methods["MGPA-Iter"].parameters
    p, cf = IterativeMGPA.paper().get_params(), ClosedFormMGPA.paper().get_params()
    bootstrap = {name: p.default for name, p in signature(draws).parameters.items()}
    seeds = ", ".join(map(str, controlled.seeds))
    rows_ = (
        ("Iterative fits / horizon", "seeds 17, 29, 43; at most 48 stages",
         f"seeds {seeds}; at most {p['n_stages']} stages"),
        ("Source critics", "balanced logistic (C = 1); GELU MLP, hidden width 128",
         f"{' and '.join(p['critics'])}; hidden width {HIDDEN_WIDTH}"),
        ("Conditional-mean anchor", "ridge with intercept, penalty 10",
         f"ridge with intercept, penalty {p['ridge']:g} (iterative), {cf['ridge']:g} (closed form)"),
        ("Gradient stabilizer / damping", ".1 / .001", f"{p['stabilizer']:g} / {p['damping']:g}"),
        ("Controlled and real-representation fits", "12 critic epochs, LR .001, radius .05 √d",
         f"{p['critic_epochs']} critic epochs, LR {p['learning_rate']:g}, radius {p['radius']:g} √d"),
        ("P300 reuse fits", "at most 100 epochs, LR .0003, source-VAL patience 10, radius .025 √d",
         f"at most {reuse['critic_epochs']} epochs, LR {reuse['learning_rate']:g}, source-VAL patience "
         f"{reuse['patience']}, radius {reuse['radius']:g} √d"),
        ("Closed-form residual covariance", ".01 shrinkage", f"{cf['shrinkage']:g} shrinkage"),
        ("Participant uncertainty", "20,000 percentile bootstrap resamples, seed 1101",
         f"{bootstrap['n_draws']:,} percentile bootstrap resamples, seed {bootstrap['seed']}"),
    )  # fmt: skip
    lines = tuple(Line((name,), (paper, ours)) for name, paper, ours in rows_)
    return PaperTable("5", "Shared MGPA settings", ("Component",), ("Paper", "Here"), lines)


def readers_table() -> PaperTable:
    """Return the paper's bank of source readers (table 6) and ours."""
    from ..audit.readers import SHRINKAGE
    from ..critics import HIDDEN_WIDTH

    bank = load_study(CONTROLLED).readers
    networks = f"{bank.restarts} restarts at {'/'.join(map(str, bank.checkpoints))} epochs"
    rows_ = (
        ("Common representation (11)", "ordinary and whitened logistic (C = 1, shrinkage .01); GELU MLP of "
         "width 128, three restarts at 12/50/200 epochs",
         f"linear and whitened linear (shrinkage {SHRINKAGE:g}); GELU of width {HIDDEN_WIDTH}, {networks}"),
        ("Direct full tokens (20)", "raw and standardized logistic; flat GELU; token network",
         f"raw and standardized linear; flat GELU and token network, {networks}"),
        ("Centered token residuals (10)", "standardized logistic and token network",
         f"standardized linear and token network, {networks}"),
    )  # fmt: skip
    lines = tuple(Line((name,), (paper, ours)) for name, paper, ours in rows_)
    return PaperTable("6", "Independent source-reader bank", ("Input",), ("Paper", "Here"), lines)
