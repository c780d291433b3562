"""A stored correction as an ONNX model, for deployments without Python or torch.

The graph is that of :mod:`mgpa.replay`: one product with the standardised input for all stages, then a
``Scan`` over the stages, whose weights are stacked. Its size does not depend on their number.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._version import __version__
from .maps import AffineMap, CorrectionMap, StagedMap
from .replay import Replay

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    raise ImportError("ONNX export needs the onnx extra: pip install 'mgpa[onnx]'") from error

Floats = NDArray[Any]

# Old enough for runtimes in use, new enough for float64 in every operator used here.
OPSET = 17
IR_VERSION = 8
# Newton stops by itself once every row has converged; this bounds rows that never do (NaN input).
MAX_NEWTON_STEPS = 50


def write_onnx(m: CorrectionMap, path: Path) -> Path:
    """Write ``m`` as an ONNX model, input ``X`` and output ``Y``, both (n, d) float32; return the path.

    The file is complete or not there. A row of X that is not finite comes out as NaN: a graph cannot raise.
    """
    graph = _Graph()
    X = _Value(graph, "X", "float32")
    if isinstance(m, AffineMap):
        Y = _affine(X, m)
    elif isinstance(m, StagedMap):
        Y = _staged(X, m)
    else:
        raise TypeError(f"Cannot export {type(m).__name__}; expected an AffineMap or StagedMap.")
    shape = ["n", m.n_features]
    model = helper.make_model(
        graph.close("correction", [X.declare(shape)], [Y.named("Y").declare(shape)]),
        producer_name="mgpa",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    properties = {
        "method": m.info.method,
        "library_version": m.info.library_version,
        "source_names": ", ".join(m.info.source_names),
        "notes": m.info.notes,
    }
    helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(model.SerializeToString())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _affine(X: _Value, m: AffineMap) -> _Value:
    if m.strength == 0 or m.readout.shape[1] == 0:
        return X
    center, readout, offset, back = (
        X.graph.constant(array.astype(np.float32))
        for array in (m.center, m.readout, m.offset, -m.strength * m.direction.T)
    )
    return X + ((X - center) @ readout + offset) @ back


def _staged(X: _Value, m: StagedMap) -> _Value:
    n_stages, _, n_hidden, n_network = m.sizes
    if m.strength == 0 or n_stages == 0 or m.rank == 0:
        return X
    constant = X.graph.constant
    weights = Replay(m, np.dtype(np.float32))
    # (stage, d, width): the product then comes out stage by stage, as Scan wants it.
    first = weights.first.reshape(-1, n_stages, weights.width).swapaxes(0, 1)
    h = (X - constant(weights.center)) * constant(weights.inverse_scale)
    fraction = np.ones((n_stages, 1, 1))
    fraction[-1] = m.fraction
    scanned = {
        "first": h @ constant(first[:, :-1]) + constant(first[:, -1:]),
        "linear_gate": constant(weights.linear_gate),
        "linear_gram": constant(weights.linear_gram),
        "fraction": constant(fraction),
    }
    if n_network:
        by_hidden = weights.gradient_gate.swapaxes(1, 2)  # (stage, hidden, network, r)
        scanned |= {
            "hidden_gate": constant(weights.hidden_gate),
            "output": constant(weights.output),
            "gradient_gate": constant(by_hidden.reshape(n_stages, n_hidden, n_network * m.rank)),
        }
    z = X @ constant(np.zeros((m.n_features, m.rank), dtype=np.float32))
    z = X.graph.scan(lambda z, now: _stage(z, now, m), z, scanned, ["n", m.rank])
    return X + z @ constant((m.strength * weights.scaled_basis_t).astype(np.float32))


def _stage(z: _Value, now: dict[str, _Value], m: StagedMap) -> _Value:
    """Return the gate coordinates after one stage: one pass of the loop in ``Replay._rows``.

    Scores, residuals and Gram entries are separate columns, shape (n, 1), or (1, 1) where all rows agree.
    """
    _, L, H, N = m.sizes
    first, linear_gate, linear_gram = now["first"], now["linear_gate"], now["linear_gram"]
    rows = [linear_gate.cut(0, j) for j in range(L)]  # A_j, the gated gradients
    e = [(first.cut(1, H + j) + (z * rows[j]).sum()).cast("float64") for j in range(L)]
    if N:
        u = first.cut(1, 0, H) + z @ now["hidden_gate"]
        below = (u * math.sqrt(0.5)).op("Erf") * 0.5 + 0.5  # Φ(u)
        density = (u * u * -0.5).op("Exp") * math.sqrt(0.5 / math.pi)  # φ(u)
        scores = (u * below) @ now["output"]
        gradients = (below + u * density) @ now["gradient_gate"]
        rows += [gradients.cut(1, j * m.rank, (j + 1) * m.rank) for j in range(N)]
        e += [(scores.cut(1, j) - first.cut(1, H + L + j)).cast("float64") for j in range(N)]
    J = L + N
    # With more scores than gate directions the Gram matrix is singular, and float32 sums would show.
    wide = [row.cast("float64") for row in rows]
    gram = [
        [linear_gram.cut(0, i).cut(1, j) if i < L else (wide[i] * wide[j]).sum() for j in range(i + 1)]
        for i in range(J)
    ]
    weight = [1.0 / (gram[j][j] + m.stabilizer * m.stabilizer).sqrt() for j in range(J)]
    y = _step_coefficients(
        [[gram[i][j] * weight[i] * weight[j] for j in range(i + 1)] for i in range(J)],
        [e[j] * weight[j] for j in range(J)],
        m.damping,
        m.radius,
    )
    # Nearly parallel gradients take large opposite coefficients: their sum, too, is float64.
    step = _sum(wide[j] * (y[j] * weight[j] * now["fraction"]) for j in range(J))
    return z - step.cast("float32")


def _step_coefficients(
    gram: list[list[_Value]], e: list[_Value], damping: float, radius: float
) -> list[_Value]:
    """Return y with Δz = -Aᵀy, as :func:`mgpa.trust_region.step_coefficients` does, but without eigenvectors.

    ``gram`` is the lower triangle. Newton's method on 1/‖Δz(ν)‖ starts left of the root, because
    ‖Aᵀe‖ / (tr G + τ + ν) ≤ ‖Δz(ν)‖, and climbs.
    """
    J = range(len(e))

    def times_gram(v: list[_Value]) -> list[_Value]:
        return [_sum(gram[max(i, j)][min(i, j)] * v[j] for j in J) for i in J]

    def dot(v: list[_Value], w: list[_Value]) -> _Value:
        return _sum(v[j] * w[j] for j in J)

    def newton(nu: _Value) -> tuple[_Value, _Value]:
        solve = _ldl_solver(gram, nu + damping)
        y = solve(e)
        Gy = times_gram(y)
        length2, slope = dot(y, Gy).maximum(0.0), dot(Gy, solve(y))
        step = length2 / (slope + 1e-300) * (length2.sqrt() / radius - 1.0)
        nu = (nu + step).maximum(0.0)
        return nu, step.op("Greater", (nu + damping) * 1e-9, dtype="bool").any()

    trace = _sum(gram[j][j] for j in J)
    start = (dot(e, times_gram(e)).maximum(0.0).sqrt() / radius - trace - damping).maximum(0.0)
    nu = e[0].graph.loop(newton, start, MAX_NEWTON_STEPS)
    return _ldl_solver(gram, nu + damping)(e)


def _ldl_solver(gram: list[list[_Value]], shift: _Value) -> Callable[[list[_Value]], list[_Value]]:
    """Return v ↦ (G + shift I)⁻¹ v by the factors L D Lᵀ, which need no pivots: the matrix is positive."""
    J = len(gram)
    lower: list[list[_Value]] = []
    diagonal: list[_Value] = []
    for i in range(J):
        row: list[_Value] = []  # L_ij, and L_ij d_j beside it
        scaled: list[_Value] = []
        for j in range(i):
            scaled.append(_minus(gram[i][j], [scaled[k] * lower[j][k] for k in range(j)]))
            row.append(scaled[j] / diagonal[j])
        lower.append(row)
        diagonal.append(_minus(gram[i][i] + shift, [scaled[k] * row[k] for k in range(i)]))

    def solve(v: list[_Value]) -> list[_Value]:
        x: list[_Value] = []
        for i in range(J):
            x.append(_minus(v[i], [lower[i][k] * x[k] for k in range(i)]))
        x = [x[i] / diagonal[i] for i in range(J)]
        for i in reversed(range(J)):
            x[i] = _minus(x[i], [lower[k][i] * x[k] for k in range(i + 1, J)])
        return x

    return solve


def _sum(terms: Iterable[_Value]) -> _Value:
    return functools.reduce(operator.add, terms)


def _minus(value: _Value, terms: list[_Value]) -> _Value:
    return functools.reduce(operator.sub, terms, value)


class _Graph:
    """Collects nodes as :class:`_Value` arithmetic happens; bodies of loops are written in the same way."""

    def __init__(self) -> None:
        self._scopes: list[tuple[list[Any], list[Any]]] = [([], [])]
        self._names = itertools.count()

    def node(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{kind}_{next(self._names)}"
        self._scopes[-1][0].append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, array: Floats) -> _Value:
        name = f"constant_{next(self._names)}"
        self._scopes[-1][1].append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return _Value(self, name, str(array.dtype))

    def value(self, kind: str, dtype: str) -> _Value:
        """Return a value that a loop provides to its body."""
        return _Value(self, f"{kind}_{next(self._names)}", dtype)

    def close(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        nodes, constants = self._scopes.pop()
        return helper.make_graph(nodes, name, inputs, outputs, initializer=constants)

    def scan(
        self,
        body: Callable[[_Value, dict[str, _Value]], _Value],
        state: _Value,
        scanned: dict[str, _Value],
        shape: list[Any],
    ) -> _Value:
        """Return the last state when ``body`` has seen every slice of the first axis of ``scanned``.

        ``shape`` is that of the state: onnxruntime will not infer it.
        """
        before = self.value("state", state.dtype)
        slices = {name: self.value(name, value.dtype) for name, value in scanned.items()}
        self._scopes.append(([], []))
        after = body(before, slices)
        inputs = [value.declare() for value in (before, *slices.values())]
        graph = self.close("stage", inputs, [after.declare(shape)])
        names = [value.name for value in (state, *scanned.values())]
        name = self.node("Scan", names, body=graph, num_scan_inputs=len(scanned))
        return _Value(self, name, state.dtype)

    def loop(self, body: Callable[[_Value], tuple[_Value, _Value]], state: _Value, max_steps: int) -> _Value:
        """Repeat ``body``, which returns the next state and whether to go on."""
        step, go_on = self.value("step", "int64"), self.value("go_on", "bool")
        before = self.value("state", state.dtype)
        limit = self.constant(np.array(max_steps))
        self._scopes.append(([], []))
        after, again = body(before)
        inputs = [step.declare([]), go_on.declare([]), before.declare()]
        graph = self.close("newton", inputs, [again.declare([]), after.declare()])
        name = self.node("Loop", [limit.name, "", state.name], body=graph)
        return _Value(self, name, state.dtype)


class _Value:
    """One tensor of the graph. Arithmetic on it adds nodes."""

    def __init__(self, graph: _Graph, name: str, dtype: str) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def declare(self, shape: list[Any] | None = None) -> Any:
        return helper.make_tensor_value_info(
            self.name, helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)), shape
        )

    def op(self, kind: str, *others: _Value | float, dtype: str = "", **attributes: Any) -> _Value:
        values = [self, *(self._constant(other) for other in others)]
        name = self.graph.node(kind, [value.name for value in values], **attributes)
        return _Value(self.graph, name, dtype or self.dtype)

    def _constant(self, other: _Value | float) -> _Value:
        if isinstance(other, _Value):
            return other
        return self.graph.constant(np.array(other, dtype=self.dtype))

    def __add__(self, other: _Value | float) -> _Value:
        return self.op("Add", other)

    def __sub__(self, other: _Value | float) -> _Value:
        return self.op("Sub", other)

    def __mul__(self, other: _Value | float) -> _Value:
        return self.op("Mul", other)

    def __truediv__(self, other: _Value | float) -> _Value:
        return self.op("Div", other)

    def __rtruediv__(self, other: float) -> _Value:
        return self._constant(other) / self

    def __matmul__(self, other: _Value) -> _Value:
        return self.op("MatMul", other)

    def sqrt(self) -> _Value:
        return self.op("Sqrt")

    def maximum(self, other: _Value | float) -> _Value:
        return self.op("Max", other)

    def sum(self) -> _Value:
        """Sum the columns, keeping the axis."""
        return self.op("ReduceSum", self.graph.constant(np.array([1])), keepdims=1)

    def any(self) -> _Value:
        """Return whether any entry is true, as a scalar."""
        return self.cast("int32").op("ReduceMax", keepdims=0).cast("bool")

    def cast(self, dtype: str) -> _Value:
        return self.op("Cast", dtype=dtype, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def cut(self, axis: int, start: int, stop: int | None = None) -> _Value:
        """Return entries ``start`` to ``stop`` of an axis, or the one at ``start``, keeping the axis."""
        bounds = [start, start + 1 if stop is None else stop, axis]
        return self.op("Slice", *(self.graph.constant(np.array([bound])) for bound in bounds))

    def named(self, name: str) -> _Value:
        """Return the same tensor under a name of one's own."""
        self.graph.node("Identity", [self.name], output=name)
        return _Value(self.graph, name, self.dtype)
