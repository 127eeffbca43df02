"""The cluster of a launch: what the launch and the kernel ask for, within the limits of the GPU."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import LaunchConfigurationError
from ..launch.driver import largest_cluster
from .configuration import Extent, LaunchConfiguration, indivisible, short_extent

PORTABLE = 8
"""Blocks of a cluster that every GPU with clusters allows, without an attribute of the kernel."""


def required_cluster(
    kernel: str,
    configuration: LaunchConfiguration,
    declared: Extent | None,
    arch: str,
    line: Callable[[], str] = lambda: "",
) -> Extent:
    """The blocks of a cluster; (1, 1, 1) without. `declared` is what the kernel's __cluster_dims__ say.

    Raises LaunchConfigurationError for a cluster that the kernel or the GPU cannot have."""
    given = configuration.cluster
    cluster = given or declared
    if cluster is None:
        return (1, 1, 1)
    blocks, most = math.prod(cluster), largest_cluster(arch)
    if given and declared and given != declared:
        what = (
            f"the launch has clusters of {short_extent(given)}, and the kernel is declared with __cluster_dims__ "
            f"{short_extent(declared)}. Leave one of the two out"
        )
    elif blocks > 1 and most == 1:
        what = (
            f"clusters need sm_90 or later, and this GPU is {arch}. Launch a kernel without clusters there: "
            "opsmith.gpu_of(x).arch tells the architecture"
        )
    elif blocks > most:
        what = (
            f"a cluster of {short_extent(cluster)} has {blocks} blocks, and {arch} allows {most}. Use a smaller cluster"
        )
    else:
        what = indivisible(configuration.grid, cluster) or ""
    if what:
        raise LaunchConfigurationError(kernel, what, line())
    return cluster
