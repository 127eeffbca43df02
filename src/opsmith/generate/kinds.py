"""Which kinds of tensors a function takes, found when it is declared: the program of some call is known from then on.

A function seldom says which of its tensors are indices or masks, nor how many dimensions each has. The search begins
with float32 tensors. Where a call of the function refuses what it is given, the tensors that it was computed from are
given other kinds, one at a time; of all that was tried, what got furthest goes on first.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from ..errors import NotRowwiseError
from .specialise import RefusedByTorch, TensorKind, UnsupportedDtype

_TRIED = (torch.float32, torch.bool, torch.int64)
_RANKS = (2, 1, 3, 4, 5, 0)
_MOST_TRIED = 400
Kinds = tuple[TensorKind, ...]
Found = TypeVar("Found")


def first_accepted(count: int, rows: bool, attempt: Callable[[Kinds], Found]) -> tuple[Kinds, Found]:
    """The first kinds of `count` tensors that `attempt` takes, with what it returns. If it takes none, the error of the
    kinds that got furthest is raised; `attempt` notes in an error how far it got, and from which tensors."""
    every = [TensorKind(dtype, rank == 0, rank) for dtype in _TRIED for rank in (_RANKS if rows else (1,))]
    start: Kinds = (every[0],) * count
    tried = {start}
    waiting: list[tuple[int, int, int, Kinds, frozenset[int]]] = []
    worst: tuple[int, bool] | None = None
    error: Exception | None = None

    def try_kinds(kinds: Kinds) -> Found | None:
        nonlocal worst, error
        try:
            return attempt(kinds)
        except (RefusedByTorch, UnsupportedDtype, NotRowwiseError) as refused:
            steps = getattr(refused, "steps", 0)
            rank = (steps, not isinstance(refused, (RefusedByTorch, UnsupportedDtype)))
            if worst is None or rank > worst:
                worst, error = rank, refused
            changed = sum(kind != start[0] for kind in kinds)
            slots = getattr(refused, "slots", None)
            heapq.heappush(
                waiting, (-steps, changed, len(tried), kinds, frozenset(range(count)) if slots is None else slots)
            )
            return None

    if (found := try_kinds(start)) is not None:
        return start, found
    while waiting:
        _, _, _, kinds, slots = heapq.heappop(waiting)
        for changed in _neighbours(kinds, sorted(slots), every):
            if changed in tried:
                continue
            if len(tried) == _MOST_TRIED:
                break
            tried.add(changed)
            if (found := try_kinds(changed)) is not None:
                return changed, found
    assert error is not None
    raise error


def _neighbours(kinds: Kinds, slots: Sequence[int], every: Sequence[TensorKind]) -> Iterator[Kinds]:
    """With another kind for one of the slots."""
    for kind, slot in itertools.product(every, slots):
        if kind != kinds[slot]:
            yield (*kinds[:slot], kind, *kinds[slot + 1 :])
