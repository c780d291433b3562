"""Settings of a study: data, roles, gate, methods and seeds.

Studies are written in TOML. This module checks each section before anything is computed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...audit.metrics import find_metric

#: Packaged studies with their own figures in the paper, and the tasks of the reuse study.
CONTROLLED, REUSE = "controlled-ssvep", "p300-reuse"
TASKS = ("P300", "N170", "MMN")
#: Encoders that are not networks, with their classes in :mod:`mgpa.eeg.features`.
FIXED = {"temporal_bins": "TemporalBins", "band_power": "BandPower", "windowed_power": "WindowedPower"}

Texts = tuple[str, ...]
Integers = tuple[int, ...]


class Section(BaseModel):
    """A section of a study; unknown keys raise an error."""

    # Participants may be named by numbers.
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class DataSection(Section):
    """The source of the rows.

    ``kind`` names a public data set, stored in its provider's file format, or is ``"table"`` for a file of
    embeddings. Recordings without a ``folder`` are simulated with the parameters in ``simulate``.
    """

    kind: Literal["wearable_ssvep", "neuroscan_flex", "table"]
    folder: Path | None = None
    table: Path | None = None
    tasks: Texts = ()
    electrodes: Texts = ("dry", "wet")
    artifact: float | None = None
    labels: dict[str, str] = {}
    simulate: dict[str, Any] = {}

    @model_validator(mode="after")
    def _complete(self) -> DataSection:
        if self.kind == "table" and self.table is None:
            raise ValueError("kind = 'table' needs table = 'file.parquet' (or .npz, .csv)")
        if self.kind == "neuroscan_flex" and not self.tasks:
            raise ValueError("neuroscan_flex needs tasks, as tasks = ['N170']")
        if len(self.labels) > 1 and "label" in self.labels.values():
            raise ValueError("with several labels, none may be called 'label'; rename that column")
        if (self.folder if self.kind == "table" else self.table) is not None:
            raise ValueError("kind = 'table' takes table, recordings take folder; give only that one")
        return self

    @property
    def named_tasks(self) -> tuple[str, ...]:
        """Names of the tasks; ("",) if none is named."""
        return self.tasks or tuple(self.labels) or ("",)


class TransportSection(Section):
    """Virtual views toward the other source, for data in which no event was recorded twice."""

    trials: int = 1024
    fit_trials: int = 4096
    power_once: bool = True


class ViewsSection(Section):
    """The views of each trial: EEG references, crop and scaling."""

    references: dict[str, str] = {}
    crop: tuple[int, int] | None = None
    zscore: bool = False
    transport: TransportSection | None = None


class EncoderSection(Section):
    """The encoder that turns signals into embeddings, and its ``parameters``."""

    name: Literal["eegpt", "temporal_bins", "band_power", "windowed_power"]
    checkpoint: str | None = None
    pool: bool = False
    flatten: bool = False
    parameters: dict[str, Any] = {}


class RolesSection(Section):
    """The roles of participants, given as lists of participants or as rotating folds.

    Without lists or folds, the roles in the table are used. Without roles in the table, 40 % of participants
    are FIT, and VAL, HEAD and EVAL get 20 % each.
    """

    people: dict[Literal["FIT", "VAL", "HEAD", "EVAL"], Texts] = {}
    folds: int = 5
    rotations: Integers = ()
    stratify: Texts = ()
    seed: int = 0

    @model_validator(mode="after")
    def _one_way(self) -> RolesSection:
        if self.people and self.rotations:
            raise ValueError("give people or rotations (of folds), not both")
        return self


class EndpointsSection(Section):
    """Views of an event in a study: contrasts scaled by ``gamma``, and one view per FIT or VAL event."""

    gamma: float = 1.0
    association: float | None = None
    cells: Texts = ()
    seed: int = 20260903


class CoordinatesSection(Section):
    """Standardised principal components, fitted on all FIT rows or on the FIT rows of one source."""

    components: int | None = None
    source: str | None = None
    floor: float | None = None
    dtype: Literal["float32", "float64"] = "float64"


class GateSection(Section):
    """The gate: a rank, a share of the contrasts' energy, or "auto" for the rank that the pairs support."""

    rank: int | float | Literal["auto"] = 0.9
    norm_quantile: float = 0.05
    max_contrasts: int | None = None
    tokens: bool = False
    pairs: int | None = None
    pairs_seed: int = 0


class MethodSection(Section):
    """One arm of a study: a method, its parameters, and the operating point at which it is compared."""

    method: str
    parameters: dict[str, Any] = {}
    gate: Literal["measurement", "pca", "random", "full"] = "measurement"
    gate_seeds: Integers = ()
    tokens: Literal["mean", "joint", "each"] = "mean"
    budget: float | None = None
    pairs: Literal["contrasts", "endpoints"] = "contrasts"
    grid: dict[str, list[Any]] = {}

    @model_validator(mode="after")
    def _random(self) -> MethodSection:
        if (self.gate == "random") != bool(self.gate_seeds):
            raise ValueError("gate_seeds is required for gate = 'random', and only there")
        if self.tokens != "mean" and self.gate != "measurement":
            raise ValueError("control gates are made for the token mean; leave tokens out")
        return self


class ReadersSection(Section):
    """The source readers; the defaults are those of the paper."""

    bank: Literal["paper", "full"] = "paper"
    restarts: int = 3
    checkpoints: Integers = (12, 50, 200)
    seed: int = 98


class ReuseSection(Section):
    """Select each correction on development participants of one task; apply it unchanged to other tasks."""

    development: str
    tasks: Texts
    calibration: int = 100
    fit_seed: int = 2017
    development_seed: int = 3017
    labels: dict[str, str] = {}

    @model_validator(mode="after")
    def _among(self) -> ReuseSection:
        if self.development not in self.tasks:
            raise ValueError(f"development is {self.development!r}, which is not among tasks")
        return self


class NeedsSection(Section):
    """Measured needs of the study: gigabytes of disk space and of memory."""

    disk: float = 0.0
    memory: float = 0.0


class ContrastSection(Section):
    """A declared contrast: method a minus method b, with the paper's result (value, low, high)."""

    a: str
    b: str = "identity"
    metrics: Texts = ("S", "T_f", "T_r", "M")
    paper: dict[str, Annotated[list[float], Field(min_length=3, max_length=3)]] = {}

    @model_validator(mode="after")
    def _metrics(self) -> ContrastSection:
        for name in self.metrics:
            find_metric(name)
        return self


class Study(Section):
    """All settings that determine the numbers of a study."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    title: str
    about: str = ""
    data: DataSection
    views: ViewsSection = ViewsSection()
    encoder: EncoderSection | None = None
    roles: RolesSection = RolesSection()
    endpoints: EndpointsSection = EndpointsSection()
    coordinates: CoordinatesSection = CoordinatesSection()
    gate: GateSection = GateSection()
    methods: dict[str, MethodSection]
    seeds: Integers = (17, 29, 43)
    readers: ReadersSection = ReadersSection()
    reuse: ReuseSection | None = None
    contrasts: tuple[ContrastSection, ...] = ()
    paper: dict[str, dict[str, float]] = {}
    needs: NeedsSection = NeedsSection()
    overlays: Texts = ()

    @model_validator(mode="after")
    def _encoded(self) -> Study:
        data = self.data
        if data.kind != "table" and self.encoder is None:
            raise ValueError("recordings need an [encoder]")
        if self.encoder is not None and self.encoder.checkpoint is not None and self.encoder.name in FIXED:
            raise ValueError(f"{self.encoder.name} takes no weights; omit encoder.checkpoint")
        if data.kind == "table" and (self.encoder is not None or self.views != ViewsSection()):
            raise ValueError("a table holds embeddings already; leave [encoder] and [views] out")
        return self

    @model_validator(mode="after")
    def _named(self) -> Study:
        if "identity" in self.methods:
            raise ValueError("'identity' is always measured; leave it out of [methods]")
        names = sorted({"identity", *self.methods})
        for name in (name for contrast in self.contrasts for name in (contrast.a, contrast.b)):
            if name not in names:
                raise ValueError(f"contrasts name {name!r}; the methods are {', '.join(names)}")
        return self

    @model_validator(mode="after")
    def _reusable(self) -> Study:
        data, reuse, tasks = self.data, self.reuse, self.data.named_tasks
        if reuse is None:
            if len(data.tasks) > 1:
                raise ValueError(f"{', '.join(data.tasks)}: only [reuse] has several recorded tasks")
        elif not set(reuse.tasks) <= set(tasks):
            raise ValueError(f"reuse.tasks are {', '.join(reuse.tasks)}; the data have {', '.join(tasks)}")
        elif self.endpoints != EndpointsSection() or self.views.transport or self.gate.tokens:
            raise ValueError("[reuse] takes no [endpoints], [views.transport] or gate.tokens")
        for name, method in self.methods.items():
            if reuse is None and method.grid:
                raise ValueError(f"methods.{name}.grid: only [reuse] chooses among recipes")
            if reuse is not None and (method.pairs != "contrasts" or method.budget is not None):
                raise ValueError(f"methods.{name}: [reuse] chooses pairs and budget itself; omit both")
        return self

    @property
    def description(self) -> str:
        """The description of the study, with its numbers filled in."""
        return self.about.replace("{gamma}", f"{100 * self.endpoints.gamma:g} %")

    @property
    def simulated(self) -> bool:
        """Whether the recordings are simulated."""
        return self.data.kind != "table" and self.data.folder is None
