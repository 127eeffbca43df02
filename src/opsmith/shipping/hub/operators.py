"""The operators of a kernel for the Hub, on torch alone: references, shape rules, gradients, in-place and out= forms.

The bundler copies this code into the generated file, so it must not need opsmith at run time; it also copies the
functions of other modules that this code calls.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ...generate.reference import result_strides
from ...reference.tensors import dtype_class, settle
from .recording import record


class Operator:
    """One operator of the dispatcher: its arguments, and how its reference runs."""

    backward: Gradient | None = None

    def __init__(self, library: torch.library.Library, schema: str, defaults: Mapping[str, Any]) -> None:
        self.name = schema.partition("(")[0]
        operators = getattr(torch.ops, library.ns)
        if not hasattr(operators, self.name):  # a shared library defines its operators itself
            library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        self.schema = schema
        self.library = library
        self.overload = getattr(operators, self.name).default
        arguments = self.overload._schema.arguments
        self.names = [argument.name for argument in arguments]
        self.kinds = [str(argument.type) for argument in arguments]
        self.keyword_only = [argument.kwarg_only for argument in arguments]
        self.changed = [each.alias_info is not None and each.alias_info.is_write for each in arguments]
        self.defaults = defaults
        self.raised: dict[int, Exception] = {}  # by thread
        self.returns_list = [str(each.type) for each in self.overload._schema.returns] == ["List[Tensor]"]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Every argument in schema order."""
        rest = self.names[len(args) :]
        return [*args, *(kwargs[name] if name in kwargs else self.defaults.get(name) for name in rest)]

    def arranged(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """All arguments as (positional, keyword-only)."""
        count = len(values) - sum(self.keyword_only)
        return list(values[:count]), dict(zip(self.names[count:], values[count:], strict=True))

    def call(self, values: Sequence[Any]) -> Any:
        positional, keyword = self.arranged(values)
        return self.overload(*positional, **keyword)

    def call_below(self, values: Sequence[Any]) -> Any:
        """The call below autograd. An error of the reference is raised unchanged, even if it passed through C++."""
        thread = threading.get_ident()
        self.raised.pop(thread, None)
        try:
            with torch._C._AutoDispatchBelowAutograd():
                return self.call(values)
        except RuntimeError as error:
            raised = self.raised.pop(thread, None)
            if raised is None:
                raise
            raise raised from error

    def tensors(self, values: Sequence[Any]) -> list[torch.Tensor | None]:
        """The tensors among the arguments; a list gives one entry for each element."""
        found: list[torch.Tensor | None] = []
        for kind, value in zip(self.kinds, values, strict=True):
            if kind in ("Tensor", "Optional[Tensor]"):
                found.append(value)
            elif "Tensor" in kind:
                found += value
        return found

    def owners(self, values: Sequence[Any]) -> list[str]:
        """For each of these tensors the name of its argument."""
        found: list[str] = []
        for name, kind, value in zip(self.names, self.kinds, values, strict=True):
            if "Tensor" in kind:
                found += [name] * (1 if kind in ("Tensor", "Optional[Tensor]") else len(value))
        return found

    def filled(self, values: Sequence[Any], tensors: Sequence[torch.Tensor | None]) -> list[Any]:
        """The arguments with other tensors, in the order of `tensors`."""
        rest = iter(tensors)
        found: list[Any] = []
        for kind, value in zip(self.kinds, values, strict=True):
            if kind in ("Tensor", "Optional[Tensor]"):
                found.append(next(rest))
            elif "Tensor" in kind:
                found.append([next(rest) for _ in value])
            else:
                found.append(value)
        return found

    def packed(self, results: Sequence[torch.Tensor]) -> Any:
        if self.returns_list:
            return list(results)
        return results[0] if len(results) == 1 else tuple(results)

    def laid_out(self, results: Sequence[torch.Tensor], values: Sequence[Any]) -> list[torch.Tensor]:
        """Results as the op returns them, with the strides that an elementwise op of torch would give them."""
        given = [tensor for tensor in self.tensors(values) if tensor is not None]
        strides = [result_strides(tuple(result.shape), given) for result in results]
        return [
            result
            if result.stride() == each or result.numel() == 0
            else torch.empty_strided(result.shape, each, dtype=result.dtype, device=result.device).copy_(result)
            for result, each in zip(results, strides, strict=True)
        ]

    def empty(self, likes: Sequence[torch.Tensor], values: Sequence[Any], keeps_layout: bool) -> list[torch.Tensor]:
        """New results like these: with that layout, or contiguous."""
        if not keeps_layout:
            return [torch.empty(like.shape, dtype=like.dtype, device=like.device) for like in likes]
        given = [tensor for tensor in self.tensors(values) if tensor is not None]
        return [
            torch.empty_strided(
                like.shape, result_strides(tuple(like.shape), given), dtype=like.dtype, device=like.device
            )
            for like in likes
        ]

    # How its reference runs: on torch's operators, which autograd records; as a kernel; on fake tensors.

    def composite(self, values: Sequence[Any]) -> list[torch.Tensor]:
        raise NotImplementedError

    def run(self, values: Sequence[Any]) -> Any:
        raise NotImplementedError

    def fake(self, values: Sequence[Any]) -> Any:
        raise NotImplementedError

    def register(self, announce: Callable[[str], None] | None) -> None:
        """The reference serves the calls that the shared library has no kernel for. `announce` makes it known to the
        library, where C++ calls it by another name."""

        def run(*args: Any, **kwargs: Any) -> Any:
            return self.run(self.bind(args, kwargs))

        def run_for_library(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except Exception as error:
                self.raised[threading.get_ident()] = error
                raise

        def fake(*args: Any, **kwargs: Any) -> Any:
            return self.fake(self.bind(args, kwargs))

        self.library.impl(self.name, run, "CompositeExplicitAutograd")
        if announce is not None:
            self.library.define(f"_{self.name}_reference{self.schema[len(self.name) :]}")
            self.library.impl(f"_{self.name}_reference", run_for_library, "CompositeExplicitAutograd")
            announce(self.name)
        torch.library.register_fake(f"{self.library.ns}::{self.name}", fake, lib=self.library)


class Functional(Operator):
    """An operator that returns new tensors: the author's function."""

    inert: tuple[str, ...] = ()

    def __init__(
        self,
        library: torch.library.Library,
        schema: str,
        function: Callable[..., Any],
        defaults: Mapping[str, Any],
        keeps_layout: bool,
        fake: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(library, schema, defaults)
        self.function, self.keeps_layout, self.written_fake = function, keeps_layout, fake
        self.saves: Mapping[str, tuple[str, ...]] = {}
        self.results_kept: Mapping[str, tuple[str, ...]] = {}
        self.passthrough: Mapping[str, tuple[int | None, ...]] = {}
        self.random = ""
        self.is_recorded = True

    def composite(self, values: Sequence[Any]) -> list[torch.Tensor]:
        positional, keyword = self.arranged(values)
        with without_autocast(self.tensors(values)):
            returned = self.function(*positional, **keyword)
        return [returned] if isinstance(returned, torch.Tensor) else list(returned)

    def run(self, values: Sequence[Any]) -> Any:
        given = [tensor for tensor in self.tensors(values) if tensor is not None]
        results = settle(self.composite(values), given)
        return self.packed(self.laid_out(results, values) if self.keeps_layout else results)

    def fake(self, values: Sequence[Any]) -> Any:
        if self.written_fake is not None:
            positional, keyword = self.arranged(values)
            return self.written_fake(*positional, **keyword)
        return self.packed(self.empty(self.composite(values), values, self.keeps_layout))

    def saved(self, tensors: Sequence[torch.Tensor | None]) -> tuple[Sequence[str] | None, Sequence[str]]:
        """What the backward kernel of the call's device reads: (arguments, or None for all; results)."""
        device = next(tensor.device.type for tensor in tensors if tensor is not None)
        key = f"{device} {dtype_class(tensors)}"
        plain = all(tensor is None or type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors)
        return self.saves.get(key) if plain else None, self.results_kept.get(key, ())

    def register(self, announce: Callable[[str], None] | None) -> None:
        super().register(announce)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            return record(self, self.bind(args, kwargs))

        if self.is_recorded:
            self.library.impl(self.name, recorded, "Autograd")


class Gradient(Functional):
    """The backward of another operator: it takes the gradients of its results, and returns those that are needed.

    Its reference runs the other's again and lets torch differentiate it."""

    def __init__(self, library: torch.library.Library, schema: str, of: Functional) -> None:
        super().__init__(library, schema, of.function, {}, of.keeps_layout)
        self.of = of
        self.grads = 1 if of.returns_list else len(of.overload._schema.returns)
        of.backward = self
        self.unsaved: dict[int, str] = {}  # by thread

    def split(self, values: Sequence[Any]) -> tuple[list[torch.Tensor | None], Sequence[Any], list[bool]]:
        """(gradients of the results, the other operator's arguments, which gradients are needed)."""
        grads = list(values[0]) if self.of.returns_list else list(values[: self.grads])
        return grads, values[self.grads : self.grads + len(self.of.names)], values[-1]

    def composite(self, values: Sequence[Any]) -> list[torch.Tensor]:
        with torch.enable_grad():
            return self.pulled(values, True)

    def run(self, values: Sequence[Any]) -> Any:
        with torch.inference_mode(False), autograd_on(), torch.enable_grad():
            found = self.pulled(values, False)
        given = [tensor for tensor in self.tensors(values) if tensor is not None]
        results = settle([grad.detach() for grad in found], given)
        return self.laid_out(results, values) if self.keeps_layout else results

    def fake(self, values: Sequence[Any]) -> Any:
        _, inputs, needs = self.split(values)
        pairs = zip(self.of.tensors(inputs), needs, strict=True)
        return self.empty([like for like, needed in pairs if needed and like is not None], values, self.keeps_layout)

    def pulled(self, values: Sequence[Any], differentiable: bool) -> list[torch.Tensor]:
        grads, inputs, needs = self.split(values)
        tensors = self.of.tensors(inputs)
        if self.random:
            raise RuntimeError(
                f"{self.of.name} has no gradient: its reference draws random numbers ({self.random}), and running it "
                "again would draw different ones. Use it under torch.no_grad()."
            )
        if missing := self.unsaved.get(threading.get_ident()):
            raise RuntimeError(
                f"{self.of.name} has no gradient for this call: the library has no kernel for its dtypes and layouts, "
                f"and the reference needs {missing}, which was not saved, since the kernel does not read it."
            )
        leaves = [
            None if tensor is None else leaf(tensor, needed, differentiable)
            for tensor, needed in zip(tensors, needs, strict=True)
        ]
        wanted = [each for each, needed in zip(leaves, needs, strict=True) if needed and each is not None]
        results = self.of.composite(self.of.filled(inputs, leaves))
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
        found: Sequence[torch.Tensor | None] = [None] * len(wanted)
        if pairs and wanted:
            found = torch.autograd.grad(
                [result for result, _ in pairs],
                wanted,
                [grad.to(result.dtype) for result, grad in pairs],
                create_graph=differentiable,
                allow_unused=True,
            )
        return [
            torch.zeros_like(each) if grad is None else grad.contiguous()
            for each, grad in zip(wanted, found, strict=True)
        ]


class Changing(Operator):
    """An operator that writes to its arguments. No gradient is recorded through it."""

    def fake(self, values: Sequence[Any]) -> Any:
        return None

    def register(self, announce: Callable[[str], None] | None) -> None:
        super().register(announce)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            values = self.bind(args, kwargs)
            if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in self.tensors(values)):
                raise RuntimeError(
                    f"{self.overload} writes to a tensor in a call that records gradients. Call the function of this "
                    "module without out=, or use torch.no_grad()."
                )
            return self.call_below(values)

        def counted(keyset: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
            self.overload.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)
            for changed, value in zip(self.changed, self.bind(args, kwargs), strict=True):
                if changed and not value.is_inference():
                    torch.autograd.graph.increment_version(value)

        self.library.impl(self.name, recorded, "Autograd")
        self.library.impl(self.name, counted, "ADInplaceOrView", with_keyset=True)


class InPlace(Changing):
    """The author's function that changes its arguments."""

    def __init__(
        self, library: torch.library.Library, schema: str, function: Callable[..., Any], defaults: Mapping[str, Any]
    ) -> None:
        super().__init__(library, schema, defaults)
        self.function = function

    def run(self, values: Sequence[Any]) -> Any:
        positional, keyword = self.arranged(values)
        with without_autocast(self.tensors(values)):
            self.function(*positional, **keyword)

    def on_copies(self, *args: Any, **kwargs: Any) -> Any:
        """As a function that changes copies and returns them."""
        pairs = zip(self.changed, self.bind(args, kwargs), strict=True)
        values = [value.clone(memory_format=torch.contiguous_format) if each else value for each, value in pairs]
        self.run(values)
        return tuple(value for each, value in zip(self.changed, values, strict=True) if each)


class Out(Changing):
    """The out= form: the operator itself, then a copy into the given tensors."""

    def __init__(self, library: torch.library.Library, schema: str, of: Functional) -> None:
        super().__init__(library, schema, of.defaults)
        self.of = of

    def run(self, values: Sequence[Any]) -> Any:
        count = len(self.of.names)
        returned = self.of.call(values[:count])
        results = [returned] if isinstance(returned, torch.Tensor) else returned
        for name, out, result in zip(self.names[count:], values[count:], results, strict=True):
            if out.shape != result.shape or out.dtype != result.dtype:
                raise ValueError(
                    f"{self.of.name}: {name} is {out.dtype} {tuple(out.shape)}, and the result is "
                    f"{result.dtype} {tuple(result.shape)}. Give a tensor like the result."
                )
            out.copy_(result)


def leaf(tensor: torch.Tensor, needed: bool, differentiable: bool) -> torch.Tensor:
    """A tensor passed twice must be two leaves; with `differentiable` each keeps its history."""
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        tensor = tensor.clone()
    own = tensor.view_as(tensor) if differentiable else tensor.detach()
    return own.requires_grad_() if needed and not own.requires_grad else own


@contextlib.contextmanager
def autograd_on() -> Iterator[None]:
    """Autograd as at the top of the dispatcher, for a kernel that differentiates."""
    keys = torch._C.DispatchKey
    names = (keys.AutogradFunctionality, keys.AutogradOther, keys.AutogradNestedTensor, keys.ADInplaceOrView)
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for name in names:
        exclude = exclude - torch._C.DispatchKeySet(name)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), exclude):
        yield


@contextlib.contextmanager
def without_autocast(tensors: Sequence[torch.Tensor | None]) -> Iterator[None]:
    """References run outside of autocast regions: what a region does is the op's own rule."""
    with contextlib.ExitStack() as stack:
        for device in {tensor.device.type for tensor in tensors if tensor is not None} & {"cpu", "cuda"}:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
