"""Export a stored correction as an ONNX model, for deployment without Python or torch.

The weights are those of :mod:`mgpa.maps.runtime.folding`, rounded to float32. A ``Scan`` over the stacked
weights runs the stages, so the number of nodes does not depend on the number of stages.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ..._common.extras import missing
from ..._common.files import require_replaceable, write_atomically
from .folding import fold_affine, fold_spread, fold_stages, linear_gram

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    raise missing("ONNX export", "onnx") from error

# Old enough for runtimes in use, new enough for float64 in all operators used here.
OPSET = 17
IR_VERSION = 8
# Newton's method stops when all rows have converged; this limit is for rows that never do (NaN input).
MAX_NEWTON_STEPS = 50


def write_onnx(m: Any, path: Path) -> Path:
    """Write ``m`` as an ONNX model with input ``X`` and output ``Y``, both (n, d) float32; return the path.

    The file is written completely or not at all. Rows of X that are not finite become NaN, because a graph
    cannot raise.
    """
    require_replaceable(path)
    graph = Graph()
    X = Tensor(graph, "X", "float32")
    shape = ["n", m.n_features]
    moves = m.strength and m.rank and (m.kind != "staged" or len(m))
    Y: Tensor = {"affine": _affine, "spread": _spread, "staged": _staged}[m.kind](X, m) if moves else X
    graph.node("Identity", [Y.name], output="Y")
    model = helper.make_model(
        graph.close("correction", [X.declare(shape)], [Tensor(graph, "Y", "float32").declare(shape)]),
        producer_name="mgpa",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    properties = {
        "method": m.info.method,
        "library_version": m.info.library_version,
        "source_names": json.dumps(m.info.source_names, ensure_ascii=False),
        "notes": m.info.notes,
    }
    helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    return write_atomically(path, model.SerializeToString())


def _affine(X: Tensor, m: Any) -> Tensor:
    weights = fold_affine(m).cast(lambda array: X.graph.constant(array.astype(np.float32)))
    edit: Tensor = ((X - weights.center) @ weights.readout + weights.offset) * m.strength
    return X + (edit if weights.back is None else edit @ weights.back)


def _spread(X: Tensor, m: Any) -> Tensor:
    folded = fold_spread(m)
    (q, K), r = folded.square_weight.shape, m.rank

    def constant(array: NDArray[np.float64]) -> Tensor:
        return X.graph.constant(np.ascontiguousarray(array, dtype=np.float32))

    def product(first: int, last: int) -> Tensor:
        return centred @ constant(folded.first[:, first:last]) + constant(folded.constant[first:last])

    centred = X - constant(folded.center)
    scores = product(q, q + K)
    if q:
        squares = product(0, q)
        scores = scores + (squares * squares) @ constant(folded.square_weight)
    p = scores.op("Softmax", axis=1)
    n_edits = K
    if folded.unseen_weight is not None:
        n_edits, width = K + 1, len(folded.constant)
        squares = product(width - K - len(folded.unseen_weight), width - K)
        odds = product(width - K, width) + (squares * squares) @ constant(folded.unseen_weight[:, None])
        # Add a column of zeros: the log-odds of an unseen device against itself.
        unseen = (odds @ constant(-np.eye(K, n_edits))).op("Softmax", axis=1) @ constant(
            np.eye(n_edits)[:, K:]
        )
        p = p @ constant(np.eye(K, n_edits)) * (unseen * -1.0 + 1.0) + unseen @ constant(np.eye(n_edits)[K:])
    edit: Tensor = functools.reduce(
        operator.add,
        (
            p @ constant(np.eye(n_edits)[:, [s]]) * product(q + K + s * r, q + K + (s + 1) * r)
            for s in range(n_edits)
        ),
    )
    edit = edit * m.strength
    edit = edit if folded.back is None else edit @ constant(folded.back)
    return X + edit


def _staged(X: Tensor, m: Any) -> Tensor:
    n_stages, _, _, n_network = m.sizes
    constant = X.graph.constant
    weights = fold_stages(m).cast(lambda array: array.astype(np.float32))
    n_anchor = 0 if m.anchor_offset is None else len(m.anchor_offset)
    width = len(weights.constant) - n_anchor  # number of columns of all stages
    # (stage, d, H + J): the product is then stacked by stage, as Scan requires.
    first = weights.first[:, :width].reshape(m.n_features, n_stages, -1).swapaxes(0, 1)
    h = (X - constant(weights.center)) * constant(weights.inverse_scale)
    fraction = np.ones((n_stages, 1, 1))
    fraction[-1] = m.fraction if n_stages > 1 else 1.0
    scanned = {
        "first": h @ constant(first) + constant(weights.constant[:width].reshape(n_stages, 1, -1)),
        "linear_gate": constant(weights.linear_gate),
        "linear_gram": constant(linear_gram(weights.linear_gate)),
        "fraction": constant(fraction),
    }
    if n_network:
        names = ("hidden_gate", "output", "gradient_gate")
        scanned |= {name: constant(getattr(weights, name)) for name in names}
    point = None
    if n_network and weights.anchor_gate is not None:
        scanned["anchor_gate"] = constant(weights.anchor_gate)
        point = h @ constant(weights.first[:, width:]) + constant(weights.constant[width:])
    if weights.start is None:
        z = X @ constant(np.zeros((m.n_features, m.rank), dtype=np.float32))
    else:
        z = h @ constant(weights.start) + constant(weights.start_constant)
    z = X.graph.scan(lambda z, now: _stage(z, now, m, point), z, scanned, ["n", m.rank])
    # The initial Δz is part of the first stage, so a fraction of the only stage scales all of Δz.
    strength = float(m.strength * (m.fraction if n_stages == 1 else 1.0))
    return X + (z * strength) @ constant(weights.back)


def _stage(z: Tensor, now: dict[str, Tensor], m: Any, point: Tensor | None) -> Tensor:
    """Return the gate coordinates after one stage: one iteration of the loop in ``run_stages``.

    Scores, residuals and Gram entries are separate columns of shape (n, 1), or (1, 1) if equal for all rows.
    ``point`` has the coordinates of the anchored point if its scores are the target of the network's scores.
    """
    _, L, H, N = m.sizes
    first, linear_gate, linear_gram = now["first"], now["linear_gate"], now["linear_gram"]
    rows = [linear_gate.cut(0, j) for j in range(L)]  # A_j, the gated gradients
    e = [(first.cut(1, H + j) + (z * rows[j]).sum()).cast("float64") for j in range(L)]
    if N:
        u = first.cut(1, 0, H) + z @ now["hidden_gate"]
        below = _normal_cdf(u)
        density = (u * u * -0.5).op("Exp") * math.sqrt(0.5 / math.pi)  # φ(u)
        value = u * below
        if point is not None:
            anchored = first.cut(1, 0, H) + point @ now["anchor_gate"]
            value = value - anchored * _normal_cdf(anchored)
        scores = value @ now["output"]
        gradients = (below + u * density) @ now["gradient_gate"]
        rows += [gradients.cut(1, j * m.rank, (j + 1) * m.rank) for j in range(N)]
        e += [(scores.cut(1, j) + first.cut(1, H + L + j)).cast("float64") for j in range(N)]
    J = L + N
    # With more scores than gate directions the Gram matrix is singular, and float32 is not precise enough.
    wide = [row.cast("float64") for row in rows]
    gram = [
        [linear_gram.cut(0, i).cut(1, j) if i < L else (wide[i] * wide[j]).sum() for j in range(i + 1)]
        for i in range(J)
    ]
    weight = [(gram[j][j] + m.stabilizer * m.stabilizer).sqrt().op("Reciprocal") for j in range(J)]
    y = _step_coefficients(
        [[gram[i][j] * weight[i] * weight[j] for j in range(i + 1)] for i in range(J)],
        [e[j] * weight[j] for j in range(J)],
        m.damping,
        m.radius,
    )
    # Nearly parallel gradients have large opposite coefficients, so their sum is also float64.
    step = _sum(wide[j] * (y[j] * weight[j] * now["fraction"]) for j in range(J))
    return z - step.cast("float32")


def _normal_cdf(u: Tensor) -> Tensor:
    """Return Φ(u)."""
    return (u * math.sqrt(0.5)).op("Erf") * 0.5 + 0.5


def _step_coefficients(
    gram: list[list[Tensor]], e: list[Tensor], damping: float, radius: float
) -> list[Tensor]:
    """Return y with Δz = -Aᵀy, like :func:`mgpa.trust_region.step_coefficients`, but without eigenvectors.

    ``gram`` is the lower triangle. Newton's method on 1/‖Δz(ν)‖ starts left of the root, because
    ‖Aᵀe‖ / (tr G + τ + ν) ≤ ‖Δz(ν)‖, and increases.
    """
    J = range(len(e))

    def times_gram(v: list[Tensor]) -> list[Tensor]:
        return [_sum(gram[max(i, j)][min(i, j)] * v[j] for j in J) for i in J]

    def dot(v: list[Tensor], w: list[Tensor]) -> Tensor:
        return _sum(v[j] * w[j] for j in J)

    def newton(nu: Tensor) -> tuple[Tensor, Tensor]:
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


def _ldl_solver(gram: list[list[Tensor]], shift: Tensor) -> Callable[[list[Tensor]], list[Tensor]]:
    """Return v ↦ (G + shift I)⁻¹ v from factors L D Lᵀ; positive definite matrices need no pivots."""
    J = len(gram)
    lower: list[list[Tensor]] = []
    diagonal: list[Tensor] = []
    for i in range(J):
        row: list[Tensor] = []  # L_ij and L_ij d_j
        scaled: list[Tensor] = []
        for j in range(i):
            scaled.append(_minus(gram[i][j], [scaled[k] * lower[j][k] for k in range(j)]))
            row.append(scaled[j] / diagonal[j])
        lower.append(row)
        diagonal.append(_minus(gram[i][i] + shift, [scaled[k] * row[k] for k in range(i)]))

    def solve(v: list[Tensor]) -> list[Tensor]:
        x: list[Tensor] = []
        for i in range(J):
            x.append(_minus(v[i], [lower[i][k] * x[k] for k in range(i)]))
        x = [x[i] / diagonal[i] for i in range(J)]
        for i in reversed(range(J)):
            x[i] = _minus(x[i], [lower[k][i] * x[k] for k in range(i + 1, J)])
        return x

    return solve


def _sum(terms: Iterable[Tensor]) -> Tensor:
    return functools.reduce(operator.add, terms)


def _minus(value: Tensor, terms: Iterable[Tensor]) -> Tensor:
    return functools.reduce(operator.sub, terms, value)


class Graph:
    """An ONNX graph under construction; :class:`Tensor` arithmetic adds nodes, also inside loops."""

    def __init__(self) -> None:
        self._scopes: list[tuple[list[Any], list[Any]]] = [([], [])]
        self._names = itertools.count()

    def node(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        output = output or f"{kind}_{next(self._names)}"
        # Nodes get names, because onnxruntime 1.18 to 1.20 can give unnamed nodes the same name.
        self._scopes[-1][0].append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def constant(self, array: NDArray[Any]) -> Tensor:
        """Store an array in the graph."""
        name = f"constant_{next(self._names)}"
        self._scopes[-1][1].append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return Tensor(self, name, str(array.dtype))

    def value(self, kind: str, dtype: str) -> Tensor:
        """Return a new value that a loop passes to its body."""
        return Tensor(self, f"{kind}_{next(self._names)}", dtype)

    def close(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        """Return the nodes added since the scope was opened, as an ONNX graph."""
        nodes, constants = self._scopes.pop()
        return helper.make_graph(nodes, name, inputs, outputs, initializer=constants)

    def scan(
        self, body: Callable[[Tensor, dict[str, Tensor]], Tensor], state: Tensor,
        scanned: dict[str, Tensor], shape: list[Any],
    ) -> Tensor:  # fmt: skip
        """Apply ``body`` to each slice along the first axis of ``scanned``; return the last state.

        ``shape`` is the shape of the state, which onnxruntime does not infer.
        """
        before = self.value("state", state.dtype)
        slices = {name: self.value(name, value.dtype) for name, value in scanned.items()}
        self._scopes.append(([], []))
        outputs = [body(before, slices).declare(shape)]
        graph = self.close("stage", [value.declare() for value in (before, *slices.values())], outputs)
        names = [value.name for value in (state, *scanned.values())]
        return Tensor(self, self.node("Scan", names, body=graph, num_scan_inputs=len(scanned)), state.dtype)

    def loop(self, body: Callable[[Tensor], tuple[Tensor, Tensor]], state: Tensor, max_steps: int) -> Tensor:
        """Repeat ``body``, which returns the next state and whether to continue."""
        step, go_on = self.value("step", "int64"), self.value("go_on", "bool")
        before, limit = self.value("state", state.dtype), self.constant(np.array(max_steps))
        self._scopes.append(([], []))
        after, again = body(before)
        inputs = [step.declare([]), go_on.declare([]), before.declare()]
        graph = self.close("newton", inputs, [again.declare([]), after.declare()])
        return Tensor(self, self.node("Loop", [limit.name, "", state.name], body=graph), state.dtype)


def _operator(kind: str) -> Callable[[Tensor, Tensor | float], Tensor]:
    return lambda value, other: value.op(kind, other)


class Tensor:
    """A tensor of the graph; arithmetic on it adds nodes."""

    def __init__(self, graph: Graph, name: str, dtype: str) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def declare(self, shape: list[Any] | None = None) -> Any:
        """Return the declaration of this tensor as an input or output of a graph."""
        return helper.make_tensor_value_info(
            self.name, helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)), shape
        )

    def op(self, kind: str, *others: Tensor | float, dtype: str = "", **attributes: Any) -> Tensor:
        """Return the result of an operator, in this tensor's type unless ``dtype`` is given."""
        constant = self.graph.constant
        values = [v if isinstance(v, Tensor) else constant(np.array(v, self.dtype)) for v in (self, *others)]
        name = self.graph.node(kind, [value.name for value in values], **attributes)
        return Tensor(self.graph, name, dtype or self.dtype)

    __add__ = _operator("Add")
    __sub__ = _operator("Sub")
    __mul__ = _operator("Mul")
    __truediv__ = _operator("Div")
    __matmul__ = _operator("MatMul")
    maximum = _operator("Max")

    def sqrt(self) -> Tensor:
        """Return the elementwise square root."""
        return self.op("Sqrt")

    def sum(self) -> Tensor:
        """Return the sum over columns, keeping the axis."""
        return self.op("ReduceSum", self.graph.constant(np.array([1])), keepdims=1)

    def any(self) -> Tensor:
        """Return whether any entry is true, as a scalar."""
        # Uses a sum, because onnxruntime 1.18 to 1.20 cannot take the maximum over zero rows.
        return self.cast("int32").op("ReduceSum", keepdims=0).cast("bool")

    def cast(self, dtype: str) -> Tensor:
        """Return the numbers in another type."""
        return self.op("Cast", dtype=dtype, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def cut(self, axis: int, start: int, stop: int | None = None) -> Tensor:
        """Return entries ``start`` to ``stop`` of an axis (default: only ``start``), keeping the axis."""
        bounds = [start, start + 1 if stop is None else stop, axis]
        return self.op("Slice", *(self.graph.constant(np.array([bound])) for bound in bounds))
