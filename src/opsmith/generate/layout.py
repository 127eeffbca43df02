"""How a pointwise kernel walks its tensors: the order of dimensions, what can be merged, what is reduced.

The order and the layout of results are TensorIterator's. Strides count elements. Dimensions of a `Walk` run from the
innermost to the outermost. native/walk.h is this file in C++; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Sizes = tuple[int, ...]


def broadcast(shapes: Sequence[Sequence[int]]) -> Sizes | None:
    """The shape that all broadcast to, or None where they do not."""
    shape: list[int] = [1] * max((len(each) for each in shapes), default=0)
    for each in shapes:
        for position, size in enumerate(reversed(each), start=1):
            if shape[-position] == 1:
                shape[-position] = size
            elif size != 1 and size != shape[-position]:
                return None
    return tuple(shape)


def expanded(sizes: Sequence[int], strides: Sequence[int], shape: Sizes) -> Sizes:
    """The strides of a tensor expanded to `shape`: zero where it is repeated."""
    missing = len(shape) - len(sizes)
    own = (0 if size == 1 and full != 1 else stride for size, stride, full in zip(sizes, strides, shape[missing:]))  # noqa: B905
    return (0,) * missing + tuple(own)


def order_of(shape: Sizes, tensors: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Sizes:
    """The dimensions of `shape` from the innermost to the outermost, as TensorIterator orders them for these tensors,
    given as (sizes, strides)."""
    ndim = len(shape)
    natural = tuple(range(ndim - 1, -1, -1))
    if ndim < 2 or all(tuple(sizes) == shape and is_dense(sizes, strides, natural) for sizes, strides in tensors):
        return natural
    strides_of = [expanded(sizes, strides, shape) for sizes, strides in tensors]

    def compared(first: int, second: int) -> int:
        """1 if `first` must lie outside of `second`, -1 if inside, 0 if no tensor tells."""
        for strides in strides_of:
            if strides[first] == 0 or strides[second] == 0:
                continue
            if strides[first] != strides[second]:
                return -1 if strides[first] < strides[second] else 1
            if shape[first] > shape[second]:
                return 1
        return 0

    order = list(natural)
    for index in range(1, ndim):
        moving = index
        for other in range(index - 1, -1, -1):
            comparison = compared(order[other], order[moving])
            if comparison > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif comparison < 0:
                break
    return tuple(order)


def is_dense(sizes: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    """Whether a tensor fills its memory without gaps, its dimensions in this order from the innermost."""
    expected = 1
    for dimension in order:
        if sizes[dimension] != 1:
            if strides[dimension] != expected:
                return False
            expected *= sizes[dimension]
    return True


def dense_strides(sizes: Sequence[int], order: Sequence[int], ndim: int) -> Sizes:
    """The strides of a result of these sizes without gaps, in the order of the `ndim` dimensions it broadcasts to."""
    missing = ndim - len(sizes)
    strides: list[Any] = [1] * len(sizes)
    step = 1
    for dimension in order:
        if dimension >= missing:
            strides[dimension - missing] = step
            size = sizes[dimension - missing]
            step = step * size if (isinstance(size, int) and size > 1) or not isinstance(size, int) else step
    return tuple(strides)


class Walk(NamedTuple):
    """Merged dimensions, innermost first, and each operand's strides over them."""

    sizes: Sizes
    strides: tuple[Sizes, ...]


def merged(shape: Sizes, order: Sequence[int], strides: Sequence[Sizes]) -> Walk:
    """The fewest dimensions that visit the same elements: without those of size one, and with neighbours as one where
    every operand steps through both alike. Never none at all."""
    sizes: list[int] = []
    walked: list[list[int]] = [[] for _ in strides]
    for dimension in order:
        size = shape[dimension]
        if size == 1:
            continue
        if sizes and all(own[dimension] == steps[-1] * sizes[-1] for own, steps in zip(strides, walked, strict=True)):
            sizes[-1] *= size
            continue
        sizes.append(size)
        for own, steps in zip(strides, walked, strict=True):
            steps.append(own[dimension])
    if not sizes:
        return Walk((1,), tuple((0,) for _ in strides))
    return Walk(tuple(sizes), tuple(tuple(steps) for steps in walked))


LINEAR, SCALAR, STRIDED = "linear", "scalar", "strided"


def size_word(size: int) -> int:
    """A size below 2^31 with what a kernel of 32-bit indices divides by it with in the upper half: an index divided is
    (index + (index * upper >> 32)) >> bits, where 2^bits is the least power of two that is not below the size. Exact
    for indices below 2^31 (Granlund and Montgomery, 1994)."""
    inverse = ((1 << (size - 1).bit_length()) - size << 32) // size + 1
    return inverse << 32 | size


def mode_of(walk: Walk, strides: Sizes) -> str:
    """How an operand is addressed: by the element's own index, by nothing, or by its strides."""
    if all(stride == 0 for stride in strides) and walk.sizes != (1,):
        return SCALAR
    step = 1
    for size, stride in zip(walk.sizes, strides, strict=True):
        if stride != step and size != 1:
            return STRIDED
        step *= size
    return LINEAR


class Grouping(NamedTuple):
    """How reduced results share one pass. `kept` are the dimensions of the walk that the pass keeps apart; the roles
    say what each result keeps of them: 'all', 'inner' (the innermost only), 'outer' (all but the innermost), 'none'.
    A result that fits into none of these waits for a pass of its own: role None."""

    kept: tuple[int, ...]
    roles: tuple[str | None, ...]

    @property
    def path(self) -> str:
        return "column" if 0 in self.kept else "segment"


def group(walk: Walk, reduced: Sequence[Sizes]) -> Grouping:
    """The pass that serves the result with the most dimensions, and whatever else it can."""
    kept_by = [tuple(d for d in range(len(walk.sizes)) if strides[d] != 0) for strides in reduced]
    kept = max(kept_by, key=len)
    roles: list[str | None] = []
    for own in kept_by:
        if own == kept:
            roles.append("all")
        elif not own:
            roles.append("none")
        elif kept[0] == 0 and own == (0,):
            roles.append("inner")
        elif kept[0] == 0 and own == kept[1:]:
            roles.append("outer")
        else:
            roles.append(None)
    return Grouping(kept, tuple(roles))


@dataclass(frozen=True)
class Variant:
    """What the text of a kernel depends on besides its program: one compiled kernel each.

    `path` is 'stream' (no reduction), 'segment' (a block keeps one combination of kept dimensions and runs along the
    reduced ones, the innermost among them) or 'column' (neighbouring threads keep neighbouring columns and run down the
    reduced dimensions). `modes` has an entry an operand, inputs then results: 'linear' (by the element's own index; of
    a reduction only on a GPU, and where nothing but the columns is kept), 'scalar', 'strided0' (repeated along the
    innermost dimension), 'strided1' (contiguous along it), 'stridedn'; for a reduced result 'reduced:' and its role;
    'absent' for a result of another pass. `outer` and `inner` count dimensions: for 'stream' all of them in `inner`;
    for 'segment' the kept and the reduced; for 'column' the kept but the innermost, and the reduced."""

    path: str
    modes: tuple[str, ...]
    outer: int
    inner: int
    vector: int  # elements a thread moves at once
    wide: bool  # 64-bit indices
