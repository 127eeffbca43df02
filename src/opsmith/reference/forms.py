"""A plain PyTorch function as an operator's specification: its results and its shape rule.

A reference runs in three ways. `run` is a kernel: below autograd, on plain tensors, its results settled (contiguous,
aliasing nothing). `composite` replaces the operator on the Autograd key: torch's own operators are recorded there, at
the current level of any transform. `transformed` is called like a user's function, inside a torch.func transform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.compiler import is_compiling

from ..errors import OutMismatchError, ReferenceResultError, UndeclaredMutationError, definition, described
from .purity import Audit, RandomState
from .signature import Kind, Signature
from .tensors import contiguous_clone, described_value, on_meta, settle, version_of

SMALL = 1 << 20  # bytes of inputs: below this, running the reference cannot run out of memory


class Reference:
    """An operator's specification."""

    name: str
    signature: Signature
    # Whether results are laid out after the inputs. Otherwise they are contiguous.
    keeps_layout = False
    elementwise = False
    """Whether it is known that each element of a result depends on the elements at its position alone."""

    def laid_out(self, returned: Any, args: Sequence[Any]) -> Any:
        """What a kernel returned for contiguous copies of `args`, with the strides that `args` themselves lead to."""
        return returned

    def composite(self, *args: Any) -> Any:
        raise NotImplementedError

    def transformed(self, *args: Any) -> Any:
        return self.composite(*args)

    def run(self, *args: Any) -> Any:
        raise NotImplementedError

    def fake(self, *args: Any) -> Any:
        raise NotImplementedError

    def expected(self, *args: Any) -> Any:
        """Tensors like the results for these real arguments, without importing fake tensors."""
        return self.fake(*on_meta(self.signature, args))


class Plain(Reference):
    """The author's function."""

    def __init__(self, function: Callable[..., Any], signature: Signature, name: str) -> None:
        self.function = function
        self.signature = signature
        self.name = name
        self.audit: Audit | None = None

    def __call__(self, *args: Any) -> Any:
        """The author's function on all arguments in schema order, outside any autocast region."""
        if is_compiling():  # dynamo traces torch.autocast, but not the guard that does the same at a tenth of the cost
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                return self._call(args)
        with torch._C._DisableAutocast():
            return self._call(args)

    def _call(self, args: Sequence[Any]) -> Any:
        positional, keyword = self.signature.arranged(args)
        return self.function(*positional, **keyword)

    def composite(self, *args: Any) -> Any:
        results = self.results(self(*args))
        if results is None:
            return None
        layout = torch.preserve_format if self.keeps_layout else torch.contiguous_format
        if is_compiling():  # A tracer does not see aliases; an extra copy is fused away.
            return self._packed([result.clone(memory_format=layout) for result in results])
        inputs = [tensor for tensor in self.signature.flatten(args) if tensor is not None]
        settled: list[torch.Tensor] = []
        for result in results:
            result = result if self.keeps_layout else result.contiguous()
            aliases = result._is_view() or any(result is other for other in (*inputs, *settled))
            settled.append(result.clone() if aliases else result)
        return self._packed(settled)

    def run(self, *args: Any) -> Any:
        named = self.signature.named_tensors(args)
        # The tensors that the function must not change, each with its argument's name.
        inputs = [(argument.name, t) for argument, t in named if t is not None and not argument.mutated]
        versions = [version_of(tensor) for _, tensor in inputs]
        if self.audit is None:
            audit = Audit(self.name, self.function, inputs)
            with audit:
                returned = self(*args)
            self.audit = audit
        else:
            returned = self(*args)
        for (argument, tensor), version in zip(inputs, versions, strict=True):
            if version_of(tensor) != version:
                culprit = f"the reference {described(self.function)}"
                raise UndeclaredMutationError(self.name, argument, culprit, definition(self.function))
        results = self.results(returned)
        if results is None:
            return None
        return self._packed(settle(results, [tensor for _, tensor in inputs]))

    def fake(self, *args: Any) -> Any:
        results = self.results(self(*args))
        if results is None:
            return None
        return self._packed([torch.empty(r.shape, dtype=r.dtype, device=r.device) for r in results])

    def expected(self, *args: Any) -> Any:
        # Some of torch's shape rules are in Python, and the first use of one imports dynamo, which takes over a second.
        # So run the reference itself, unless it might not fit into memory.
        tensors = [tensor for tensor in self.signature.flatten(args) if tensor is not None]
        small = sum(tensor.nbytes for tensor in tensors) <= SMALL
        if small or tensors[0].is_cuda:
            state = RandomState(tensors)
            named = self.signature.named_tensors(args)
            copies = [tensor.clone() if argument.mutated else tensor for argument, tensor in named]
            try:
                return self.run(*self.signature.unflatten(args, copies))
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
            finally:
                state.restore()
        try:
            return self.fake(*on_meta(self.signature, args))
        except Exception:  # The reference looks at values, which meta tensors do not have.
            return self.run(*args)

    def results(self, returned: Any) -> list[torch.Tensor] | None:
        """What the function returned as a list, checked against its annotation; None for an in-place op."""
        kinds = self.signature.results
        if not kinds:
            return None
        if kinds == (Kind.TENSOR,):
            if isinstance(returned, torch.Tensor):
                return self._strided([returned])
            raise ReferenceResultError(self.name, self.function, "one Tensor", described_value(returned))
        listed = list(returned) if isinstance(returned, (tuple, list)) else None
        expected = "a list of Tensors" if self.signature.returns_list else f"{len(kinds)} Tensors"
        if listed is None or not all(isinstance(result, torch.Tensor) for result in listed):
            raise ReferenceResultError(self.name, self.function, expected, described_value(returned))
        if not self.signature.returns_list and len(listed) != len(kinds):
            raise ReferenceResultError(self.name, self.function, expected, f"{len(listed)}")
        return self._strided(listed)

    def _strided(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        for result in results:
            if result.layout is not torch.strided:
                layout = str(result.layout).removeprefix("torch.")
                raise ReferenceResultError(self.name, self.function, "strided tensors, as every op does,", layout)
        return results

    def _packed(self, results: list[torch.Tensor]) -> Any:
        if self.signature.returns_list:
            return results
        return results[0] if len(results) == 1 else tuple(results)


class Functional(Plain):
    """An in-place reference as a function: it changes copies and returns them."""

    def __init__(self, inplace: Plain, name: str) -> None:
        function = on_copies(inplace, inplace.signature)
        function.__name__ = inplace.function.__name__
        super().__init__(function, inplace.signature.functional(), name)

    def _call(self, args: Sequence[Any]) -> Any:
        return self.function(*args)


def on_copies(changing: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """An in-place function that takes all arguments by position, on copies of the tensors it changes, which it then
    returns."""

    def function(*args: Any) -> Any:
        pairs = zip(signature.arguments, args, strict=True)
        copied = [contiguous_clone(value) if argument.mutated else value for argument, value in pairs]
        return NotImplemented if changing(*copied) is NotImplemented else signature.changed(copied)

    return function


class Out(Plain):
    """The out= form: the operator itself, then a copy into the given tensors."""

    def __init__(self, of: Plain, operator: Callable[..., Any], name: str) -> None:
        count = len(of.signature.results)

        def function(*args: Any) -> None:
            results = of.results(operator(*args[:-count]))
            assert results is not None
            for out, result in zip(args[-count:], results, strict=True):
                if out.shape != result.shape or out.dtype != result.dtype:
                    raise OutMismatchError(of.name, described_value(result), described_value(out))
                out.copy_(result)

        function.__name__ = of.function.__name__
        super().__init__(function, of.signature.out_variant(), name)

    def _call(self, args: Sequence[Any]) -> Any:
        return self.function(*args)
