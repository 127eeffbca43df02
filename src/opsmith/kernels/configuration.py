"""A launch configuration: the grid, the block, the dynamic shared memory and the cluster of a launch, within the limits
of all GPUs."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import LaunchConfigurationError

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_CLUSTER = 16
"""Blocks of a cluster, on an H100 or H200. Others allow 8."""

Extent = tuple[int, int, int]
_Wrong = Callable[[str], LaunchConfigurationError]


class LaunchConfiguration(NamedTuple):
    grid: Extent
    block: Extent
    shared: int
    cluster: Extent | None = None
    """None: that of the kernel's __cluster_dims__, or none."""

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return math.prod(self.block)

    def __str__(self) -> str:
        shared = f" and {self.shared} bytes of shared memory" if self.shared else ""
        cluster = f" in clusters of {short_extent(self.cluster)}" if self.cluster else ""
        return f"a grid of {short_extent(self.grid)}{cluster}, blocks of {short_extent(self.block)}{shared}"


def launch_configuration(
    kernel: str, key: Any, *, smallest_grid: int = 1, clusters: bool = True
) -> LaunchConfiguration:
    """The configuration of `kernel[key]`. Raises LaunchConfigurationError for one that no GPU can launch."""
    wrong = functools.partial(LaunchConfigurationError, kernel)
    if not isinstance(key, tuple) or len(key) not in ((2, 3, 4) if clusters else (2, 3)):
        with_cluster = ", or kernel[grid, block, shared, cluster](...), cluster in blocks" if clusters else ""
        raise wrong(
            f"a launch is kernel[grid, block](...) or kernel[grid, block, shared](...), shared in bytes{with_cluster}; "
            "the stream is torch's current one",
        )
    grid = _extent(wrong, "grid", key[0], MAX_GRID, smallest_grid)
    block = _extent(wrong, "block", key[1], MAX_BLOCK, 1)
    shared = _shared_bytes(wrong, key[2]) if len(key) > 2 else 0
    cluster = _cluster(wrong, key[3], grid) if len(key) > 3 and key[3] is not None else None
    found = LaunchConfiguration(grid, block, shared, cluster)
    if found.threads > MAX_THREADS:
        raise wrong(
            f"a block of {short_extent(block)} has {found.threads} threads, and a block has at most {MAX_THREADS}. Use "
            "a smaller block and a larger grid",
        )
    return found


def _extent(wrong: _Wrong, what: str, given: Any, limits: Sequence[int], least: int) -> Extent:
    """Three sizes from one to three, each within its limits."""
    sizes = [_size(wrong, what, each) for each in (given if isinstance(given, (tuple, list)) else [given])]
    if not 1 <= len(sizes) <= 3:
        raise wrong(f"the {what} is {given!r}: pass an integer or a tuple of up to three")
    for size, limit, axis in zip(sizes, limits, "xyz", strict=False):
        if size < least:
            skip = "Skip the launch for an empty tensor: if x.numel()"
            advice = skip if what == "grid" else f"Use at least one {'thread' if what == 'block' else 'block'}"
            bound = f"at least {least}"
        elif size > limit:
            wider = "Let each block compute more" if axis == "x" else f"Use x, which is at most {MAX_GRID[0]}"
            advice = wider if what == "grid" else f"Use a smaller {what} and a larger grid"
            bound = f"at most {limit}"
        else:
            continue
        raise wrong(f"the {what} is {short_extent(sizes)}, and its {axis} is {bound}. {advice}")
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def _cluster(wrong: _Wrong, given: Any, grid: Extent) -> Extent:
    cluster = _extent(wrong, "cluster", given, (MAX_CLUSTER,) * 3, 1)
    if math.prod(cluster) > MAX_CLUSTER:
        raise wrong(
            f"a cluster of {short_extent(cluster)} has {math.prod(cluster)} blocks, and a cluster has at most "
            f"{MAX_CLUSTER} on an H100 or H200, and 8 on other GPUs. Use a smaller cluster",
        )
    if what := indivisible(grid, cluster):
        raise wrong(what)
    return cluster


def indivisible(grid: Extent, cluster: Extent) -> str | None:
    """What is wrong with a grid that is not a whole number of clusters."""
    if all(blocks % of_cluster == 0 for blocks, of_cluster in zip(grid, cluster, strict=True)):
        return None
    larger = tuple(-(-blocks // size) * size for blocks, size in zip(grid, cluster, strict=True))
    return (
        f"the grid is {short_extent(grid)}, which is not a whole number of clusters of {short_extent(cluster)}. Launch "
        f"{short_extent(larger)}, and let the blocks that are not needed compute nothing"
    )


def _size(wrong: _Wrong, what: str, given: Any) -> int:
    try:
        return operator.index(given)
    except TypeError:
        advice = "-(-n // 256) divides and rounds up" if isinstance(given, float) else "pass one to three integers"
        raise wrong(f"the {what} takes integers, not {type(given).__name__} {given!r}: {advice}") from None


def _shared_bytes(wrong: _Wrong, given: Any) -> int:
    try:
        number = operator.index(given)
    except TypeError:
        number = -1
    if not 0 <= number < 2**31:
        raise wrong(
            f"the shared memory is {given!r}: pass the bytes of a block's extern __shared__ memory as an integer; the "
            "stream is torch's current one",
        )
    return number


def short_extent(extent: Sequence[int]) -> str:
    """'5' for (5, 1, 1), '(5, 2)' for (5, 2, 1)."""
    sizes = list(extent)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return str(sizes[0]) if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"
