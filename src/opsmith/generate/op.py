"""Pointwise: an Op whose kernels are generated from its reference."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.compiler import is_compiling

from ..errors import (
    InPlaceGradientError,
    OutGradientError,
    ReferenceRunsWarning,
    SharedMemoryError,
    ToolchainError,
    ToolMissingError,
)
from ..kernels import Kernel
from ..operator.family import Variant
from ..operator.kernel_table import DEFAULT, REFERENCE
from ..operator.op import Op, declared
from ..reference.forms import Out, Plain
from ..reference.tensors import overlap, storage_of
from ..runtime.operator import Operator
from . import launch, native
from .batching import by_broadcasting
from .compiler import Arguments, Compiler
from .devices import DEVICES
from .emulated import Emulated
from .reference import Elementwise, ElementwiseFunctional, Pulled
from .source import example, texts
from .symbolic import Symbolic, SymbolicVjp, has_floats, is_symbolic, with_tensors
from .trace import is_static


def pointwise(name: str, mutates_args: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Pointwise]:
    """Makes a complete operator with generated kernels of a plain PyTorch function of elements.

    >>> @opsmith.pointwise("mylib::scale_bias_relu")
    ... def scale_bias_relu(x: torch.Tensor, bias: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    ...     return torch.relu(x * scale + bias)

    Tensors broadcast and promote as in PyTorch; floats and ints are arguments of the kernel; on a bool or a string the
    function may branch. One fused CUDA kernel and one fused C++ kernel a direction: the gradient of a broadcast input
    is summed inside the backward kernel, and gradients of second order are kernels too. Whatever is not elementwise is
    refused here, with its line: declare that with `opsmith.op`.

    Args:
        name: 'namespace::name', as torch.ops will know it.
        mutates_args: the tensors the function changes in place; it then returns None and calling the op returns them.
    """

    def declare(function: Callable[..., Any]) -> Pointwise:
        return declared(Pointwise, name, function, mutates_args, "keep")

    return declare


class Pointwise(Op):
    """An Op made by `opsmith.pointwise`."""

    compiler: Compiler

    def _make_plain(self) -> Plain:
        self.compiler = Compiler(self.name, self.reference, self.signature)
        return Elementwise(self.compiler)

    def _make_variant(self, name: str, generated: bool = True) -> Variant:
        return PointwiseVariant(name, self._plain, self.autocast, self.compiler, generated)

    def _generates(self, choice: str) -> bool:
        return choice != REFERENCE

    def _made(self, operator_name: str, choice: str, emulated: bool = False) -> Variant:
        variant = super()._made(operator_name, choice)
        if emulated and isinstance(variant, PointwiseVariant):
            variant.emulate_generated()
        return variant

    def source(
        self, device: str, *args: Any, backward: bool = False, dtype: torch.dtype = torch.float32, **kwargs: Any
    ) -> str:
        """The generated source for 'cuda' or 'cpu'. It depends on dtypes and layouts: those of the given arguments,
        else of the op's first sample, else of contiguous tensors of one shape."""
        self._check_device(device)
        if args or kwargs:
            values: Sequence[Any] = self._bound(args, kwargs)
        elif self.samples is not None:
            sample = self.samples_for("cpu", dtype)[0]
            values = self._bound(sample.args, dict(sample.kwargs))
        else:
            values = example(self.compiler, dtype)
        return "\n".join(texts(self.compiler, device, values, backward).values())


class PointwiseVariant(Variant):
    """name, name_backward and name_backward_backward, each with generated kernels."""

    def __init__(self, name: str, plain: Plain, autocast: str, compiler: Compiler, generated: bool) -> None:
        self.compiler = compiler
        self.generated = generated
        super().__init__(name, plain, autocast)

    def _make(self, name: str, plain: Plain) -> None:
        compiler = self.compiler
        self.functional = None
        self.out = None
        source = ElementwiseFunctional(plain, f"{name}_functional") if self.inplace else plain
        first = Pulled(source, f"{name}_backward", compiler, compiler.backward_arguments)
        second = Pulled(first, f"{name}_backward_backward", compiler, compiler.second_arguments)
        self.second = self._operator(second.name, second)
        self.backward = self._operator(first.name, first, backward=self.second)
        if self.inplace:
            self.functional = self._operator(source.name, source, backward=self.backward)
            self.forward = self._operator(name, plain, refusal=InPlaceGradientError)
        else:
            self.forward = self._operator(name, plain, backward=self.backward)
            self.out = self._operator(
                f"{name}_out", Out(plain, self.forward.overload, f"{name}_out"), refusal=OutGradientError
            )
        self.symbolic: Operator | None = None
        if not self.inplace and has_floats(plain.signature):
            symbolic = Symbolic(self.forward, f"{name}__symbolic")
            pulled = self._operator(f"{symbolic.name}_backward", SymbolicVjp(symbolic, f"{symbolic.name}_backward"))
            self.symbolic = self._operator(symbolic.name, symbolic, backward=pulled)
        for operator, take in (
            (self.differentiable, compiler.forward_arguments),
            (self.backward, compiler.backward_arguments),
            (self.second, compiler.second_arguments),
        ):
            operator.derived_vmap = functools.partial(by_broadcasting, take)
        if self.generated:
            self._generate()

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.symbolic is not None and is_compiling() and "out" not in kwargs:
            signature = self.forward.signature
            values = signature.bind_call(args, kwargs)
            if is_symbolic(signature, values):
                return self.symbolic.overload(*with_tensors(signature, values))
        return super().__call__(args, kwargs)

    def _generate(self) -> None:
        compiler = self.compiler
        saves = _saved_names(compiler)
        for device in DEVICES:
            for operator, take, role in self._generated_operators():
                _set_generated(operator, compiler, device, take, role, saves if role == "backward" else None)
        self.differentiable.saves_suffice = True
        self.differentiable.backward_replaced()

    def _generated_operators(self) -> list[tuple[Operator, Callable[[Sequence[Any]], Arguments], str]]:
        """Each operator that has generated kernels, how it takes its arguments, and its role."""
        compiler = self.compiler
        found: list[tuple[Operator, Callable[[Sequence[Any]], Arguments], str]] = [
            (self.second, compiler.second_arguments, "second"),
            (self.backward, compiler.backward_arguments, "backward"),
            (self.differentiable, compiler.forward_arguments, "forward"),
        ]
        if self.inplace:
            found.append((self.forward, compiler.forward_arguments, "inplace"))
        elif self.out is not None:
            found.append((self.out, compiler.forward_arguments, "out"))
        return found

    def emulate_generated(self) -> None:
        """The CUDA kernels, run by the emulator, in the place of those for the CPU."""
        saves = _saved_names(self.compiler)
        for operator, take, role in self._generated_operators():
            function = _Generated(self.compiler, "cpu", take, role, operator, _emulated())
            by_class = saves if role == "backward" else None
            kernel = Kernel(DEFAULT, "cpu", function, "strided", saves_by_class=by_class, checked=True)
            kernel.handed_on = self.compiler.handed_on if role == "backward" else None
            operator.set_kernel(kernel)
        self.differentiable.backward_replaced()


@functools.cache
def _emulated() -> Emulated:
    return Emulated()


def _saved_names(compiler: Compiler) -> dict[str, tuple[str, ...]]:
    names = [argument.name for argument in compiler.signature.tensors]
    others = [argument.name for argument in compiler.signature.arguments if not argument.is_tensor]
    return {
        label: (
            *(names[slot] for slot in sorted(saves.inputs)),
            *others,
            *(compiler.result_names[index] for index in sorted(saves.results)),
        )
        for label, saves in compiler.saves.items()
    }


def _set_generated(
    operator: Operator,
    compiler: Compiler,
    device: str,
    take: Callable[[Sequence[Any]], Arguments],
    role: str,
    saves: dict[str, tuple[str, ...]] | None = None,
) -> None:
    function = _Generated(compiler, device, take, role, operator)
    statics = tuple(not argument.is_tensor and is_static(argument) for argument in operator.signature.arguments)
    kernel = Kernel(DEFAULT, device, function, "strided", saves_by_class=saves, statics=statics, checked=True)
    kernel.handed_on = compiler.handed_on if role == "backward" else None
    operator.set_kernel(kernel)


class _Generated:
    """A generated kernel as the operator's function: from its arguments to its results."""

    def __init__(
        self,
        compiler: Compiler,
        device: str,
        take: Callable[[Sequence[Any]], Arguments],
        role: str,
        operator: Operator,
        emulated: Emulated | None = None,
    ) -> None:
        self.compiler = compiler
        self.operator = operator
        self.emulated = emulated is not None
        self.device = emulated or DEVICES[device]
        self.device_name = device
        self.take = take
        self.role = role
        self.__name__ = f"generated {'CUDA' if device == 'cuda' else 'C++'}"
        self.__module__ = compiler.function.__module__
        self.__qualname__ = self.__name__

    def __call__(self, *args: Any) -> Any:
        outs: list[torch.Tensor] | None = None
        if self.role == "out":
            count = len(self.compiler.result_names)
            args, outs = args[:-count], list(args[-count:])
        arguments = self.take(args)
        tensors = arguments.tensors
        if self.role == "inplace":
            pairs = zip(self.compiler.signature.tensors, tensors, strict=True)
            outs = [tensor for argument, tensor in pairs if argument.mutated and tensor is not None]
            self._refuse_shared(tensors)
        place = _device_of(tensors)
        prepared = self.compiler.prepared(arguments) if _usable(self.device_name) else None
        if prepared is None:
            return NotImplemented
        if place.type != "cpu" or any(t is not None and t.device != place for t in tensors):
            tensors = [t if t is None or t.device == place else t.to(place) for t in tensors]
        scalars = self.compiler.scalars(prepared, arguments.values)
        try:
            if outs is not None and not _fits(prepared, outs, tensors):
                return NotImplemented
            direct = outs if outs is not None and _can_write(outs, tensors) else None
            results = launch.run(self.device, prepared, tensors, scalars, place.index or 0, direct)
        except launch.ShapesDiffer:
            return NotImplemented
        except ToolMissingError as error:
            if self.emulated:
                raise
            _unusable[self.device_name] = str(error)  # no other kernel can be compiled either
            self._warn(error, "pointwise kernels")
            return NotImplemented
        except launch.NotCompiled as failed:
            if self.emulated:
                raise failed.error from None
            if failed.first:
                self._warn(failed.error, f"a kernel of {self.operator.name}")
            return NotImplemented
        if outs is not None and direct is None:
            for out, result in zip(outs, results, strict=True):
                out.copy_(result)
            return None
        if not self.emulated:
            native.tell(
                self.operator, self.role, self.device_name, place.index or 0, self.compiler, prepared, len(tensors)
            )
        if outs is not None:
            return None
        if self.role in ("backward", "second"):
            return results
        return results[0] if len(results) == 1 else tuple(results)

    def _warn(self, error: ToolchainError, what: str) -> None:
        warnings.warn(ReferenceRunsWarning(self.device_name, str(error), what), stacklevel=3)

    def _refuse_shared(self, tensors: Sequence[torch.Tensor | None]) -> None:
        """As the op's own call does, for those who call torch.ops: a tensor that is changed must not be given twice."""
        arguments = self.compiler.signature.tensors
        for index, (argument, tensor) in enumerate(zip(arguments, tensors, strict=True)):
            for other, second in zip(arguments[:index], tensors[:index], strict=True):
                if (argument.mutated or other.mutated) and tensor is not None and second is not None:
                    if overlap(tensor, second):
                        raise SharedMemoryError(self.compiler.name, other.name, argument.name)


def _device_of(tensors: Sequence[torch.Tensor | None]) -> torch.device:
    """The device of a call: a 0-dim CPU tensor may accompany tensors of another."""
    found = torch.device("cpu")
    for tensor in tensors:
        if tensor is not None:
            found = tensor.device
            if found.type != "cpu":
                return found
    return found


def _fits(prepared: launch.Prepared, outs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether results can go into these as they are. Of the rest the reference tells in words."""
    shape = launch.full_shape(prepared.level, tensors)
    return all(
        tuple(out.shape) == shape and out.dtype == dtype for out, dtype in zip(outs, prepared.level.dtypes, strict=True)
    )


def _can_write(outs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether a kernel can write straight into these: no element twice, and sharing no memory with an input but as the
    very same tensor."""
    for number, out in enumerate(outs):
        if any(_ranges_meet(out, other) for other in outs[:number]):
            return False
        if any(stride == 0 and size > 1 for stride, size in zip(out.stride(), out.shape, strict=True)):
            return False
        for tensor in tensors:
            if tensor is None or not _ranges_meet(out, tensor):
                continue
            if tensor.data_ptr() != out.data_ptr() or tensor.stride() != out.stride() or tensor.shape != out.shape:
                return False
    return True


def _ranges_meet(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether the memory between the first and the last element of two tensors has bytes in common."""
    if storage_of(first) != storage_of(second):
        return False
    (begin, end), (other_begin, other_end) = _range(first), _range(second)
    return begin < other_end and other_begin < end


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


_unusable: dict[str, str] = {}
"""Devices for which this machine lacks the compiler, and the reason."""


def _usable(device: str) -> bool:
    return device not in _unusable
