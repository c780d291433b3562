"""Turn a study's recordings, real or simulated, into cached embedding tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..._common.progress import waiting
from ...audit.store import installed, key_of, resolve_device, versions
from ...errors import StudyError
from ...estimators.tokens import token_mean
from ...tables.files import open_table, write_table
from ...tables.table import Table
from .config import FIXED, EncoderSection, Study

# Increase this number when a change of code changes the tables of the same settings.
TABLE_VERSION = 2
# Virtual views: strengths of the shift toward the other source, the seed that chooses the trials to shift,
# and the seed that chooses the trials to fit the shift on.
STRENGTHS, VIEWS_SEED, TRANSPORT_SEED = (0.5, 1.0), 20261003, 20261005


class Recordings:
    """The data of a study: files with checksums, trials, and one table of embeddings per task.

    Simulated recordings and finished tables are kept in ``workspace``. Networks run on ``device``. ``info``
    holds the metadata of each table used: its encoder, pairing and excluded rows.
    """

    def __init__(self, study: Study, workspace: Path, *, device: str = "auto", verbose: bool = False) -> None:
        self.study, self.workspace, self.verbose = study, Path(workspace), verbose
        self.device = device
        self.info: dict[str, dict[str, Any]] = {}

    @cached_property
    def folder(self) -> Path:
        """The folder of recordings; if the study names no folder, recordings are simulated first."""
        data = self.study.data
        if data.folder is not None:
            return data.folder
        folder = self.workspace / "recordings" / key_of(data.kind, data.simulate, data.tasks)[:12]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if data.kind == "wearable_ssvep":
                from ..simulate.ssvep import simulate_ssvep

                simulate_ssvep(folder, verbose=self.verbose, **data.simulate)
            else:
                from ..simulate.erp import simulate_flex

                simulate_flex(folder, tasks=data.tasks, verbose=self.verbose, **data.simulate)
        except TypeError as error:
            raise StudyError(f"data.simulate does not fit the simulator: {error}.") from None
        return folder

    @cached_property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each input file, by its path below the folder, and of the encoder's weights."""
        if self.study.data.kind == "table":
            path = Path(str(self.study.data.table))
            root = path if path.is_dir() else path.parent
            files = list(path.rglob("*")) if path.is_dir() else [path]
        else:
            root = self.folder
            # Hidden files come from a file manager or an interrupted simulation.
            visible = (
                p for p in root.rglob("*") if not any(s.startswith(".") for s in p.relative_to(root).parts)
            )
            files = [p for p in visible if p.suffix != ".json"]
        checksums = {str(p.relative_to(root)): sha256_of(p) for p in sorted(files) if p.is_file()}
        weights = self.study.encoder and self.study.encoder.checkpoint
        if weights and weights != "paper":
            checksums[f"checkpoint {Path(weights).name}"] = sha256_of(Path(weights))
        return checksums

    @cached_property
    def origin(self) -> str:
        """The origin of the files: "published", "simulated", "table", or differences from published files."""
        data = self.study.data
        if data.kind == "table":
            return "table"
        if self.study.simulated or self._inventory.simulated:
            return "simulated"
        from ..datasets.catalogue import beside_published

        missing, checks = self._inventory.missing, self._inventory.checks
        problems = [f"{len(missing)} published files are missing"] if missing else []
        problems += [beside_published(what, *pair) for what, pair in checks.items() if pair[0] != pair[1]]
        return "; ".join(problems) or "published"

    @cached_property
    def _inventory(self) -> Any:
        from ..datasets.catalogue import verify_dataset

        return verify_dataset(self.study.data.kind, self.folder, self.study.data.tasks or None)

    def people(self) -> Table:
        """Return one row per recorded participant, without features and without reading recordings."""
        # Files have names such as "1013 N170 flex" or "S001.mat".
        names = {name.split()[0].removesuffix(".mat") for name in self._inventory.present}
        who = sorted(name for name in names if any(map(str.isdigit, name)))
        return Table(np.zeros((len(who), 1)), participant=who, other=self._about(who))

    def _about(self, who: Any) -> dict[str, Any]:
        """Return facts about participants by which roles can be stratified."""
        if self.study.data.kind != "wearable_ssvep" or not len(who):
            return {}
        from ..datasets.wearable_ssvep import subjects

        facts = subjects(self.folder)
        return {name: [facts[person][name] for person in who] for name in ("gender", "first_electrode")}

    def table(self, task: str = "") -> Table:
        """Return the embeddings of one task: raw features with all metadata of each row."""
        if self.study.data.kind == "table":
            table = open_table(str(self.study.data.table)).read().require("source", "participant")
        else:
            # Tasks that differ only in their labels share one table.
            key = self._key("table", task if task in self.study.data.tasks else "")
            table = self._kept(key, lambda: self._embed(self._views(self.trials(task))))
        self.info[task] = table.info
        return self._labelled(table, task)

    def _key(self, what: str, which: Any) -> str:
        """Return the cache key of a table: all inputs that determine its numbers, without file locations."""
        # Networks round differently on different devices.
        network = self.study.encoder is not None and self.study.encoder.name not in FIXED
        device = resolve_device(self.device) if network else None
        hidden: Any = {"data": {"folder", "table", "labels"}, "encoder": {"checkpoint"}}
        settings = self.study.model_dump(mode="json", include={"data", "views", "encoder"}, exclude=hidden)
        libraries = versions(), reader_versions()
        return key_of(what, TABLE_VERSION, *libraries, self.checksums, settings, device, which)

    def virtual_pairs(self, roles: Mapping[str, str]) -> Table:
        """Return trials of FIT participants paired with their virtual views toward the other source."""
        fit = sorted(person for person, role in roles.items() if role == "FIT")
        return self._kept(self._key("virtual", fit), lambda: self._embed_virtual(fit))

    def _kept(self, key: str, make: Any) -> Table:
        path = self.workspace / "tables" / f"{key}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_table(make(), path, overwrite=True)
        return open_table(path).read()

    def _labelled(self, table: Table, task: str) -> Table:
        """Return the table with the column that holds the labels of this task."""
        for name, wanted in self.study.data.labels.items():
            if wanted not in table.columns:
                columns = ", ".join(table.columns)
                raise StudyError(f"data.labels: no column {wanted!r} for {name!r}. Columns: {columns}.")
        column = self.study.data.labels.get(task)
        if column is None:
            return table
        other = {name: values for name, values in table.other.items() if name != column}
        return replace(table, label=table.columns[column], other=other)

    def trials(self, task: str = "") -> Any:
        """Return the trials of a task as recorded."""
        data = self.study.data
        if data.kind == "wearable_ssvep":
            from ..datasets import wearable_ssvep

            blocks = data.simulate.get("blocks", wearable_ssvep.BLOCKS) if self.study.simulated else 10
            trials = wearable_ssvep.read_wearable_ssvep(
                self.folder, electrodes=data.electrodes, blocks=blocks, verbose=self.verbose
            )
            return trials.with_columns(**self._about(trials.columns["participant"]))
        from ..datasets import neuroscan_flex

        trials, report = neuroscan_flex.read_neuroscan_flex(
            self.folder, task, artifact=data.artifact, verbose=self.verbose
        )
        about = {"pairing": str(report)}
        if data.artifact is not None:
            clean = ~trials.columns["artifact"]
            about["left_out"] = f"{int((~clean).sum())} of {len(trials)} rows beyond {data.artifact:g} V"
            trials = trials.take(clean)
        return replace(trials, info=trials.info | about)

    def _views(self, trials: Any) -> Any:
        """Return the views of trials: apply EEG references, then crop and scaling."""
        from ...eeg.views import crop, measure_views, rereference, zscore_channels

        plan = self.study.views
        if plan.references:
            measured = {name: partial(rereference, reference=ref) for name, ref in plan.references.items()}
            trials = measure_views(trials, measured)
        if plan.crop is not None:
            trials = crop(trials, *plan.crop)
        return zscore_channels(trials) if plan.zscore else trials

    def _embed(self, trials: Any) -> Table:
        from ...eeg.trials import encode

        section = self.study.encoder
        assert section is not None
        with waiting("study: embedding trials", self.verbose):
            table = encode(trials, make_encoder(section, trials, self.device), verbose=self.verbose)
        X = table.X
        if X.ndim == 2:
            return table
        X = token_mean(X) if section.pool else X.reshape(len(X), -1) if section.flatten else X
        made = {"pooled": section.pool, "flattened": section.flatten}
        return replace(table, X=X, info=table.info | {"encoder": table.info["encoder"] | made})

    def _embed_virtual(self, fit: list[str]) -> Table:
        from ..transport import calibration_subset, fit_transport, virtual_views

        plan = self.study.views.transport
        assert plan is not None
        trials = self.trials()
        fitting = trials.take(np.isin(trials.columns["participant"], fit))
        who, source = fitting.columns["participant"], fitting.columns["source"]
        transport = fit_transport(
            fitting.take(calibration_subset(who, source, plan.fit_trials, TRANSPORT_SEED))
        )
        chosen = fitting.take(calibration_subset(who, source, plan.trials, VIEWS_SEED))
        recorded = self._embed(self._views(chosen))
        sources = np.unique(source)
        # In each pair, the first view is from the first source.
        forward = (recorded.source == sources[0]).reshape(-1, *[1] * (recorded.X.ndim - 1))
        parts = []
        moved = virtual_views(chosen, transport, STRENGTHS, power_once=plan.power_once)
        for i, (name, view) in enumerate(moved):
            embedded = self._embed(self._views(view))
            sides = np.where(forward, (recorded.X, embedded.X), (embedded.X, recorded.X))
            n = len(recorded.X)
            parts.append(
                Table(
                    np.concatenate(sides),
                    source=np.repeat(sources, n),
                    participant=np.tile(recorded.participant, 2),
                    pair_id=np.tile(np.arange(n) + i * n, 2),
                    other={"view": np.full(2 * n, name)},
                    info=recorded.info,
                )
            )
        return Table.concatenate(parts)


def make_encoder(section: EncoderSection, trials: Any, device: str = "auto") -> Any:
    """Return the study's encoder, set up for the channels and length of these trials."""
    from ...eeg import features

    try:
        if section.name in FIXED:
            return getattr(features, FIXED[section.name])(**section.parameters)
        from ..encoder import EEGPT_WEIGHTS, eegpt

        parameters = {"device": device} | section.parameters
        n_times = parameters.pop("n_times", trials.data.shape[2])
        checkpoint = EEGPT_WEIGHTS if section.checkpoint == "paper" else section.checkpoint
        return eegpt(trials.channels, n_times, checkpoint=checkpoint, **parameters)
    except TypeError as error:
        raise StudyError(f"encoder.parameters do not fit {section.name}: {error}.") from None


def reader_versions() -> dict[str, str]:
    """Return the versions of libraries that read and embed recordings, without those of the audit."""
    return installed("mne", "braindecode")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
