"""unchecked-launch: a launch whose failure goes unnoticed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...cuda_text import Function, is_string
from ..rule import Problem, rule
from ..source import Source

_CHECK = re.compile(r"(?:cuda|hip)(?:Get|PeekAt)LastError|\w*LAUNCH_CHECK\w*")
# A macro or function of another file, called without an argument: CUDA_KERNEL_CHECK(), checkLastCudaError().
_CHECK_ELSEWHERE = re.compile(
    r"\w*(?:launch|kernel|last|cuda|gpu|hip)\w*(?:check|err)\w*|\w*(?:check|err)\w*(?:launch|kernel|last|cuda|gpu|hip)\w*",
    re.IGNORECASE,
)


@rule("A launch fails silently: the output keeps the old contents of its memory, and a later call reports the error.")
def unchecked_launch(source: Source) -> Iterator[Problem]:
    """No C10_CUDA_KERNEL_LAUNCH_CHECK() and no cudaGetLastError() after the launch, in the function or in every caller.

    Waiting for the GPU is not a check: only cudaGetLastError reports that a launch was rejected (too many threads, too
    much shared memory, an empty grid).
    """
    found = set()
    for function, launch in source.host_launches:
        if launch.checked or (launch.form != "<<<" and source.code.at(launch.index - 1) not in (";", "{", "}")):
            continue  # the result of the call is used
        if (function, launch.kernel) not in found and not source.holds(function, launch.end, _is_checked):
            found.add((function, launch.kernel))  # one check after a switch of many launches is enough
            check = "C10_CUDA_KERNEL_LAUNCH_CHECK();" if source.is_torch else "a check of cudaGetLastError()"
            message = f"Nothing checks whether the launch of {launch.kernel} failed."
            yield Problem(source.code, launch.index, message, f"After it: {check}")


def _is_checked(source: Source, function: Function, index: int) -> bool:
    """Whether a function has a check after a token."""
    last = function.body[1]
    return source.mentions(index, last, _CHECK) or any(_checks_elsewhere(source, at) for at in range(index, last))


def _checks_elsewhere(source: Source, index: int) -> bool:
    code = source.code
    if code.at(index + 1) != "(" or not _CHECK_ELSEWHERE.fullmatch(code.texts[index]):
        return False
    if source.knows(code.texts[index]):  # then its body decides
        return False
    inside = code.texts[index + 2 : code.closing(index + 1)]
    return all(is_string(text) or text in ("__FILE__", "__LINE__", ",") for text in inside)
