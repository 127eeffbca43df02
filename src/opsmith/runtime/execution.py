"""How an operator runs on a device: its kernel if there is one, else its reference. native/entry.h is the C++
tier's."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import (
    DeviceMixError,
    KernelResultError,
    ReferenceRunsWarning,
    ToolMissingError,
    UndeclaredMutationError,
    definition,
)
from ..errors.base import warn
from ..kernels import PythonKernel
from ..reference.signature import Argument, Kind, Signature
from ..reference.tensors import is_placeholder
from ..toolchain.cache import ships_prebuilt
from ..toolchain.shipped import built_elsewhere

if TYPE_CHECKING:
    from ..kernels import Kernel
    from .operator import Operator


_autocast_enabled = torch._C._is_any_autocast_enabled


def execute(operator: Operator, args: Sequence[Any]) -> Any:
    """The operator on plain tensors, below autograd."""
    tensors = operator.signature.flatten(args)
    device, contiguous = _survey(tensors)
    if device is None:
        device = check_one_device(operator.name, operator.signature, args)
    kernel = operator.kernels.get(device.type) if device is not None else None
    if kernel is None:
        return operator.reference.run(*args)
    passed = args
    if not contiguous and kernel.layout == "contiguous":
        passed = operator.signature.unflatten(args, [_contiguous(tensor) for tensor in tensors])
    function = kernel.function
    if not kernel.checked and device is not None and not _capturing(device):
        function = functools.partial(checked_call, operator, kernel)
    try:
        if device is not None and device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device), torch._C._DisableAutocast():  # of several GPUs, the tensors' own
                returned = function(*passed)
        elif _autocast_enabled():
            with torch._C._DisableAutocast():
                returned = function(*passed)
        else:
            returned = function(*passed)
    except ToolMissingError as error:
        # A kernel that works in place may have changed its inputs, in an earlier launch of this call.
        if not kernel.is_default or (operator.signature.mutated and kernel.checked):
            raise
        _warn_of_missing_tool(operator, kernel, args, error)
        returned = NotImplemented
    if returned is NotImplemented:
        return operator.reference.run(*args)
    if passed is args:
        return returned
    if operator.signature.mutated:
        write_back(operator.signature.arguments, args, passed)
    return operator.reference.laid_out(returned, args)


def _capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured: a check would become part of it. `prepare` checks ahead."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _survey(tensors: Sequence[torch.Tensor | None]) -> tuple[torch.device | None, bool]:
    """(the device of all, None if they differ; whether all are contiguous), in one pass."""
    device: torch.device | None = None
    contiguous = True
    for tensor in tensors:
        if tensor is None:
            continue
        if device is None:
            device = tensor.device
        elif tensor.device != device:
            return None, False
        contiguous = contiguous and tensor.is_contiguous()
    return device, contiguous


def _contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    if tensor is None or tensor.is_contiguous() or is_placeholder(tensor):
        return tensor
    return tensor.contiguous()


def check_one_device(name: str, signature: Signature, args: Sequence[Any]) -> torch.device | None:
    """The device all tensors are on; None if there is no tensor. A 0-dim CPU tensor may accompany tensors of another
    device, as in torch."""
    device: torch.device | None = None
    tensors = signature.flatten(args)
    for tensor in tensors:
        if tensor is None:
            continue
        if device is None or (device.type == "cpu" and tensor.device.type != "cpu"):
            device = tensor.device
    for tensor in tensors:
        if tensor is not None and tensor.device != device and not (tensor.ndim == 0 and tensor.device.type == "cpu"):
            raise DeviceMixError(name, _places(signature.arguments, args))
    return device


def write_back(arguments: Sequence[Argument], args: Sequence[Any], passed: Sequence[Any]) -> None:
    """Copies what a kernel wrote into the contiguous copy of a strided tensor back into that tensor."""
    for argument, original, copy in zip(arguments, args, passed, strict=True):
        if argument.mutated and copy is not original:
            original.copy_(copy)


def checked_call(operator: Operator, kernel: Kernel, *args: Any) -> Any:
    """A kernel's first call: its results are compared with the fake, and its inputs must be unchanged."""
    watched = [
        (argument.name, tensor, tensor._version)
        for argument, tensor in operator.signature.named_tensors(args)
        if tensor is not None and not argument.mutated and not tensor.is_inference()
    ]
    returned = kernel.function(*args)
    if returned is NotImplemented:
        return returned
    for name, tensor, version in watched:
        if tensor._version != version:
            line = None if kernel.author is None else definition(kernel.author)
            raise UndeclaredMutationError(operator.name, name, f"the kernel {kernel}", line)
    check_results(operator, kernel, args, returned)
    kernel.checked = True
    operator.attachment.update()  # from now on C++ may call it directly
    return returned


def _warn_of_missing_tool(operator: Operator, kernel: Kernel, args: Sequence[Any], error: ToolMissingError) -> None:
    """Once a kernel. It is not tried again, unless other calls may find something prebuilt."""
    retried = isinstance(kernel, PythonKernel) and ships_prebuilt(kernel.module)
    if not retried:
        kernel.function = lambda *args: NotImplemented
    if not kernel.missed:
        kernel.missed = True
        call = operator.signature.shown(args) if retried else ""
        warning = ReferenceRunsWarning(
            kernel.device, error, f"the kernel of {operator.name}", call, *built_elsewhere(kernel.module)
        )
        warn(warning)


def check_results(operator: Operator, kernel: Kernel, args: Sequence[Any], returned: Any) -> None:
    expected = as_list(operator.expected(args))
    given = as_list(returned)
    source = "the reference" if operator.written_fake is None else "register_fake"

    def wrong(what: str) -> KernelResultError:
        return KernelResultError(operator.name, str(kernel), what, source, kernel.author)

    if len(given) != len(expected):
        raise wrong(f"it returned {len(given)} results, {source} {len(expected)}")
    inputs = [tensor for tensor in operator.signature.flatten(args) if tensor is not None]
    memory = {tensor.untyped_storage()._cdata for tensor in inputs if tensor.layout is torch.strided}
    for index, (result, model) in enumerate(zip(given, expected, strict=True)):
        name = "result" if len(expected) == 1 else f"result {index}"
        if not isinstance(result, torch.Tensor):
            raise wrong(f"{name} is a {type(result).__name__}, not a Tensor")
        for aspect in ("shape", "dtype", "device"):
            mine, theirs = getattr(result, aspect), getattr(model, aspect)
            if aspect == "device" and theirs.type == "meta":
                theirs = inputs[0].device
            if mine != theirs:
                if aspect == "shape":
                    mine, theirs = tuple(mine), tuple(theirs)
                raise wrong(f"{name} has {aspect} {mine}, {source}'s {theirs}")
        if result.numel() and _strides(result) != _strides(model):
            raise wrong(f"{name} has strides {result.stride()}, {source}'s {model.stride()}")
        if result.untyped_storage()._cdata in memory:
            raise wrong(f"{name} shares memory with an input or another result")
        memory.add(result.untyped_storage()._cdata)


def _strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: those of dimensions with more than one element."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def as_list(returned: Any) -> list[Any]:
    if returned is None:
        return []
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _places(arguments: Sequence[Argument], args: Sequence[Any]) -> dict[str, str]:
    places: dict[str, str] = {}
    for argument, value in zip(arguments, args, strict=True):
        if argument.kind in (Kind.TENSOR, Kind.OPTIONAL_TENSOR) and value is not None:
            places[argument.name] = str(value.device)
        elif argument.is_tensor and value is not None:
            places.update({f"{argument.name}[{i}]": str(t.device) for i, t in enumerate(value) if t is not None})
    return places
