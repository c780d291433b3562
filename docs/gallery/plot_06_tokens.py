"""
Tokens: their mean, all of them, or one by one
==============================================

Transformer encoders return a sequence of tokens for every event, not one vector. There are three ways to
correct them, each around any estimator of this package:

- :class:`mgpa.TokenMean` fits a correction on the tokens' mean and shifts all tokens of an event alike, as
  published. Differences between tokens, and with them everything that happens *within* the event, stay as
  they were to the last bit but rounding.
- :class:`mgpa.JointTokens` corrects all tokens of an event together, as one long vector. What single tokens
  tell about the source goes too.
- :class:`mgpa.PerToken` corrects every token by a map of its own, which cannot see the other tokens.

What the first promises is also its limit. Both are shown here, and what the others make of it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa.audit import plots
from mgpa.audit.plots import SOURCE_COLORS
from mgpa.tables import assign_roles

# %%
# The data
# --------
# Eight tokens of 16 features an event. The wet headset shifts all tokens in one direction. In a second
# version of the same data it also drifts: the later the token, the larger the shift.

T, D = 8, 16
rng = np.random.default_rng(0)
axes = np.linalg.qr(rng.normal(size=(D, D)))[0]
person = np.repeat(np.arange(60), 20)
role = assign_roles(person, random_state=1)
y = np.tile([0, 1], len(person) // 2)
response = np.hanning(T)[:, None] * axes[3]  # the task is a bump in the middle of the event
content = rng.normal(size=(len(person), T, D)) + 1.2 * y[:, None, None] * response
content += 0.5 * rng.normal(size=(len(person), 1, D))  # each event has a level of its own


def measured(drift):
    """Return both headsets' tokens of every event."""
    shift = 1.5 + drift * np.linspace(-1, 1, T)
    noise = 0.1 * rng.normal(size=(2, *content.shape))
    return content + noise[0], content + noise[1] + shift[:, None] * axes[0]


# %%
# Fit on FIT people. As everywhere, the map is one small file and takes no source.

dry, wet = measured(drift=0.0)
fit = role == "FIT"
X = np.concatenate([dry[fit], wet[fit]])
source = np.repeat(["dry", "wet"], fit.sum())
pair_id = np.tile(np.flatnonzero(fit), 2)
tokens = mgpa.TokenMean(mgpa.ClosedFormMGPA()).fit(X, source=source, pair_id=pair_id)
print(tokens.to_map().summary())

# %%
# The promise
# -----------
# Within-event differences, before and after, over all EVAL rows:

evaluated = wet[role == "EVAL"]
corrected = tokens.transform(evaluated)
within = [Z - Z.mean(axis=1, keepdims=True) for Z in (evaluated, corrected)]
print(f"largest change of a within-event difference: {np.abs(within[1] - within[0]).max():.1e}")
moved = (corrected - evaluated)[0] @ axes[0]
print("shift of the first event's tokens along the device direction:", np.round(moved, 3))

# %%
# The limit
# ---------
# A reader that looks at all tokens sees more than their mean. Three of them, trained on HEAD and scored on
# EVAL: one is given the token mean, one all tokens, one only the *differences* from the mean, which no
# common shift can change.


def looks(Z):
    """Return what each reader is given."""
    mean = Z.mean(axis=1)
    return {
        "token mean": mean,
        "all tokens": Z.reshape(len(Z), -1),
        "differences": (Z - mean[:, None]).reshape(len(Z), -1),
    }


def readable(correct, views):
    """Return the headset AUROC of every reader."""
    parts = {}
    for part in ("HEAD", "EVAL"):
        Z = np.concatenate([correct(view[role == part]) for view in views])
        parts[part] = looks(Z), np.repeat([0, 1], (role == part).sum())
    found = {}
    for name in parts["HEAD"][0]:
        reader = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
        reader.fit(parts["HEAD"][0][name], parts["HEAD"][1])
        found[name] = roc_auc_score(parts["EVAL"][1], reader.decision_function(parts["EVAL"][0][name]))
    return found


cases = {"constant shift": (dry, wet), "shift that drifts": measured(drift=1.0)}
results = {}
for name, views in cases.items():
    X = np.concatenate([view[fit] for view in views])
    model = mgpa.TokenMean(mgpa.ClosedFormMGPA()).fit(X, source=source, pair_id=pair_id)
    results[name] = readable(np.asarray, views), readable(model.transform, views), model
    for reader in results[name][0]:
        print(f"{name:<18} {reader:<12} {results[name][0][reader]:.3f} -> {results[name][1][reader]:.3f}")

with plots.style():
    figure, panels = plt.subplots(2, 2, figsize=(plots.PAGE, 4.0), layout="constrained", sharex="col")
    chosen = role == "EVAL"
    for (left, right), (name, views) in zip(panels, cases.items(), strict=True):
        before, after, model = results[name]
        for view, s, color in zip(views, ("dry", "wet"), SOURCE_COLORS, strict=False):
            for Z, line, width in ((view[chosen], ":", 1.2), (model.transform(view[chosen]), "-", 1.8)):
                word = f"{s}, {'before' if line == ':' else 'after'}"
                left.plot(
                    range(1, T + 1), (Z @ axes[0]).mean(axis=0), line, lw=width, color=color, label=word
                )
        left.set_ylabel("Mean along device direction")
        left.set_title(name.capitalize(), loc="left", fontweight="bold")
        changes = {reader: (before[reader], after[reader]) for reader in before}
        plots.plot_changes(changes, right, xlabel="", legend=None)
        right.set_xlim(0.4, 1.03)
    panels[1, 0].legend(loc="upper left")
    panels[0, 1].legend(loc="lower right")
    panels[1, 0].set_xlabel("Token")
    panels[1, 1].set_xlabel("Headset AUROC")

# %%
# With a constant shift the lines of both headsets fall together, and no reader finds the headset. With a
# drift the means coincide and the lines cross: what remains is a difference *within* events. The reader of
# differences finds the headset exactly as well as before, and the reader of all tokens no worse than that
# one.
#
# All tokens together
# -------------------
# The same data with the drift, corrected in the two other ways:

views = cases["shift that drifts"]
X = np.concatenate([view[fit] for view in views])
for ways in (mgpa.TokenMean, mgpa.JointTokens, mgpa.PerToken):
    model = ways(mgpa.ClosedFormMGPA(anchor="within")).fit(X, source=source, pair_id=pair_id)
    read = readable(model.transform, views)
    print(f"{ways.__name__:<12}" + "".join(f"{name} {area:.3f}   " for name, area in read.items()))

# %%
# How far to trust this
# ---------------------
# Look at readers of differences before you rely on a shift of the mean; :mod:`mgpa.audit` has them for tables
# of tokens and reports them apart. If they find the source, a common shift is not enough, and
# :class:`mgpa.JointTokens` is the way. There are then many more numbers than rows, which the closed form with
# ``anchor="within"`` does not mind: it works with products of rows, so 200 rows of 60 tokens of 512 features
# need no 30 720 x 30 720 matrix. The price is that what happens within events may change too, where the
# contrasts say so. On tables, ``mgpa fit --tokens joint`` and ``tokens = "joint"`` in a study do the same.

plt.show()
