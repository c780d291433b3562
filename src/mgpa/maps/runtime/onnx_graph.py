"""Writing ONNX graphs as arithmetic: every operation on a :class:`Tensor` adds a node."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Floats = NDArray[Any]


class Graph:
    """Collects nodes as :class:`Tensor` arithmetic happens; bodies of loops are written in the same way."""

    def __init__(self) -> None:
        self._scopes: list[tuple[list[Any], list[Any]]] = [([], [])]
        self._names = itertools.count()

    def node(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        output = output or f"{kind}_{next(self._names)}"
        # Named, because onnxruntime 1.18 to 1.20 give one name to two nodes that they make of nameless ones.
        self._scopes[-1][0].append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def constant(self, array: Floats) -> Tensor:
        """Store an array in the graph."""
        name = f"constant_{next(self._names)}"
        self._scopes[-1][1].append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return Tensor(self, name, str(array.dtype))

    def value(self, kind: str, dtype: str) -> Tensor:
        """Return a value that a loop provides to its body."""
        return Tensor(self, f"{kind}_{next(self._names)}", dtype)

    def close(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        """Return what was collected since the scope was opened as an ONNX graph."""
        nodes, constants = self._scopes.pop()
        return helper.make_graph(nodes, name, inputs, outputs, initializer=constants)

    def scan(
        self,
        body: Callable[[Tensor, dict[str, Tensor]], Tensor],
        state: Tensor,
        scanned: dict[str, Tensor],
        shape: list[Any],
    ) -> Tensor:
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
        return Tensor(self, name, state.dtype)

    def loop(self, body: Callable[[Tensor], tuple[Tensor, Tensor]], state: Tensor, max_steps: int) -> Tensor:
        """Repeat ``body``, which returns the next state and whether to go on."""
        step, go_on = self.value("step", "int64"), self.value("go_on", "bool")
        before = self.value("state", state.dtype)
        limit = self.constant(np.array(max_steps))
        self._scopes.append(([], []))
        after, again = body(before)
        inputs = [step.declare([]), go_on.declare([]), before.declare()]
        graph = self.close("newton", inputs, [again.declare([]), after.declare()])
        name = self.node("Loop", [limit.name, "", state.name], body=graph)
        return Tensor(self, name, state.dtype)


class Tensor:
    """One tensor of the graph. Arithmetic on it adds nodes."""

    def __init__(self, graph: Graph, name: str, dtype: str) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def declare(self, shape: list[Any] | None = None) -> Any:
        """Return the declaration that inputs and outputs of a graph need."""
        return helper.make_tensor_value_info(
            self.name, helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)), shape
        )

    def op(self, kind: str, *others: Tensor | float, dtype: str = "", **attributes: Any) -> Tensor:
        """Return the result of an operator, of this value's type unless ``dtype`` says otherwise."""
        values = [self, *(self._constant(other) for other in others)]
        name = self.graph.node(kind, [value.name for value in values], **attributes)
        return Tensor(self.graph, name, dtype or self.dtype)

    def _constant(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return other
        return self.graph.constant(np.array(other, dtype=self.dtype))

    def __add__(self, other: Tensor | float) -> Tensor:
        return self.op("Add", other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self.op("Sub", other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self.op("Mul", other)

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self.op("Div", other)

    def __rtruediv__(self, other: float) -> Tensor:
        return self._constant(other) / self

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.op("MatMul", other)

    def sqrt(self) -> Tensor:
        """Return the elementwise root."""
        return self.op("Sqrt")

    def maximum(self, other: Tensor | float) -> Tensor:
        """Return the elementwise maximum."""
        return self.op("Max", other)

    def sum(self) -> Tensor:
        """Sum the columns, keeping the axis."""
        return self.op("ReduceSum", self.graph.constant(np.array([1])), keepdims=1)

    def any(self) -> Tensor:
        """Return whether any entry is true, as a scalar."""
        # A sum, because onnxruntime 1.18 to 1.20 refuse the maximum of no rows.
        return self.cast("int32").op("ReduceSum", keepdims=0).cast("bool")

    def cast(self, dtype: str) -> Tensor:
        """Return the same numbers in another type."""
        return self.op("Cast", dtype=dtype, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def cut(self, axis: int, start: int, stop: int | None = None) -> Tensor:
        """Return entries ``start`` to ``stop`` of an axis, or the one at ``start``, keeping the axis."""
        bounds = [start, start + 1 if stop is None else stop, axis]
        return self.op("Slice", *(self.graph.constant(np.array([bound])) for bound in bounds))

    def named(self, name: str) -> Tensor:
        """Return the same tensor under a name of one's own."""
        self.graph.node("Identity", [self.name], output=name)
        return Tensor(self.graph, name, self.dtype)
