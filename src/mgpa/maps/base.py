"""The base of all maps: provenance, checks, strength, tokens, files and exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from .._common.arrays import is_tensor
from .._common.checks import as_float_matrix, refuse_masked, require_finite, require_output
from .._common.extras import missing
from .._common.markup import facts_html
from .._common.remote import Given, Place, as_place
from ..errors import MapError, first_few, printable
from ..labels import to_numpy
from .check import FittedRange, RowCheck, check_rows
from .population import Population

if TYPE_CHECKING:
    from ..coordinates import Coordinates
    from .monitor import Monitor

Floats = NDArray[Any]
KINDS: dict[str, type[CorrectionMap]] = {}  # filled as the classes are defined


@dataclass(frozen=True, kw_only=True)
class MapInfo:
    """The provenance of a map. It never changes a corrected row; names and tokens only reject other input.

    A :class:`~mgpa.maps.RoutedMap` also finds its sources here.

    Attributes
    ----------
    parameters, changed : dict, tuple of str
        The estimator's settings, and the names of those that were not its defaults.
    feature_names : tuple of str or None
        Names of the features, where they have some; with coordinates, of the raw ones if there are as many.
    people : tuple of str
        Digests of the names of those it was fitted on.
    row_sample : str
        Digests of some of their rows, as :func:`mgpa.tables.rows.encode_sample` writes them.
    n_tokens, token_layout : int or None, {"mean", "joint"}
        Tokens a row had in the fit, and which of them are the map's features: those of their mean, or all,
        one token after another.
    constant_features : tuple of int
        Positions of the features that never varied in the fit. Their scale is 1, they are never edited, and
        they do not count in the size that movement is relative to.
    source_column : str
        What the user's table called the sources ("hospital"); empty if unknown.
    signals : dict
        How the signals were recorded and prepared: channels, rate, window, band, baseline, reference.
    evidence : str
        What the fit found before it acted, and whether it did.
    doubt : str
        What is doubtful about the pairs; :meth:`CorrectionMap.summary` begins with it.
    reference : str
        The source that rows are taken to; empty where that is the mean of all, or for methods without one.
    """

    method: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    random_state: int | None = None
    feature_names: tuple[str, ...] | None = None
    constant_features: tuple[int, ...] = ()
    source_names: tuple[str, ...] = ()
    source_column: str = ""
    n_rows: int | None = None
    n_contrasts: int | None = None
    fingerprint: str | None = None
    gate_rank: int | None = None
    gate_energy: float | None = None
    n_tokens: int | None = None
    token_layout: str = "mean"
    encoder: dict[str, Any] = field(default_factory=dict)
    signals: dict[str, Any] = field(default_factory=dict)
    people: tuple[str, ...] = ()
    row_sample: str = ""
    library_version: str = __version__
    evidence: str = ""
    doubt: str = ""
    notes: str = ""
    reference: str = ""


def gate_words(info: MapInfo) -> str:
    """Return the rank of a map's gate and its share of the contrasts, in words."""
    energy = "" if info.gate_energy is None else f", {info.gate_energy:.1%} of contrast energy"
    return f"rank {info.gate_rank}{energy}"


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectionMap:
    """Base of all stored corrections: x ↦ x + strength · displacement(x).

    Attributes
    ----------
    center, scale : arrays of shape (d,)
        The standardisation the correction was fitted in. Input and output are in the user's own units.
    strength : float
        How much of the displacement is applied; 1 is the fitted correction and values above 1 overshoot it.
    info : MapInfo
        Provenance: method, parameters, fitting-data fingerprint, encoder, versions, notes.
    coordinates : Coordinates or None
        How raw features become the embeddings that this map corrects; see :meth:`from_raw`.
    fitted : FittedRange or None
        What the fitting rows were like, for :meth:`check`.
    population : Population or None
        The fitted devices and participants, for :meth:`check`, :meth:`monitor` and :meth:`adapt`.
    """

    center: Floats
    scale: Floats
    strength: float = 1.0
    info: MapInfo = field(default_factory=MapInfo)
    coordinates: Coordinates | None = None
    fitted: FittedRange | None = None
    population: Population | None = None
    # Prepared forms (per dtype, per torch device); rebuilt on demand, never copied or stored.
    _cache: dict[Any, Any] = field(default_factory=dict, init=False)

    kind: ClassVar[str]
    source_blind: ClassVar[bool] = True
    # Its arrays besides center and scale, by their axes: a letter is one size everywhere, d that of features.
    shapes: ClassVar[dict[str, str]]
    tensor_names: ClassVar[tuple[str, ...]]
    optional_tensors: ClassVar[tuple[tuple[str, ...], ...]] = ()  # of each group all are there, or none
    scalar_names: ClassVar[tuple[str, ...]]
    no_export: ClassVar[str] = ""  # why a map has no torch module and no ONNX form

    def __init_subclass__(cls) -> None:
        optional = set(chain(*cls.optional_tensors))
        named = (name for name in getattr(cls, "shapes", ()) if name not in optional)
        cls.tensor_names = ("center", "scale", *named)
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        for group in self.optional_tensors:
            absent = [name for name in group if getattr(self, name) is None]
            if absent and len(absent) < len(group):
                raise MapError(f"{', '.join(absent)} missing; expected all of {', '.join(group)}.")
        for name, array in self.tensors.items():
            array = np.asarray(array)
            if array.dtype not in (np.float32, np.float64):
                raise MapError(f"{name} has dtype {array.dtype}; a map holds float32 or float64 arrays.")
            if not np.isfinite(array).all():
                raise MapError(f"{name} holds NaN or infinite values.")
            if array.flags.writeable or not array.flags.c_contiguous or array.base is not None:
                # C order, so that a reloaded map rounds exactly as this one; a copy, so that it stays frozen.
                array = np.array(array, order="C")
                array.flags.writeable = False
            object.__setattr__(self, name, array)
        for name in self.scalar_names:
            value = getattr(self, name)
            if not isinstance(value, float) or not np.isfinite(value):
                raise MapError(f"{name} must be a finite number; got {value!r}.")
        if not self.n_features:
            raise MapError("A map needs at least one feature.")
        self._require_shapes()
        if not (self.scale > 0).all():
            raise MapError("scale must be positive everywhere.")
        if self.strength < 0:
            raise MapError(f"strength must not be negative; got {self.strength!r}.")
        self._require_info()

    def _require_shapes(self) -> None:
        """Raise unless every array has the axes that ``shapes`` says."""
        sizes = {"d": self.n_features}
        for name, array in self.tensors.items():
            forms = [form.split() for form in self.shapes.get(name, "d").split(" or ")]
            axes = next((form for form in forms if len(form) == array.ndim), forms[0])
            expected = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
            same = [sizes.setdefault(axis, n) == n for axis, n in zip(axes, array.shape, strict=False)]
            if array.ndim != len(axes) or not all(same):
                raise MapError(f"{name} has shape {array.shape}; expected ({expected}).")

    def _require_shape(self, name: str, shape: tuple[int, ...]) -> None:
        actual = getattr(self, name).shape
        if actual != shape:
            raise MapError(f"{name} has shape {actual}; expected {shape}.")

    def _require_info(self) -> None:
        """Raise unless names, tokens, ranges and coordinates are those of this many features."""
        d, info = self.n_features, self.info
        if info.feature_names is not None and len(info.feature_names) not in (d, self.n_raw):
            raise MapError(f"{len(info.feature_names)} feature names for {d} features.")
        constant = info.constant_features
        if any(type(i) is not int or not 0 <= i < d for i in constant) or len(set(constant)) != len(constant):
            positions = first_few(list(map(repr, constant)), 4)
            raise MapError(
                f"constant_features are {positions}; expected distinct integers (int), 0 to {d - 1}."
            )
        if info.token_layout not in ("mean", "joint"):
            raise MapError(f"token_layout is {info.token_layout!r}; expected 'mean' or 'joint'.")
        joint = info.token_layout == "joint"
        if joint and (info.n_tokens is None or info.n_tokens < 1 or d % info.n_tokens):
            raise MapError(f"token_layout is 'joint', but {info.n_tokens} tokens cannot have {d} features.")
        width = d // (info.n_tokens or 1) if joint else d
        if self.fitted is not None and self.fitted.features.shape[1] != d:
            raise MapError(f"The fitted ranges have {self.fitted.features.shape[1]} features, the map {d}.")
        if self.population is not None and len(self.population.center) != d:
            raise MapError(f"The population has {len(self.population.center)} features, the map {d}.")
        if self.coordinates is not None and self.coordinates.n_coordinates != width:
            raise MapError(f"The map has {width} features, its coordinates {self.coordinates.n_coordinates}.")

    @property
    def tensors(self) -> dict[str, Floats]:
        """The map's arrays by name."""
        names = (*self.tensor_names, *chain(*self.optional_tensors))
        return {name: array for name in names if (array := getattr(self, name)) is not None}

    @property
    def n_features(self) -> int:
        """Number of features of the embeddings that this map corrects."""
        return int(self.center.size)

    @property
    def n_raw(self) -> int:
        """Number of raw features: that of the embedding, unless the map has coordinates."""
        return self.n_features if self.coordinates is None else self.coordinates.n_raw

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Which features varied in the fit, shape (d,): all but ``info.constant_features``."""
        varies = np.ones(self.n_features, dtype=bool)
        varies[list(self.info.constant_features)] = False
        return varies

    def with_strength(self, strength: float) -> Self:
        """Return the same map with another strength (absolute, not a factor on the present one)."""
        other = replace(self, strength=float(strength))
        # What was prepared for numpy does not depend on the strength.
        other._cache.update({k: v for k, v in self._cache.items() if isinstance(k, np.dtype)})
        return other

    def with_notes(self, notes: str) -> Self:
        """Return the same map with free text, which is stored and shown by :meth:`summary`."""
        return replace(self, info=replace(self.info, notes=str(notes)))

    def with_coordinates(self, coordinates: Coordinates | None) -> Self:
        """Return the same map with the coordinates of its embeddings, which are stored with it."""
        return replace(self, coordinates=coordinates)

    def from_raw(self, X: Any, **options: Any) -> Any:
        """Return corrected embeddings of raw features; ``options`` go to :meth:`transform`."""
        if self.coordinates is None:
            raise ValueError("This map has no coordinates: it corrects the features as they are (transform).")
        if hasattr(X, "columns"):
            self._check_feature_names(tuple(X.columns), self.n_raw)
        return self.transform(self.coordinates.transform(X), **options)

    def transform(self, X: Any, *, strength: float | None = None, out: Floats | None = None) -> Any:
        """Correct embeddings; no source label is needed or accepted. Returns the type and kind of X.

        Parameters
        ----------
        X : array of shape (n, d) or (d,), or (n, t, d) where the map was fitted on tokens
            numpy array, anything numpy can read (a pandas frame, a list), or a torch tensor.
        strength : float or None
            Apply this strength instead of the map's own.
        out : array of shape (n, d) or None
            Where to write the corrected rows: a numpy array of the type of X, or X itself. If X has NaN or
            infinite values nothing is written; a correction that overflows leaves it half written.
        """
        if strength is not None and strength != self.strength:
            return self.with_strength(strength).transform(X, out=out)
        if out is None and getattr(X, "shape", None) == (self.n_features,) and not hasattr(X, "index"):
            return self._correct(X[None], self._apply, None)[0]
        return self._correct(X, self._apply, out)

    def warm_up(self, dtype: Any = np.float32) -> Self:
        """Prepare the weights and load or compile code now, not in the first transform.

        Staged maps run compiled where numba is installed: compiling takes several seconds, once on a machine
        (numba keeps the result, ``NUMBA_CACHE_DIR``), and loading half a second in every process.

        ``dtype`` is the type of the rows to come. Returns this map.
        """
        X = as_float_matrix(self.center[None].astype(dtype))
        if self.source_blind:  # maps by source have nothing to prepare
            self._apply(X, np.empty_like(X))
        return self

    def _correct(self, X: Any, apply: Callable[[Floats, Floats], bool], out: Any) -> Any:
        """Correct arrays by ``apply`` and tensors by the map's module; without one, tensors on the CPU."""
        if self._takes_tokens(X):
            if out is not None:
                raise TypeError("out is for rows (n, d); tokens are corrected into a new array. Omit out.")
            rows = self._token_rows(X)
            corrected = self._correct(rows, apply, None)
            joint = self.info.token_layout == "joint"
            return corrected.reshape(X.shape) if joint else X + (corrected - rows)[:, None]
        refuse_masked(X, "X")
        if not is_tensor(X):
            return self._run(X, apply, out)
        if out is not None:
            raise TypeError("out is for numpy arrays; a torch tensor is corrected into a new one. Omit out.")
        if not self.no_export:
            return self._module(X.device)(X)
        from torch import as_tensor

        return as_tensor(self._run(to_numpy(X), apply), device=X.device)

    def _takes_tokens(self, X: Any) -> bool:
        return self.info.n_tokens is not None and getattr(X, "ndim", 2) == 3

    def _token_rows(self, X: Any) -> Any:
        """Return tokens (n, t, d) as rows; raise unless a row has as many as in the fit."""
        n_tokens, layout = self.info.n_tokens, self.info.token_layout
        if X.shape[1] != n_tokens:
            why = " Means over different numbers of tokens differ in distribution." * (layout == "mean")
            raise ValueError(f"X has {X.shape[1]} tokens per row; fitted on {n_tokens}.{why}")
        return token_rows(X, layout)

    def _module(self, device: Any) -> Any:
        if device not in self._cache:
            self._cache[device] = self.to_torch().to(device)
        return self._cache[device]

    def _run(self, X: Any, apply: Callable[[Floats, Floats], bool], out: Floats | None = None) -> Floats:
        """Check rows, correct them by ``apply``, and say what was wrong if the result is not finite."""
        columns = getattr(X, "columns", None)
        if columns is not None:
            self._check_feature_names(tuple(columns), self.n_features)
        X = as_float_matrix(X, n_features=self.n_features)
        if out is None:
            out = np.empty(X.shape, dtype=X.dtype)
        else:
            require_output(out, X)
            require_finite(X, "X")
        if len(X):
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    finite = apply(X, out) if self.strength else copy_rows(X, out)
            except np.linalg.LinAlgError:  # an eigenvalue routine met NaN
                finite = False
            if not finite:
                require_finite(X, "X")
                raise MapError(
                    "The correction overflows: X is many orders of magnitude from the fitting data."
                )
        return out

    def _check_feature_names(self, columns: tuple[Any, ...], width: int) -> None:
        names = self.info.feature_names
        if names is not None and len(names) == width and columns != names:
            here = first_few(list(map(str, columns)), 4)
            raise ValueError(
                f"X has columns {here} but the map was fitted on {first_few(names, 4)}; reorder or select "
                "columns to match. Of a Table, pass table.X."
            )

    def _apply(self, X: Floats, out: Floats) -> bool:
        """Write corrected rows into ``out``, which may be X itself.

        Returns False if any edit is not finite: bad input shows up there.
        """
        raise NotImplementedError

    def _weights(self, dtype: np.dtype[Any]) -> Any:
        """Return the weights in the form and type they are applied in."""
        raise NotImplementedError

    def _prepared(self, dtype: np.dtype[Any]) -> Any:
        if dtype not in self._cache:
            self._cache[dtype] = self._weights(dtype)
        return self._cache[dtype]

    def displacement(self, X: Any, **options: Any) -> Floats:
        """Return how far each row moves, in standardised coordinates: (transform(X) - X) / scale.

        ``options`` go to :meth:`transform`; a source-aware map needs ``source`` there.
        """
        X = as_float_matrix(X, n_features=self.n_features)
        return np.asarray((self.transform(X, **options) - X) / self.scale)

    def check(self, X: Any, source: Any = None) -> RowCheck:
        """Check whether rows are like those that the map was fitted on.

        ``X`` are uncorrected rows, as for :meth:`transform`; ``source`` their sources, if known: names the
        fit never saw are reported. The result prints as sentences and has ``ok`` and ``to_dict()``.

        Examples
        --------
        >>> import numpy as np, mgpa
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 3)); X[::2] += 1.0
        >>> m = mgpa.baselines.LEACE().fit(X, source=np.arange(200) % 2).to_map()
        >>> m.check(X).ok, m.check(X + 9.0).ok
        (True, False)
        """
        rows = self._token_rows(X) if self._takes_tokens(X) else X
        X = as_float_matrix(rows, n_features=self.n_features)
        require_finite(X, "X")
        return check_rows(X, self.fitted, source, self.info, self.population)

    def monitor(self, *, window: int = 200, rate: float = 1e-3) -> Monitor:
        """Return a monitor of a stream of rows: are they of a fitted device, and vary as they should?

        ``rate`` is the share of windows of ``window`` rows that give a false alarm on new participants.

        Examples
        --------
        >>> import numpy as np, mgpa
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 3)); X[::2] += 4.0
        >>> monitor = mgpa.baselines.LEACE().fit(X, source=np.arange(600) % 2).to_map().monitor()
        >>> monitor.update(rng.normal(size=(100, 3))).ok, monitor.update(rng.normal(size=(100, 3)) - 9.0).ok
        (True, False)
        """
        from .monitor import Monitor

        return Monitor(self, window=window, rate=rate)

    def adapt(self, X: Any, name: str = "new", *, n_participants: int = 1) -> CorrectionMap:
        """Return this map with one more device, from a batch of its rows without labels.

        The device's level is estimated, no more: rows are brought to the level of the fitted devices and then
        moved as theirs. It is assumed that the batch has content in the shares of the fit: what other shares
        do to its mean is taken for the device's, beyond what fitted participants differ by.

        Parameters
        ----------
        X : (n, d) array
            Uncorrected rows of the new device, best of several participants.
        name : str
            What to call it.
        n_participants : int
            Of how many participants the rows are: the more, the less of their mean is put down to them.

        Examples
        --------
        >>> import numpy as np, mgpa
        >>> rng = np.random.default_rng(0)
        >>> source = np.arange(600) % 2
        >>> X = rng.normal(size=(600, 3)); X[source == 1] += 4.0
        >>> A = rng.normal(size=(40, 3))
        >>> m = mgpa.MGPA().fit(X, source=source, pairs=(A, A + 4.0)).to_map()
        >>> adapted = m.adapt(rng.normal(size=(200, 3)) - 9.0)
        >>> adapted.info.source_names
        ('0', '1', 'new')
        """
        from .adaptation import adapt

        return adapt(self, X, name, n_participants)

    def add_source(self, name: str, pairs: Any, *, known: str) -> CorrectionMap:
        """Return this map with one more device, from a few events that a fitted device saw too.

        Assumes nothing about content. The level is shrunk toward the fitted devices', and gains and rotations
        are corrected as far as left-out pairs support it.

        Parameters
        ----------
        name : str
            What to call the new device.
        pairs : tuple (A, B) of (m, d) arrays
            Row i of both is the same event: A as the fitted device saw it, B as the new one did.
        known : str
            The fitted device.
        """
        from .adaptation import add_source

        return add_source(self, name, pairs, known)

    def save(self, path: Given, *, overwrite: bool = True) -> Place:
        """Write the map to one safetensors file, atomically: the file is complete or not there.

        ``path`` may be an address such as ``s3://bucket/adapter.safetensors``. Unless ``overwrite``, an
        existing file is an error.
        """
        from .io.mapfile import write_map

        return write_map(self, as_place(path), overwrite=overwrite)

    def to_torch(self) -> Any:
        """Return the map as a ``torch.nn.Module`` (no gradients through its weights; differentiable in X)."""
        if self.no_export:
            raise MapError(f"{self.no_export} transform(tensor) corrects tensors on the CPU.")
        try:
            from .runtime.torch_module import as_module
        except ImportError:
            raise missing("A torch module", "torch") from None
        return as_module(self)

    def to_onnx(self, path: str | Path) -> Path:
        """Write the map as an ONNX model with input ``X`` and output ``Y``, both (n, d) float32."""
        if self.no_export:
            raise MapError(self.no_export)
        from .runtime.onnx_export import write_onnx

        return write_onnx(self, Path(path))

    def summary(self) -> str:
        """Return a few readable lines: what this map is, what it was fitted on, how it will act."""
        heading, facts = self.facts()
        if "found" in facts:
            facts["found"] = facts["found"].replace("; ", "\n" + " " * 14)  # one finding per line
        lines = [heading, *(f"  {k:<12}{v}" for k, v in facts.items())]
        return "\n".join([f"Doubtful: {printable(self.info.doubt)}", *lines] if self.info.doubt else lines)

    def _repr_html_(self) -> str:
        return facts_html(*self.facts())

    def facts(self) -> tuple[str, dict[str, str]]:
        """Return a title line, and the facts of :meth:`summary` by name."""
        info, constant = self.info, len(self.info.constant_features)
        where = ""
        if self.coordinates is not None:
            n, whole = self.coordinates.n_coordinates, self.coordinates.components is None
            where = f"{'standardised' if whole else f'{n} principal components'} of {self.n_raw} raw features"
        names = f": {first_few(info.feature_names, 5)}" if info.feature_names else ""
        counts = {"rows": info.n_rows, "contrasts": info.n_contrasts}
        tokens = f"{'mean of' if info.token_layout == 'mean' else 'together, all'} {info.n_tokens}"
        facts = {
            "method": info.method,
            "features": f"{self.n_features}{names}{f'; {constant} constant in the fit' if constant else ''}",
            "sources": first_few(info.source_names, 5),
            "gate": "" if info.gate_rank is None else gate_words(info),
            "fitted on": ", ".join(f"{count} {what}" for what, count in counts.items() if count is not None),
            "found": info.evidence,
            "tokens": "" if info.n_tokens is None else tokens,
            "encoder": ", ".join(f"{k} {v}" for k, v in info.encoder.items()),
            "signals": signals_in_words(info.signals),
            "coordinates": where,
            "seed": "" if info.random_state is None else str(info.random_state),
            "settings": ", ".join(f"{k}={info.parameters.get(k)}" for k in info.changed),
            "people": f"{len(info.people)} (stored as hashes)" if info.people else "",
            "data": info.fingerprint or "",
            "written by": f"mgpa {info.library_version}",
            "notes": info.notes,
        }
        at_strength = "" if self.strength == 1 else f", at strength {self.strength:g}"
        heading = f"{type(self).__name__}: {self._describe()}{at_strength}"
        return heading, {name: printable(text) for name, text in facts.items() if text}

    def _describe(self) -> str:
        """Return what the map does, in a few words."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    def __repr__(self) -> str:
        return f"<{self.facts()[0]}, {self.n_features} features>"


def signals_in_words(signals: dict[str, Any]) -> str:
    """Return how signals were recorded and prepared.

    Examples
    --------
    >>> signals_in_words({"channels": ["Oz", "Pz"], "sfreq": 128.0, "band": [1.0, 40.0], "reference": None})
    '2 channels, sfreq 128.0, band 1.0 to 40.0'
    """
    words = []
    for name, value in signals.items():
        if name == "channels" and isinstance(value, list | tuple):
            words.append(f"{len(value)} channels")
        elif value is not None:
            several = isinstance(value, list | tuple)
            words.append(f"{name} {' to '.join(map(str, value)) if several else value}")
    return ", ".join(words)


def copy_rows(X: Floats, out: Floats) -> bool:
    """Copy the rows (a map without effect), and return whether they are finite."""
    np.copyto(out, X)
    return bool(np.isfinite(out).all())


def token_rows(X: Any, layout: str) -> Any:
    """Return tokens (n, t, d) as rows: their mean, summed in float64, or ("joint") one after another."""
    if layout == "joint":
        return X.reshape(len(X), -1)
    if is_tensor(X):
        return X.double().mean(dim=1).to(X.dtype)
    return np.asarray(X).mean(axis=1, dtype=np.float64).astype(X.dtype)
