"""Registration of a kernel for the Hub, on torch alone: the shared library, and every part of each op.

The bundler copies this code into the generated file, as it does with operators.py.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...reference.tensors import overlap
from .operators import Functional, Gradient, InPlace, Operator, Out
from .recording import result_names


class Parts(NamedTuple):
    """One op as it was built. `schemas`: by role ("forward", "backward", "second", "out", "functional")."""

    schemas: Mapping[str, str]
    reference: Callable[..., Any]
    fake: Callable[..., Any] | None = None
    gradient: tuple[Callable[..., Any], Callable[..., Any] | None] | None = None
    keeps_layout: bool = False
    generated: bool = False
    saves: Mapping[str, tuple[str, ...]] = {}
    results_kept: Mapping[str, tuple[str, ...]] = {}
    passthrough: Mapping[str, tuple[int | None, ...]] = {}
    autocast: Mapping[str, str | torch.dtype] = {}
    random: str = ""


class Package:
    """The operators of a build."""

    def __init__(self, namespace: str, shared_library: str | None) -> None:
        self.operators: dict[str, Operator] = {}
        self.announce: Callable[[str], None] | None = None
        if shared_library is not None:
            torch.ops.load_library(shared_library)
            fallback = getattr(ctypes.CDLL(shared_library), "opsmith_library_fallback", None)
            if fallback is not None:
                self.announce = lambda name: fallback(name.encode())
        self.library = torch.library.Library(namespace, "FRAGMENT")

    def add(self, parts: Parts) -> None:
        library, schemas = self.library, parts.schemas
        parameters = inspect.signature(parts.reference).parameters.values()
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        operators: list[Operator] = []
        if "functional" in schemas:
            inplace = InPlace(library, schemas["forward"], parts.reference, defaults)
            source = Functional(library, schemas["functional"], inplace.on_copies, defaults, parts.keeps_layout)
            operators.append(inplace)
        else:
            source = Functional(library, schemas["forward"], parts.reference, defaults, parts.keeps_layout, parts.fake)
        source.saves, source.passthrough, source.results_kept = parts.saves, parts.passthrough, parts.results_kept
        source.is_recorded = parts.gradient is None
        operators.append(source)
        if "out" in schemas:
            operators.append(Out(library, schemas["out"], source))
        cast = list(operators)
        backward = Gradient(library, schemas["backward"], source)
        backward.random = parts.random
        operators.append(backward)
        if not parts.generated:  # the results that a written kernel takes are not variables of the derivative
            count = len(result_names(source, source.overload._schema.returns)) + 1
            backward.inert = tuple(backward.names[-count:-1])
        if "second" in schemas:
            operators.append(Gradient(library, schemas["second"], backward))
        for operator in operators:
            operator.register(self.announce)
            self.operators[operator.name] = operator
        for device, policy in parts.autocast.items():
            for operator in cast:
                autocast(operator, device, policy)
        if parts.gradient is not None:
            written, setup_context = parts.gradient
            torch.library.register_autograd(
                f"{library.ns}::{source.name}", written, setup_context=setup_context, lib=library
            )

    def change(self, name: str, values: Sequence[Any]) -> Any:
        """A call of an in-place op: it returns what it changes. If a gradient is recorded, the functional form runs."""
        operator = self.operators[name]
        changed = [value for each, value in zip(operator.changed, values, strict=True) if each]
        tensors = [tensor for tensor in operator.tensors(values) if tensor is not None]
        if not torch.compiler.is_compiling():
            for target in changed:
                if sum(overlap(target, other) for other in tensors) > 1:  # with itself, and one more
                    raise ValueError(f"{name}: a tensor that it changes shares memory with another one. Pass a copy.")
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            pairs = zip(operator.changed, values, strict=True)
            returned = self.operators[f"{name}_functional"].call([v.clone() if each else v for each, v in pairs])
            for target, result in zip(changed, [returned] if len(changed) == 1 else returned, strict=True):
                target.copy_(result)
        else:
            operator.call(values)
        return changed[0] if len(changed) == 1 else tuple(changed)


def opened(namespace: str, shared_library: str | None, parts: Sequence[Parts]) -> Package:
    """The build's operators. torch accepts them once in a process: a second load of the build gets the first ones."""
    operators = getattr(torch.ops, namespace)
    package: Package | None = vars(operators).get("opsmith_package")
    if package is None:
        package = Package(namespace, shared_library)
        for each in parts:
            package.add(each)
        operators.opsmith_package = package  # as long as the process lives
    return package


def autocast(operator: Operator, device: str, policy: str | torch.dtype) -> None:
    """Inside an autocast region, floating-point tensors are cast to float32, a dtype, or ("lower") the region's."""

    def cast(value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return [cast(each, dtype) for each in value]
        fits = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64
        return value.to(dtype) if fits and value.device.type == device else value

    def function(*args: Any, **kwargs: Any) -> Any:
        region = torch.get_autocast_dtype(device)
        dtype = policy if isinstance(policy, torch.dtype) else torch.float32 if policy == "float32" else region
        values = [
            value if changed else cast(value, dtype)
            for changed, value in zip(operator.changed, operator.bind(args, kwargs), strict=True)
        ]
        with torch.autocast(device, enabled=False):
            return operator.call(values)

    operator.library.impl(operator.name, function, f"Autocast{device.upper()}")
