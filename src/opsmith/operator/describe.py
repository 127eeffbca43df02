"""The parts of an op: written by the author, generated or derived from the reference, or absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import described
from ..kernels import GeneratedKernel, Kernel, PythonKernel
from ..reference.tensors import FULL, HALF

if TYPE_CHECKING:
    from ..runtime.operator import Operator
    from .op import Op


@dataclass(frozen=True)
class Part:
    name: str
    status: str  # "written", "generated", "derived" or "absent"
    detail: str


def parts(op: Op) -> list[Part]:
    default, gradient = op._families.default, op._families.default.differentiable
    found = [Part("reference", "written", described(op.reference))]
    found += [_execution(op, device) for device in ("cpu", "cuda")]
    if gradient.written_gradient is not None:
        found.append(Part("gradient", "written", "register_autograd, in torch's operators"))
    else:
        found += [_backward(op, device) for device in ("cpu", "cuda")]
    found.append(_second_gradient(op))
    found.append(Part("forward-mode", "derived", "the reference at the level of the tangent"))
    found.append(_part("fake", default.forward.written_fake, "derived", "the reference on fake tensors"))
    batched = "by broadcasting" if default.forward.derived_vmap is not None else "the reference, batched by torch"
    found.append(_part("vmap", default.forward.written_vmap, "derived", batched))
    found.append(_autocast(op))
    if default.inplace:
        changed = ", ".join(argument.name for argument in op.signature.mutated)
        found.append(Part("in place", "written", f"changes {changed}; differentiates through {gradient.name}"))
    elif default.out is not None:
        found.append(Part("out=", "derived", default.out.name))
    nothing = "check and bench have nothing to run on: register_samples"
    found.append(_part("samples", op.samples, "absent", nothing))
    found.append(_part("cost", op.cost, "absent", "bench cannot show the share of peak bandwidth: register_cost"))
    return found


def runtime(op: Op) -> str:
    """The tier of the op's calls."""
    if op._families.default.forward.attachment.tier == "native":
        return "C++ (calls and gradient recording without Python)"
    return "Python (gradient recording by torch.autograd.Function)"


def text(op: Op) -> str:
    rows = parts(op)
    names = max(len(part.name) for part in rows)
    lines = [f"Op {op.schema}", f"  runtime: {runtime(op)}"]
    lines += [f"  {part.name:<{names}}  {part.status:<9}  {part.detail}" for part in rows]
    return "\n".join(lines)


def _execution(op: Op, device: str) -> Part:
    kernels = op.kernels.get(device)
    if not kernels:
        return Part(f"{device} forward", "derived", "the reference")
    first = op._families.default.forward.kernels.get(device)
    listed = [_kernel(kernel.name, kernel, default=kernel is first) for kernel in kernels.values()]
    return Part(f"{device} forward", _status(first), "; ".join(listed))


def _status(kernel: Kernel | None) -> str:
    """The status of what runs by default. Other kernels, for `using`, are in the details."""
    return "derived" if kernel is None else "generated" if generated(kernel) else "written"


def generated(kernel: Kernel) -> bool:
    """Whether opsmith wrote the kernel."""
    return isinstance(kernel, GeneratedKernel)


def _kernel(name: str, kernel: Kernel, default: bool) -> str:
    if generated(kernel):
        return f"{'CUDA' if kernel.device == 'cuda' else 'C++'}, from the reference"
    notes = [kernel.layout] if kernel.layout != "contiguous" else []
    notes += ["inline"] if isinstance(kernel, PythonKernel) and kernel.traced is not None else []
    shown = f"{name}: {kernel.origin}" + (f" [{', '.join(notes)}]" if notes else "")
    return shown if default else f"{shown} (by using({name!r}))"


def _backward(op: Op, device: str) -> Part:
    first = op._families.default.backward.kernels.get(device)
    kernels = {first.name: first} if first is not None else {}
    for family in op._families.named.values():
        if kernel := family.backward.kernels.get(device):
            kernels.setdefault(kernel.name, kernel)
    listed = [] if first is not None else ["recomputes the reference and its vjp; saves the inputs"]
    for name, kernel in kernels.items():
        shown = _kernel(name, kernel, default=kernel is first)
        listed.append(f"{shown}; saves {_saved(op._families.default.backward, kernel)}")
    return Part(f"{device} backward", _status(first), "; ".join(listed))


def _saved(backward: Operator, kernel: Kernel) -> str:
    """'x', or if it differs by dtype: 'output (half types: x, bias)'."""
    if not generated(kernel):
        return ", ".join(kernel.saves_for(FULL) or ()) or "nothing"
    tensors = {argument.name for argument in backward.signature.tensors}

    def listed(names: tuple[str, ...] | None) -> str:
        return "the inputs" if names is None else ", ".join(n for n in names if n in tensors) or "nothing"

    full, half = (listed(kernel.saves_for(label)) for label in (FULL, HALF))
    return full if full == half else f"{full} (half types: {half})"


def _second_gradient(op: Op) -> Part:
    if op._families.default.differentiable.written_gradient is not None:
        return Part("second gradient", "derived", "torch's operators in the written gradient")
    second = op._families.default.backward.backward
    if second is not None and second.kernels:
        return Part("second gradient", "generated", "kernels from the reference, and torch's operators above them")
    tensors = {argument.name for argument in op._families.default.differentiable.signature.tensors}
    saved = (kernel.saves_for(FULL) or tensors for kernel in op._families.default.backward.kernels.values())
    unsaved = sorted(tensors - tensors.intersection(*saved))
    needs = f"; outside torch.func only if the backward also names {', '.join(unsaved)}" if unsaved else ""
    return Part("second gradient", "derived", f"the vjp of the reference's vjp{needs}")


def _part(name: str, written: Callable[..., Any] | None, status: str, detail: str) -> Part:
    """A part that the author may write; else it has this status."""
    return Part(name, status, detail) if written is None else Part(name, "written", described(written))


def _autocast(op: Op) -> Part:
    general, autocast = op._families.autocast, op._families.default.forward.autocast
    policies = {device: policy for device, policy in autocast.items() if policy != general}
    if policies:
        return Part("autocast", "written", ", ".join(f"{device}: {policy}" for device, policy in policies.items()))
    meaning = {"keep": "inputs keep their dtype", "lower": "the region's dtype", "float32": "inputs in float32"}
    return Part("autocast", "derived", f"{general}: {meaning[general]}")
