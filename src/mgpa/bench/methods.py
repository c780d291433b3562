"""The methods of the benchmark, fitted and applied through the interfaces of their packages.

A method is fitted on a :class:`~mgpa.bench.settings.Calibration` and returns a function of rows and of the
device that recorded them. Source-blind methods do not use the device. Packages are imported when a method is
fitted; methods of missing packages are shown as a dash with a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import baselines
from .settings import Calibration, Floats

#: A function of rows and of the device that recorded them; returns corrected rows.
Correct = Callable[[Floats, int], Any]
#: A function of the data and the position of the reference device (None: the method decides).
Fit = Callable[[Calibration, int | None], Correct]


class Inapplicable(ValueError):
    """A method cannot be fitted to this setting; the message says why."""


@dataclass(frozen=True)
class Method:
    """An entry of the benchmark.

    Attributes
    ----------
    name : str
        Name on the page.
    fit : function
        A function of the calibration data and the position of the reference device that returns the
        correction.
    told : bool
        Whether the method needs the device of each row.
    reference : bool
        Whether the method maps to one device; it is then fitted for each device in turn.
    key : str
        Name in the project's palette, for colour and marker.
    package : str
        Package of the implementation, if not this package.
    """

    name: str
    fit: Fit
    told: bool = False
    reference: bool = False
    key: str = ""
    package: str = ""


def estimator(make: Callable[[], Any], *, told: bool = False) -> Fit:
    """Return the fit function for any object with ``fit`` and ``transform``.

    ``fit`` receives the rows, and those of ``y``, ``source``, ``groups``, ``pairs``, ``pair_groups`` and
    ``pair_id`` that are in its signature. Its parameter ``reference`` is set to the reference device if the
    entry has ``reference=True``. With ``told``, ``transform`` receives ``source=``.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> scaling = Method("scaling", estimator(StandardScaler))
    """

    def fit(data: Calibration, reference: int | None) -> Correct:
        model = make()
        if reference is not None:
            model.set_params(reference=reference)
        wanted = signature(model.fit).parameters
        model.fit(data.X, **{name: value for name, value in data.evidence().items() if name in wanted})
        if told:
            return lambda rows, device: model.transform(rows, source=np.full(len(rows), device))
        return lambda rows, device: model.transform(rows)

    return fit


def from_pairs(fit_one: Callable[[Floats, Floats], Callable[[Floats], Any]]) -> Fit:
    """Return a method that maps each device's views of paired events to the reference's views."""

    def views(data: Calibration, device: int, reference: int) -> tuple[Floats, Floats]:
        both = data.pairs.seen[[device, reference]].all(axis=0)
        if both.sum() < 2:
            raise Inapplicable("a device shares no event with another")
        return data.pairs.views[device, both], data.pairs.views[reference, both]

    return _for_each_device(views, fit_one)


def from_rows(fit_one: Callable[[Floats, Floats], Callable[[Floats], Any]]) -> Fit:
    """Return a method that maps the distribution of each device's rows to that of the reference's rows."""

    def rows(data: Calibration, device: int, reference: int) -> tuple[Floats, Floats]:
        return data.X[data.source == device], data.X[data.source == reference]

    return _for_each_device(rows, fit_one)


def _for_each_device(
    parts: Callable[[Calibration, int, int], tuple[Floats, Floats]],
    fit_one: Callable[[Floats, Floats], Callable[[Floats], Any]],
) -> Fit:
    def fit(data: Calibration, reference: int | None) -> Correct:
        goal = 0 if reference is None else reference
        maps = {
            device: fit_one(*parts(data, device, goal)) for device in range(data.n_devices) if device != goal
        }
        return lambda rows, device: rows if device == goal else maps[device](rows)

    return fit


def regression(A: Floats, B: Floats) -> Callable[[Floats], Floats]:
    """Return the ceiling: a ridge regression of paired differences that knows the device."""
    from sklearn.linear_model import Ridge

    penalty = 0.1 * float(((A - A.mean(axis=0)) ** 2).sum()) / A.shape[1]
    model = Ridge(alpha=penalty).fit(A, B - A)
    return lambda rows: rows + model.predict(rows)


def midpoint(fit: Fit) -> Fit:
    """Return a method that averages the corrections of a row to each device as reference.

    For a ridge regression, this equals the regression to the mean of the views of all devices.
    """

    def fit_all(data: Calibration, _: int | None) -> Correct:
        to_each = [fit(data, goal) for goal in range(data.n_devices)]
        return lambda rows, device: np.mean([correct(rows, device) for correct in to_each], axis=0)

    return fit_all


def z_scores(A: Floats, B: Floats) -> Callable[[Floats], Floats]:
    """Return the map that matches the mean and standard deviation of each feature to the reference."""
    scale = np.where(A.std(axis=0) > 0, B.std(axis=0) / np.maximum(A.std(axis=0), 1e-12), 1.0)
    return lambda rows: (rows - A.mean(axis=0)) * scale + B.mean(axis=0)


def _leace(data: Calibration, _: int | None) -> Correct:
    """Return LEACE from concept-erasure."""
    import torch
    from concept_erasure import LeaceEraser

    Z = torch.tensor(np.eye(data.n_devices)[data.source])
    eraser = LeaceEraser.fit(torch.tensor(data.X), Z)
    return lambda rows, device: eraser(torch.tensor(rows)).numpy()


def _qleace(data: Calibration, _: int | None) -> Correct:
    """Return quadratic LEACE from concept-erasure."""
    import torch
    from concept_erasure import QuadraticFitter

    fitter = QuadraticFitter.fit(torch.tensor(data.X), torch.tensor(data.source))
    eraser = fitter.eraser
    return lambda rows, device: eraser(torch.tensor(rows), torch.full((len(rows),), device)).numpy()


def _skada(name: str) -> Callable[[Floats, Floats], Callable[[Floats], Any]]:
    """Return an adapter of skada, fitted from rows of a device to rows of the reference."""

    def fit_one(A: Floats, B: Floats) -> Callable[[Floats], Any]:
        import skada

        adapter = getattr(skada, name)()
        domains = np.repeat([1, -2], [len(A), len(B)])
        adapter.fit(np.concatenate([A, B]), sample_domain=domains)
        return lambda rows: adapter.transform(rows, sample_domain=np.ones(len(rows), int), allow_source=True)

    return fit_one


def _combat(kind: str) -> Fit:
    """Return ComBat or CovBat from combatlearn."""

    def fit(data: Calibration, reference: int | None) -> Correct:
        import pandas as pd
        from combatlearn import ComBat

        names = data.source.astype(str)
        goal = None if reference is None else str(reference)
        model = ComBat(batch=pd.Series(names), method=kind, reference_batch=goal).fit(pd.DataFrame(data.X))

        def correct(rows: Floats, device: int) -> NDArray[Any]:
            model.batch = pd.Series(np.full(len(rows), str(device)))
            return np.asarray(model.transform(pd.DataFrame(rows)))

        return correct

    return fit


def _chemotools(name: str, **params: Any) -> Callable[[Floats, Floats], Callable[[Floats], Any]]:
    """Return a transfer method of chemotools, fitted from views of a device to views of the reference.

    chemotools calls the corrected device the target and the reference the source. Both are centred, as usual
    for spectra, because direct standardisation has no intercept.
    """

    def fit_one(A: Floats, B: Floats) -> Callable[[Floats], Any]:
        from chemotools import adaptation

        options = dict(params)
        if "n_components" in options:
            options["n_components"] = min(options["n_components"], len(A) - 1, A.shape[1])
        middle, goal = A.mean(axis=0), B.mean(axis=0)
        model = getattr(adaptation, name)(**options).fit(A - middle, X_source=B - goal)
        return lambda rows: model.transform(rows - middle) + goal

    return fit_one


def _centring(data: Calibration, reference: int | None) -> Correct:
    """Return centring from pyRiemann, which moves the mean of each device to that of the reference."""
    from pyriemann.transfer import TLCenter

    goal, center = _goal(reference), TLCenter("").fit(data.X, _extended_labels(data))

    def correct(rows: Floats, device: int) -> Floats:
        center.target_domain = str(device)
        return np.asarray(center.transform(rows) + center.centers_[goal])

    return correct


def _procrustes(data: Calibration, reference: int | None) -> Correct:
    """Return Procrustes from pyRiemann, which centres, scales and rotates each device to the reference.

    pyRiemann treats rows as tangent vectors; the fitted attributes of its steps are applied to new rows of
    any device.
    """
    from pyriemann.transfer import TLCenter, TLRotate, TLScale

    goal, labels = _goal(reference), _extended_labels(data)
    fewest = np.unique(labels, return_counts=True)[1].min()  # rows of one class on one device
    clusters = min(3, int(fewest))
    center, scale = TLCenter(""), TLScale("", centered_data=True)
    rotate = TLRotate(goal, n_clusters=clusters)
    rotate.fit(scale.fit_transform(center.fit_transform(data.X, labels), labels), labels)

    def correct(rows: Floats, device: int) -> Floats:
        center.target_domain = scale.target_domain = str(device)
        turn = rotate.rotations_.get(str(device), np.eye(rows.shape[1]))
        shape = scale.transform(center.transform(rows)) @ turn
        return np.asarray(shape * scale.scales_[goal] + center.centers_[goal])

    return correct


def _goal(reference: int | None) -> str:
    return str(reference or 0)


def _extended_labels(data: Calibration) -> NDArray[Any]:
    """Return labels with domains in the format of pyRiemann."""
    from pyriemann.transfer import encode_domains

    return np.asarray(encode_domains(data.X, data.label.astype(str), data.source.astype(str))[1])


def euclidean_alignment(A: Floats, B: Floats) -> Callable[[Floats], Any]:
    """Return Euclidean alignment from pyRiemann, which matches covariances to the reference, not means.

    The method is meant for signals. Rows have no time axis, so the covariance is the shrunk covariance of the
    device's rows.
    """
    from pyriemann.geometry.covariance import covariances
    from pyriemann.preprocessing import Whitening

    whiten, colour = (Whitening(metric="euclid").fit(covariances(rows.T[None], "oas")) for rows in (A, B))
    return lambda rows: rows @ whiten.filters_ @ colour.inv_filters_


def refit(data: Calibration, reference: int | None) -> Correct:
    """Return rows unchanged; the protocol fits a decoder for each device on its few calibration rows."""
    return lambda rows, device: rows


def _ours(name: str, **params: Any) -> Callable[[], Any]:
    return lambda: baselines.make_method(name, **params)


#: Without an effect in the pairs, rows are not changed.
_mgpa = _ours("mgpa", on_missing="warn")
_closed_form = _ours("closed_form_mgpa", on_missing="warn")


#: All entries in the order of tables and legends.
METHODS: tuple[Method, ...] = (
    Method("no correction", estimator(_ours("identity")), key="identity"),
    Method("MGPA to the reference", estimator(_mgpa), reference=True, key="mgpa"),
    Method("MGPA to the midpoint", estimator(_mgpa), key="mgpa"),
    Method("MGPA closed form", estimator(_closed_form), key="closed_form_mgpa"),
    Method("LEACE", _leace, key="leace", package="concept-erasure"),
    Method("EPO", estimator(_ours("epo")), key="epo"),
    Method("quadratic LEACE", _qleace, told=True, key="quadratic_leace", package="concept-erasure"),
    Method("CORAL", from_rows(_skada("CORALAdapter")), True, True, "coral", "skada"),
    Method("optimal transport", from_rows(_skada("OTMappingAdapter")), True, True, package="skada"),
    Method("ComBat", _combat("johnson"), True, True, "combat", "combatlearn"),
    Method("CovBat", _combat("chen"), True, True, package="combatlearn"),
    Method(
        "Euclidean alignment", from_rows(euclidean_alignment), True, True, "euclidean_alignment", "pyriemann"
    ),
    Method("centring", _centring, True, True, "riemannian_recentring", "pyriemann"),
    Method("Procrustes", _procrustes, True, True, "riemannian_procrustes", "pyriemann"),
    Method("DS", from_pairs(_chemotools("DirectStandardization")), True, True, "ds", "chemotools"),
    Method(
        "PDS",
        from_pairs(_chemotools("PiecewiseDirectStandardization", window_length=5, n_components=2)),
        True, True, "pds", "chemotools",
    ),
    Method(
        "SST", from_pairs(_chemotools("SpectralSpaceTransform", n_components=8)), True, True, "sst",
        "chemotools",
    ),
    Method("z-scores of each device", from_rows(z_scores), True, True),
    Method("decoder refitted on calibration rows", refit, True, True),
    Method("told regression (midpoint)", midpoint(from_pairs(regression)), told=True, key="featmap"),
    Method("told regression (ceiling)", from_pairs(regression), True, True, "featmap"),
)  # fmt: skip


def find_methods(names: list[str] | None = None) -> list[Method]:
    """Return methods by name, by default all; part of a name is enough if only one method has it."""
    if not names:
        return list(METHODS)
    chosen = []
    for name in names:
        exact = [method for method in METHODS if method.name.lower() == name.lower()]
        fitting = exact or [method for method in METHODS if name.lower() in method.name.lower()]
        if len(fitting) != 1:
            every = ", ".join(method.name for method in fitting or METHODS)
            raise ValueError(f"{'No' if not fitting else 'More than one'} method {name!r}. Methods: {every}.")
        chosen += fitting
    return chosen
