"""
From CSV to CSV: spectra of a second instrument
===============================================

This example is for users with one CSV file per instrument and a calibration of one instrument. Some samples
were measured on both. The correction is fitted from the files, stored, and applied to new spectra of the
second instrument, so that the calibration is valid for them.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas
from sklearn.cross_decomposition import PLSRegression

import mgpa
from mgpa.audit import plots
from mgpa.tables import apply_to_file, fit_table, open_table

# %%
# Two files
# ---------
# The simulated spectra have a protein band, a correlated water band, and a baseline. The field instrument has
# a gain of .9, a tilted baseline and a wavelength error of 4 nm.

rng = np.random.default_rng(0)
NM = np.arange(1100, 2500, 20)
protein = rng.uniform(6, 14, size=120)
water = 20 - 0.6 * protein + rng.normal(size=120)


def absorbance(nm):
    """Return the spectra of all samples on a wavelength scale."""
    bands = [
        (protein / 40, 1510, 60),
        (protein / 60, 2180, 50),
        (water / 60, 1940, 70),
        (water / 90, 1450, 60),
    ]
    peaks = sum(height[:, None] * np.exp(-0.5 * ((nm - at) / width) ** 2) for height, at, width in bands)
    return 0.4 + 0.2 * (nm - 1100) / 1400 + peaks


def write(name, spectra):
    """Write spectra as a CSV file: the sample's name, protein, and a column for each wavelength."""
    frame = pandas.DataFrame(spectra + 0.002 * rng.normal(size=spectra.shape), columns=[str(nm) for nm in NM])
    frame.insert(0, "sample", [f"s{i:03d}" for i in range(len(frame))])
    frame.insert(1, "protein", protein.round(2))
    frame.to_csv(name, index=False, float_format="%.5f")
    return frame


folder = Path(tempfile.mkdtemp())
lab = write(folder / "lab.csv", absorbance(NM))
field = write(folder / "field.csv", 0.9 * absorbance(NM + 4) + 0.00005 * (NM - 1100))
print(lab.iloc[:2, :5].to_string())

# %%
# The first 40 samples were measured on both instruments. The name of a file is the source of its rows, and
# every sample is both a pair and a participant.

for name in ("lab", "field"):
    pandas.read_csv(folder / f"{name}.csv").head(40).to_csv(folder / f"{name}-both.csv", index=False)
both = open_table(
    [folder / "lab-both.csv", folder / "field-both.csv"],
    embedding=f"{NM[0]}:{NM[-1]}",
    rename={"sample": "pair_id+participant"},
).read()
print(both)

# %%
# Fit, store, apply
# -----------------
# The map stores the names of its features, so ``apply_to_file`` finds them in the new file. It writes a CSV
# file with the same columns. On the command line, use ``mgpa fit`` and ``mgpa apply``.

model = fit_table(mgpa.MGPA(reference="lab-both"), both)
m = mgpa.load_map(model.to_map().save(folder / "field-to-lab.safetensors"))
apply_to_file(m, folder / "field.csv", folder / "field-corrected.csv")
corrected = pandas.read_csv(folder / "field-corrected.csv")
print(m.summary())

# %%
# The calibration on new samples
# ------------------------------
# Partial least squares was fitted on the laboratory spectra of the same 40 samples. The other 80 samples are
# new.

columns = [str(nm) for nm in NM]
calibration = PLSRegression(4).fit(lab[columns][:40], protein[:40])
predicted = {
    name: calibration.predict(frame[columns][40:]).ravel()
    for name, frame in {"laboratory": lab, "field": field, "field, corrected": corrected}.items()
}
for name, values in predicted.items():
    print(f"{name:<18}root mean squared error {np.sqrt(np.mean((values - protein[40:]) ** 2)):.2f} % protein")

# %%
# Spectra and predictions
# -----------------------

looks = {
    "laboratory": (plots.SOURCE_COLORS[0], "-", "o"),
    "field": (plots.SOURCE_COLORS[1], "--", "s"),
    "field, corrected": (plots.SOURCE_COLORS[1], "-", "D"),
}
frames = {"field": field, "field, corrected": corrected}
with plots.style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(plots.PAGE, 2.6), layout="constrained")
    for name, frame in frames.items():
        color, line, _ = looks[name]
        difference = frame[columns][40:].to_numpy() - lab[columns][40:].to_numpy()
        left.plot(NM, difference.mean(axis=0), line, color=color, label=name)
    left.axhline(0, color=looks["laboratory"][0], lw=0.9, label="laboratory")
    left.set(xlabel="wavelength (nm)", ylabel="absorbance − laboratory's")
    left.legend(loc="lower right")
    for name, values in predicted.items():
        color, _, marker = looks[name]
        face = "white" if name == "field" else color
        right.plot(protein[40:], values, marker, ms=3, mew=0.7, color=color, mfc=face, label=name)
    right.plot([6, 14], [6, 14], color="#777777", ls=":", lw=0.9)
    right.set(xlabel="protein (%)", ylabel="predicted (%)")
    right.legend(loc="lower right")

# %%
# How far to trust this
# ---------------------
# All samples come from one population. :doc:`../../studies/corn` has real spectra of three instruments, with
# an audit over samples.

plt.show()
