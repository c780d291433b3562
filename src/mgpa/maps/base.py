"""Base class of all maps: provenance, checks, strength, tokens, files and exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.arrays import copy_rows, is_tensor, token_rows
from .._common.checks import as_float_matrix, refuse_masked, require_finite, require_output
from .._common.extras import missing
from .._common.markup import facts_html
from .._common.remote import Given, Place, as_place
from ..errors import MapError, printable
from ..labels import to_numpy
from . import adaptation
from .check import FittedRange, RowCheck, check_rows
from .info import KINDS, MapInfo
from .monitor import Monitor
from .population import Population
from .validation import require_arrays, require_info, require_names

if TYPE_CHECKING:
    from ..coordinates import Coordinates
    from .affine import PosteriorMap

Floats = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectionMap:
    """Base class of all stored corrections: x ↦ x + strength · displacement(x).

    Attributes
    ----------
    center, scale : arrays of shape (d,)
        The standardisation of the fit. Input and output are in the user's units.
    strength : float
        Factor of the displacement; 1 applies the fitted correction, and larger values overshoot.
    info : MapInfo
        Provenance: method, parameters, fitting-data fingerprint, encoder, versions, notes.
    coordinates : Coordinates or None
        The transform from raw features to the embeddings that this map corrects; see :meth:`from_raw`.
    fitted : FittedRange or None
        Ranges of the fitting rows, for :meth:`check`.
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
    # Prepared weights (per dtype and torch device), rebuilt on demand, never copied or stored.
    _cache: dict[Any, Any] = field(default_factory=dict, init=False)

    kind: ClassVar[str]
    source_blind: ClassVar[bool] = True
    # Axes of all arrays except center and scale; each letter is one size, and d is the number of features.
    shapes: ClassVar[dict[str, str]]
    tensor_names: ClassVar[tuple[str, ...]]
    optional_tensors: ClassVar[tuple[tuple[str, ...], ...]] = ()  # groups of arrays that are present together
    scalar_names: ClassVar[tuple[str, ...]]
    no_export: ClassVar[str] = ""  # the reason if a map has no torch module and no ONNX form

    def __init_subclass__(cls) -> None:
        optional = set(chain(*cls.optional_tensors))
        named = (name for name in getattr(cls, "shapes", ()) if name not in optional)
        cls.tensor_names = ("center", "scale", *named)
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        require_arrays(self)
        require_info(self)

    @property
    def tensors(self) -> dict[str, Floats]:
        """The arrays of the map by name."""
        names = (*self.tensor_names, *chain(*self.optional_tensors))
        return {name: array for name in names if (array := getattr(self, name)) is not None}

    @property
    def n_features(self) -> int:
        """Number of features of the embeddings that this map corrects."""
        return int(self.center.size)

    @property
    def n_raw(self) -> int:
        """Number of raw features; without coordinates, the number of embedding features."""
        return self.n_features if self.coordinates is None else self.coordinates.n_raw

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Mask of the features that varied in the fit, (d,): all except ``info.constant_features``."""
        varies = np.ones(self.n_features, dtype=bool)
        varies[list(self.info.constant_features)] = False
        return varies

    def with_strength(self, strength: float) -> Self:
        """Return the same map with another strength, which replaces the present one."""
        other = replace(self, strength=float(strength))
        # Weights prepared for numpy do not depend on the strength.
        other._cache.update({k: v for k, v in self._cache.items() if isinstance(k, np.dtype)})
        return other

    def with_notes(self, notes: str) -> Self:
        """Return the same map with notes: free text that is stored and shown by :meth:`summary`."""
        return replace(self, info=replace(self.info, notes=str(notes)))

    def with_coordinates(self, coordinates: Coordinates | None) -> Self:
        """Return the same map with the coordinates of its embeddings, which are stored with the map."""
        return replace(self, coordinates=coordinates)

    def from_raw(self, X: Any, **options: Any) -> Any:
        """Return corrected embeddings of raw features; ``options`` are passed to :meth:`transform`."""
        if self.coordinates is None:
            raise ValueError("This map has no coordinates; correct the features themselves with transform.")
        if hasattr(X, "columns"):
            require_names(self.info, tuple(X.columns), self.n_raw)
        return self.transform(self.coordinates.transform(X), **options)

    def transform(self, X: Any, *, strength: float | None = None, out: Floats | None = None) -> Any:
        """Correct embeddings without source labels; the result has the type of X.

        Parameters
        ----------
        X : array of shape (n, d) or (d,), or (n, t, d) if the map was fitted on tokens
            numpy array, anything numpy can read (a pandas frame, a list), or a torch tensor.
        strength : float or None
            Strength to apply instead of the map's own.
        out : array of shape (n, d) or None
            Output array: a numpy array of the type of X, or X itself. If X has NaN or infinite values,
            nothing is written; if a correction overflows, the array is only partly written.
        """
        if strength is not None and strength != self.strength:
            return self.with_strength(strength).transform(X, out=out)
        if out is None and getattr(X, "shape", None) == (self.n_features,) and not hasattr(X, "index"):
            return self._correct(X[None], self._apply, None)[0]
        return self._correct(X, self._apply, out)

    def warm_up(self, dtype: Any = np.float32) -> Self:
        """Prepare the weights and compile code before the first transform.

        With numba, staged maps are compiled. Compilation takes several seconds once per machine (numba stores
        the result in ``NUMBA_CACHE_DIR``), and loading takes half a second in every process.

        ``dtype`` is the type of the future rows. Returns this map.
        """
        X = as_float_matrix(self.center[None].astype(dtype))
        if self.source_blind:  # source-aware maps have nothing to prepare
            self._apply(X, np.empty_like(X))
        return self

    def _correct(self, X: Any, apply: Callable[[Floats, Floats], bool], out: Any) -> Any:
        """Correct arrays with ``apply``, and tensors with the torch module or, without one, on the CPU."""
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
        """Return tokens (n, t, d) as rows; raise if the number of tokens differs from the fit."""
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
        """Check rows, correct them with ``apply``, and raise if the result is not finite."""
        columns = getattr(X, "columns", None)
        if columns is not None:
            require_names(self.info, tuple(columns), self.n_features)
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
            except np.linalg.LinAlgError:  # raised by eigenvalue routines for NaN
                finite = False
            if not finite:
                require_finite(X, "X")
                raise MapError(
                    "The correction overflows: X is many orders of magnitude from the fitting data."
                )
        return out

    def _apply(self, X: Floats, out: Floats) -> bool:
        """Write the corrected rows into ``out`` (which may be X).

        Returns False if any edit is not finite, which indicates invalid input.
        """
        raise NotImplementedError

    def _weights(self, dtype: np.dtype[Any]) -> Any:
        """Return the weights in the form used for application, in this type."""
        raise NotImplementedError

    def _prepared(self, dtype: np.dtype[Any]) -> Any:
        if dtype not in self._cache:
            self._cache[dtype] = self._weights(dtype)
        return self._cache[dtype]

    def displacement(self, X: Any, **options: Any) -> Floats:
        """Return the displacement of each row in standardised coordinates: (transform(X) - X) / scale.

        ``options`` are passed to :meth:`transform`; a source-aware map needs ``source``.
        """
        X = as_float_matrix(X, n_features=self.n_features)
        return np.asarray((self.transform(X, **options) - X) / self.scale)

    def check(self, X: Any, source: Any = None) -> RowCheck:
        """Check whether rows resemble the fitting rows of the map.

        ``X`` has uncorrected rows, as for :meth:`transform`; ``source`` has their sources, if known. Sources
        that were not in the fit are reported. The result prints as sentences and has ``ok`` and
        ``to_dict()``.

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
        return check_rows(X, self.fitted, source, self.info, self.population, self.unseen(X))

    def unseen(self, X: Any) -> Floats:
        """Return the probability that no fitted device explains each row; 0 if the map cannot estimate it."""
        return np.zeros(len(X))

    def monitor(self, *, window: int = 200, rate: float = 1e-3) -> Monitor:
        """Return a monitor that detects unknown devices and broken features in a stream of rows.

        ``rate`` is the false-alarm rate for new participants: the share of windows (of ``window`` rows) with
        an alarm.

        Examples
        --------
        >>> import numpy as np, mgpa
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 3)); X[::2] += 4.0
        >>> monitor = mgpa.baselines.LEACE().fit(X, source=np.arange(600) % 2).to_map().monitor()
        >>> monitor.update(rng.normal(size=(100, 3))).ok, monitor.update(rng.normal(size=(100, 3)) - 9.0).ok
        (True, False)
        """
        return Monitor(self, window=window, rate=rate)

    def adapt(self, X: Any, name: str = "new", *, n_participants: int = 1) -> CorrectionMap:
        """Return this map with one more device, fitted on a batch of unlabelled rows of that device.

        The level of the device and its gains (up to 1024 features) are estimated, and its rows are mapped to
        the level of the corrected rows of the fitted devices. The batch is assumed to have the same mix of
        content as the fit. If the mix differs by more than between fitted participants, the change of the
        mean is attributed to the device.

        Parameters
        ----------
        X : (n, d) array
            Uncorrected rows of the new device, if possible of several participants.
        name : str
            Name of the new device.
        n_participants : int
            Number of participants in the rows. With more participants, a smaller part of the change
            of the mean is attributed to differences between participants.

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
        return adaptation.adapt(self, X, name, n_participants)

    def add_source(self, name: str, pairs: Any, *, known: str) -> CorrectionMap:
        """Return this map with one more device, fitted on a few events that a fitted device also recorded.

        No assumption about content is needed. The level is shrunk toward the fitted devices, and gains and
        rotations are corrected if left-out pairs support this.

        Parameters
        ----------
        name : str
            Name of the new device.
        pairs : tuple (A, B) of (m, d) arrays
            Row i of A and of B is the same event: A recorded by the fitted device, B by the new device.
        known : str
            The fitted device.
        """
        return adaptation.add_source(self, name, pairs, known)

    def as_posterior(self) -> PosteriorMap:
        """Return the map as a :class:`PosteriorMap`; maps of other kinds raise MapError."""
        kind = type(self).__name__
        raise MapError(f"A {kind} cannot take another device; adapt a map of MGPA() or ClosedFormMGPA().")

    def save(self, path: Given, *, overwrite: bool = True) -> Place:
        """Write the map to one safetensors file; the file is written completely or not at all.

        ``path`` may be a URL such as ``s3://bucket/adapter.safetensors``. Unless ``overwrite`` is set, an
        existing file raises an error.
        """
        from .io.mapfile import write_map

        return write_map(self, as_place(path), overwrite=overwrite)

    def to_torch(self) -> Any:
        """Return the map as a ``torch.nn.Module`` that is differentiable in X but not in its weights."""
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
        """Return a short description of the map, its fitting data and its correction."""
        heading, facts = self.facts()
        if "found" in facts:
            facts["found"] = facts["found"].replace("; ", "\n" + " " * 14)  # one result per line
        lines = [heading, *(f"  {k:<12}{v}" for k, v in facts.items())]
        return "\n".join([f"Doubtful: {printable(self.info.doubt)}", *lines] if self.info.doubt else lines)

    def _repr_html_(self) -> str:
        return facts_html(*self.facts())

    def facts(self) -> tuple[str, dict[str, str]]:
        """Return the title line and the named facts of :meth:`summary`."""
        where = ""
        if self.coordinates is not None:
            n, whole = self.coordinates.n_coordinates, self.coordinates.components is None
            where = f"{'standardised' if whole else f'{n} principal components'} of {self.n_raw} raw features"
        facts = self.info.facts(self.n_features, coordinates=where)
        at_strength = "" if self.strength == 1 else f", at strength {self.strength:g}"
        heading = f"{type(self).__name__}: {self._describe()}{at_strength}"
        return heading, {name: printable(text) for name, text in facts.items() if text}

    def _describe(self) -> str:
        """Return the kind of correction in a few words."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    def __repr__(self) -> str:
        return f"<{self.facts()[0]}, {self.n_features} features>"
