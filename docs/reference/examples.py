"""Examples of names whose docstring has none, as they stand on the pages of the API; run from top to bottom.

Each section begins with the names on whose pages it is shown.
"""

# ruff: noqa: B018, E402
# [before all]
import numpy as np

import mgpa
from mgpa.tables import simulate_table

table = simulate_table(24)
fit = table.rows("FIT")
model = mgpa.MGPA().fit(fit.X, source=fit.source, pair_id=fit.pair_id)
m = model.to_map()
first, second = fit.paired_views()
contrasts = fit.X[second] - fit.X[first]

# [mgpa.coordinates.Coordinates]
coordinates = mgpa.coordinates.fit_coordinates(fit.X, n_components=8)
coordinates.transform(table.X).shape  # (rows, 8)

# [mgpa.maps.CorrectionMap mgpa.maps.PosteriorMap mgpa.maps.MapInfo]
m = model.to_map()
corrected = m.transform(table.X)
print(m.info.method, m.info.n_rows, m.info.n_contrasts)
print(m.check(table.X))  # are these rows like those it was fitted on?

# [mgpa.gate.FullGate mgpa.gate.PCAGate mgpa.gate.RandomGate]
control = mgpa.ClosedFormMGPA(mgpa.gate.RandomGate(rank=1, random_state=0))  # or PCAGate(rank=1), FullGate()
control.fit(fit.X, source=fit.source, pair_id=fit.pair_id)
control.gate_.rank_

# [mgpa.gate.held_out_coverage]
mgpa.gate.held_out_coverage(contrasts, groups=fit.participant[first])[:3]  # of gates of rank 1, 2, 3

# [mgpa.JointTokens mgpa.transform_tokens]
tokens = simulate_table(20, tokens=3)
rows = tokens.rows("FIT")
joint = mgpa.JointTokens(mgpa.ClosedFormMGPA()).fit(rows.X, source=rows.source, pair_id=rows.pair_id)
mgpa.transform_tokens(joint.to_map(), tokens.X).shape  # (rows, tokens, features)

# [mgpa.errors.MapError]
from pathlib import Path

Path("damaged.safetensors").write_bytes(b"not a map")
try:
    mgpa.load_map("damaged.safetensors")
except mgpa.errors.MapError as error:
    print(error)

# [mgpa.maps.ProjectiveMap]
from mgpa.baselines import make_method

erasure = make_method("igbp", n_stages=2, random_state=0).fit(fit.X, source=fit.source).to_map()
erasure[:1]  # after one stage: a map, too

# [mgpa.maps.StagedMap mgpa.maps.SequentialMap]
iterative = mgpa.IterativeMGPA(random_state=0).fit(fit.X, source=fit.source, pair_id=fit.pair_id)
staged = iterative.to_map()
len(staged)  # stages; staged[:1] is a map of the first

# [mgpa.maps.RoutedMap]
from mgpa.baselines import make_method

routed = make_method("coral").fit(fit.X, source=fit.source).to_map()
routed.transform(table.X, source=table.source)
routed.for_source("dry").transform(table.X[table.source == "dry"])

# [mgpa.tables.Columns]
columns = {"source": np.array(["dry", "wet"]), "participant": np.array(["p1", "p1"])}
mgpa.tables.Table(np.zeros((2, 3)), **columns)

# [mgpa.tables.TableError]
try:
    mgpa.tables.Table(np.zeros((2, 3)), source=["dry"])
except (mgpa.tables.TableError, ValueError) as error:
    print(error)

# [mgpa.tables.TableFile mgpa.tables.write_table mgpa.tables.TableWriter]
mgpa.tables.write_table(table, "recordings.parquet", overwrite=True)
file = mgpa.tables.open_table("recordings.parquet")  # nothing but the head is read
same = file.read()

# [mgpa.tables.check_table mgpa.tables.rows_for]
print(mgpa.tables.check_table(m, "recordings.parquet"))
mgpa.tables.rows_for(m, table).X.shape

# [mgpa.tables.apply_to_file]
m.save("m.safetensors", overwrite=True)
mgpa.tables.apply_to_file(m, "recordings.parquet", "corrected.parquet", overwrite=True)  # how many rows

# [mgpa.audit.Audit mgpa.audit.MethodResult mgpa.audit.run]
result = mgpa.audit.run(table, ["leace", "closed_form_mgpa"], readers={"restarts": 0}, folds=1, verbose=False)
print(result)
result["leace"].estimate("S")  # with its interval
result.contrast("closed_form_mgpa", "leace", metric="S")

# [mgpa.audit.Metric mgpa.audit.METRICS]
mgpa.audit.find_metric("T_f").title

# [mgpa.audit.PairCheck]
check = mgpa.audit.check_pairs(fit)
print(check.verdict)

# [mgpa.audit.SourceInformation]
head, new = table.rows("HEAD"), table.rows("EVAL")
gate = np.linalg.svd(contrasts, full_matrices=False)[2][:1].T
bits = mgpa.audit.source_information(
    head.X, head.source, new.X, new.source, new.participant, gate, restarts=0
)
bits.preserved.mean(), bits.editable.mean()

# [mgpa.audit.run_readers_on_each]
head, new = table.rows("HEAD"), table.rows("EVAL")
before, after = mgpa.audit.run_readers_on_each(
    [head.X, m.transform(head.X)], head.source, [new.X, m.transform(new.X)], restarts=0
)

# [mgpa.audit.run_token_readers mgpa.audit.run_residual_readers]
tokens = simulate_table(20, tokens=3)
head, new = tokens.rows("HEAD"), tokens.rows("EVAL")
scores = mgpa.audit.run_token_readers(head.X, head.source, new.X, restarts=0)

# [mgpa.audit.ridge_head]
head = table.rows("HEAD")
mgpa.audit.ridge_head(alpha=10.0).fit(head.X, head.label)

# [mgpa.audit.transfer_scores]
head, new = table.rows("HEAD"), table.rows("EVAL")
heads = mgpa.audit.fit_heads(head.X, head.label, head.source)
mgpa.audit.transfer_scores(heads, new.X, new.source)

# [mgpa.audit.fit_association_heads]
head = table.rows("HEAD")
a, b = head.paired_views()
shortcut, control = mgpa.audit.fit_association_heads(head.X[a], head.X[b], head.label[a], head.participant[a])

# [mgpa.audit.curve_coefficients]
mgpa.audit.curve_coefficients([0.4, 0.6, 0.9])  # a, b, c of aξ² + bξ + c

# [mgpa.audit.identity_auroc]
head, new = table.rows("HEAD"), table.rows("EVAL")
mgpa.audit.identity_auroc(head.X, head.participant, new.X, new.participant)

# [mgpa.audit.twin_accuracy]
scores = np.array([[0.1, 0.9, 0.4, 0.6]])[..., None]  # two events, seen by both devices; one reader
codes, events, participant = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), np.zeros(4, int)
mgpa.audit.twin_accuracy(scores[0], codes, events, participant)

# [mgpa.audit.plots.draw_all mgpa.audit.plots.save_figures mgpa.audit.plots.looks]
from mgpa.audit import plots

plots.save_figures(plots.draw_all(result), "figures", formats=["pdf"])

# [mgpa.audit.plots.plot_tradeoff mgpa.audit.plots.plot_readers mgpa.audit.plots.plot_association
# mgpa.audit.plots.plot_differences mgpa.audit.plots.plot_embedding mgpa.audit.plots.plot_pairs
# mgpa.audit.plots.plot_participants]
from mgpa.audit import plots

figure = plots.plot_tradeoff(result)  # the others alike, or result.plot("participants", "S")
figure.savefig("tradeoff.pdf")

# [mgpa.audit.plots.plot_gate]
wavelengths = tuple(f"{1100 + 10 * i} nm" for i in range(table.X.shape[1]))
named = mgpa.tables.Table(table.X, **table.columns, info={"feature_names": wavelengths})
audit = mgpa.audit.run(named, ["closed_form_mgpa"], readers={"restarts": 0}, folds=1, verbose=False)
figure = plots.plot_gate(audit)

# [mgpa.baselines.ConditionalDependence]
from mgpa.baselines import circe

circe(table.X[:200], table.source[:200], table.label[:200], random_state=0).p_value

# [mgpa.baselines.MethodTable]
from mgpa.baselines import list_methods

[method.name for method in list_methods() if method.needs_pairs]

# [mgpa.baselines.SourceSplit]
from mgpa.baselines import split_source_difference

print(split_source_difference(fit.X, fit.source, pair_id=fit.pair_id))

# [mgpa.baselines.task_scores mgpa.baselines.AwAR]
from mgpa.baselines import AwAR, task_scores

dry, wet = fit.take(fit.source == "dry"), fit.take(fit.source == "wet")
decoder = AwAR().fit(dry.X, dry.label, X_target=wet.X)
task_scores(decoder, table.X, table.label, table.source)

# [mgpa.baselines.CIRCEHead mgpa.baselines.transfer_scores]
from mgpa.baselines import CIRCEHead

head, new = table.rows("HEAD"), table.rows("EVAL")
decoder = CIRCEHead(n_epochs=2, random_state=0, device="cpu")
decoder.fit(head.X, head.label, source=head.source).predict(new.X)

# [mgpa.baselines.SlopeBias]
from sklearn.linear_model import Ridge

from mgpa.baselines import SlopeBias

dry = fit.take(fit.source == "dry")
values = dry.X[:, 0]  # a number to predict
calibrated = Ridge().fit(dry.X, values)
corrected = SlopeBias(calibrated, reference="dry").fit(
    fit.X, fit.X[:, 0], source=fit.source, pair_id=fit.pair_id
)
corrected.predict(table.X, source=table.source)

# [mgpa.baselines.SDDA]
from mgpa.baselines import SDDA

rng = np.random.default_rng(0)
signals, labels = rng.normal(size=(40, 4, 64)), np.tile([0, 1], 20)
SDDA(n_epochs=1, random_state=0, device="cpu").fit(signals, labels, X_target=rng.normal(size=(20, 4, 64)))

# [mgpa.eeg.Trials mgpa.eeg.crop mgpa.eeg.zscore_channels mgpa.eeg.as_trials]
from mgpa import eeg

signals = 1e-6 * np.random.default_rng(0).normal(size=(6, 3, 500))  # trials, channels, samples; in volts
columns = {"source": ["dry", "wet"] * 3, "participant": ["p1"] * 6, "label": [0, 0, 1, 1, 0, 0]}
trials = eeg.Trials(signals, ["Oz", "O1", "O2"], 250.0, columns=columns)
eeg.zscore_channels(eeg.crop(trials, 0, 250))

# [mgpa.eeg.TemporalBins mgpa.eeg.WindowedPower mgpa.eeg.Encoder]
features = eeg.encode(trials, eeg.TemporalBins(stop=0.5))  # WindowedPower() gives tokens
features.X.shape

# [mgpa.eeg.timing_test]
clock = np.arange(20) * 1.5
eeg.timing_test(clock, 1.0001 * clock + 0.25)  # drift and offset of the second clock

# [mgpa.eeg.TorchEncoder]
import torch

network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 500, 8))
encoder = eeg.TorchEncoder(
    network, ["Oz", "O1", "O2"], 500, sfreq=250.0, tokens=lambda module, x: module(x)[:, None], device="cpu"
)
eeg.encode(trials, encoder).X.shape

# [mgpa.eeg.table_from_epochs mgpa.eeg.align_devices mgpa.eeg.align_like mgpa.eeg.PairingReport]
import mne
import pandas as pd

mne.set_log_level("error")
channels = mne.create_info(["Oz", "O1", "O2"], 250.0, "eeg")


brain = (
    1e-5
    * np.random.default_rng(9).normal(size=(48, 3, 250))
    * np.random.default_rng(8).uniform(0.2, 2, (48, 3, 1))
)


def recorded(seed):
    """Return six epochs of each of eight participants; yours come from mne.Epochs."""
    signals = brain + 1e-6 * np.random.default_rng(seed).normal(size=brain.shape)
    facts = pd.DataFrame({"event": [*range(6)] * 8, "onset": [0.0, 2.0, 4.5, 6.0, 8.1, 10.0] * 8})
    facts["participant"] = np.repeat([f"p{i}" for i in range(8)], 6)
    facts["label"] = facts.event % 2
    return mne.EpochsArray(signals, channels, metadata=facts)


devices = {"cap": recorded(0), "headset": recorded(1)}
trials_of_both, report = eeg.align_devices(devices)
print(report)
from_epochs = eeg.table_from_epochs(devices, encoder=eeg.BandPower())
eeg.align_like(devices["headset"], from_epochs)  # new epochs, as the table's were

# [mgpa.eeg.table_from_raws mgpa.eeg.table_from_bids]
demo = eeg.demo.demo_table  # reads continuous recordings with table_from_raws:
eeg.demo.write_demo("recordings", n_people=8, n_events=4)
from_raws = demo("recordings")  # table_from_bids(root, encoder=…, …) reads a BIDS data set

# [mgpa.eeg.from_moabb]
# MOABB downloads the data:
# from moabb.datasets import Kalunga2016
# from moabb.paradigms import SSVEP
# trials = eeg.from_moabb(Kalunga2016(), SSVEP(n_classes=2), subjects=[1, 2])

# [mgpa.paper.Study mgpa.paper.presets mgpa.paper.plan_study]
from mgpa import paper

study = paper.load_study("controlled-ssvep")
print(study.title, *study.methods, sep="\n")

# [mgpa.paper.StudyError mgpa.paper.run_study mgpa.paper.StudyResult mgpa.paper.write_results]
try:
    paper.load_study("no such study")
except paper.StudyError as error:
    print(error)
# result = paper.run_study(study, Path("workspace"))   hours; see "Studies"
# paper.write_results(result, Path("report"))

# [mgpa.paper.Transport mgpa.paper.fit_transport mgpa.paper.virtual_views mgpa.paper.calibration_subset
# mgpa.paper.read_wearable_ssvep mgpa.paper.simulate_ssvep]
paper.simulate_ssvep("simulated", n_people=2, blocks=2)  # in the files of the public data set
ssvep = paper.read_wearable_ssvep("simulated", blocks=2)
chosen = paper.calibration_subset(ssvep.columns["participant"], ssvep.columns["source"], 40, random_state=0)
calibration = ssvep.take(chosen)
transport = paper.fit_transport(calibration)
[name for name, _ in paper.virtual_views(calibration, transport)]

# [mgpa.paper.read_neuroscan_flex mgpa.paper.simulate_flex]
paper.simulate_flex("flex", participants=["1013"], tasks=["N170"], n_events=12)
flex, pairing = paper.read_neuroscan_flex("flex", "N170", ["1013"])
print(pairing)

# [mgpa.paper.load_checkpoint]
import safetensors.torch
import torch

network = torch.nn.Linear(3, 2)
safetensors.torch.save_file(network.state_dict(), "weights.safetensors")
paper.load_checkpoint(network, "weights.safetensors")  # all weights, or an error
