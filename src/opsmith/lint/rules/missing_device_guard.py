"""missing-device-guard: a launch on the GPU that happens to be current."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...cuda_text import Function
from ..rule import Problem, rule
from ..source import Source, has_tensors, tensor_of

_GUARD = re.compile(
    r"\w*(?:device|cuda|stream|gpu|hip)_?guard\w*|cudaSetDevice|cuCtx(?:SetCurrent|PushCurrent)|set_device"
    r"|(?:maybe_)?exchange_?device|CurrentDevice",
    re.IGNORECASE,
)


@rule("A launch goes to the current GPU, which need not be the one its tensors are on.")
def missing_device_guard(source: Source) -> Iterator[Problem]:
    """A host function that launches on a tensor, where neither it nor its callers make the tensor's GPU current.

    opsmith::launch does it, and so does opsmith for functions under OPSMITH_EXPORT.
    """
    if source.is_program:
        return
    for function, site in _launching(source).items():
        if not source.holds(function, site, _is_guarded):
            tensor = tensor_of(function)
            where = f"that of {tensor or 'its tensors'}"
            message = f"{function.name} launches on the current GPU, which need not be {where}."
            remedy = f"Before it: const c10::cuda::CUDAGuard guard({tensor or 'x'}.device());"
            yield Problem(source.code, site, message, remedy)


def _is_guarded(source: Source, function: Function, site: int) -> bool:
    exported = source.code.calls("OPSMITH_EXPORT")
    if any(function.name in source.code.texts[call.opening : call.closing] for call in exported):
        return True
    # The word at the site included: a launching function that is called there may have the guard.
    return source.mentions(function.body[0], site + 1, _GUARD)


def _launching(source: Source) -> dict[Function, int]:
    """The functions with tensors that launch, or call a launcher of pointers, and where first."""
    sites = [(function, launch.index) for function, launch in source.host_launches if not launch.checked]
    for name in {name for peer in source.peers for name in peer.launchers_of_pointers}:
        sites += source.calls(name)
    found: dict[Function, int] = {}
    for function, site in sites:
        if has_tensors(function):
            found[function] = min(site, found.get(function, site))
    return found
