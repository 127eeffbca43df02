"""A build loaded into the process: its kernels and constants on each device."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Mapping

from ...errors import LaunchConfigurationError
from ...launch import driver as cuda
from ...launch.driver import Driver
from ..clusters import PORTABLE, required_cluster
from ..configuration import Extent, LaunchConfiguration
from .attributes import Attributes
from .build import Build
from .constants import Constants, Held
from .plan import Plan

DEFAULT_SHARED_BYTES = 48 << 10
"""The shared memory of a block, static and dynamic together, that needs no opt-in on any GPU."""


class Function:
    """A kernel on one device."""

    def __init__(self, driver: Driver, handle: int, index: int, plan: Plan, compiled: Attributes) -> None:
        self.driver = driver
        self.handle = handle
        self.index = index
        self.plan = plan
        self._compiled = compiled
        self._allowed = DEFAULT_SHARED_BYTES
        self.max_threads = driver.attribute(handle, cuda.MAX_THREADS_PER_BLOCK, index)
        # The driver's figure may include what it reserves for itself: the compiler's comes first.
        reported = driver.attribute(handle, cuda.SHARED_BYTES, index)
        self.shared_bytes = compiled.shared_bytes if compiled.registers else reported
        self._large_clusters = False

    @property
    def attributes(self) -> Attributes:
        """As the driver reports them; spills, which it does not report, from the compiler."""

        def reported(attribute: int) -> int:
            return self.driver.attribute(self.handle, attribute, self.index)

        return Attributes(
            registers=reported(cuda.REGISTERS),
            spill_bytes=self._compiled.spill_bytes,
            local_bytes=reported(cuda.LOCAL_BYTES),
            shared_bytes=self.shared_bytes,
            constant_bytes=reported(cuda.CONSTANT_BYTES),
            max_threads_per_block=self.max_threads,
        )

    def allow(self, configuration: LaunchConfiguration) -> None:
        """Raises LaunchConfigurationError for a block that this kernel cannot have. Called with the source's lock."""
        name, threads, shared = self.plan.kernel, configuration.threads, configuration.shared
        if threads > self.max_threads:
            raise LaunchConfigurationError(
                name,
                f"a block of {threads} threads is more than the {self.max_threads} that this kernel can have: it takes "
                f"{self.driver.attribute(self.handle, cuda.REGISTERS, self.index)} registers per thread, or its "
                "__launch_bounds__ allow no more. Make the block smaller, or give the kernel "
                f"__launch_bounds__({threads})",
                self.plan.declared(),
            )
        total = shared + self.shared_bytes
        if total <= self._allowed:
            return
        limit = self.driver.device_attribute(cuda.MAX_SHARED_BYTES_OPT_IN, self.index)
        if total > limit:
            static = f", of which the kernel declares {self.shared_bytes}" if self.shared_bytes else ""
            raise LaunchConfigurationError(
                name,
                f"the launch asks for {total} bytes of shared memory a block{static}, and cuda:{self.index} has "
                f"{limit}. Use a smaller tile, or spread the work over more blocks",
                self.plan.declared(),
            )
        self.driver.set_attribute(self.handle, cuda.MAX_DYNAMIC_SHARED_BYTES, shared, self.index)
        self._allowed = total

    def allow_cluster(self, configuration: LaunchConfiguration) -> None:
        """The same for a cluster."""
        arch = self.driver.architecture(self.index)
        cluster = required_cluster(self.plan.kernel, configuration, self._declared_cluster, arch, self.plan.declared)
        if math.prod(cluster) > PORTABLE and not self._large_clusters:
            self.driver.set_attribute(self.handle, cuda.LARGE_CLUSTER_ALLOWED, 1, self.index)
            self._large_clusters = True

    def allow_declared_cluster(self) -> None:
        """The same for that of the kernel's __cluster_dims__, and a grid that is not known yet."""
        if (cluster := self._declared_cluster) is not None:
            self.allow_cluster(LaunchConfiguration(cluster, (1, 1, 1), 0, cluster))

    @functools.cached_property
    def _declared_cluster(self) -> Extent | None:
        if cuda.largest_cluster(self.driver.architecture(self.index)) == 1:
            return None
        x, y, z = (
            self.driver.attribute(self.handle, each, self.index)
            for each in (cuda.CLUSTER_WIDTH, cuda.CLUSTER_HEIGHT, cuda.CLUSTER_DEPTH)
        )
        return (x, y, z) if x * y * z else None


class Module:
    """One cubin: loaded at the first launch of its kernels, and never unloaded, since a captured graph may use it."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self._lock = threading.RLock()
        self._driver: Driver | None = None
        self._library = 0
        self.devices: set[int] = set()
        self._functions: dict[tuple[str, int], Function] = {}

    def function(self, spelling: str, index: int, constants: Constants) -> Function:
        """A kernel on a device, with the source's constants in their places."""
        with self._lock:
            if (spelling, index) not in self._functions:
                self._functions[spelling, index] = self._load(spelling, index, constants)
            return self._functions[spelling, index]

    def _load(self, spelling: str, index: int, constants: Constants) -> Function:
        symbol, plan = self.build.symbol(spelling), self.build.plan(spelling)
        driver = self._driver = self._driver or cuda.driver()
        with driver.on(index):
            if not self._library:
                self._library = driver.load(self.build.cubin)
            if index not in self.devices:
                self._fill(driver, index, constants.on(index))
                self.devices.add(index)
            handle = driver.kernel(self._library, symbol)
            driver.make_resident(handle)
            return Function(driver, handle, index, plan, self.build.attributes(spelling))

    def _fill(self, driver: Driver, index: int, held: Mapping[str, Held]) -> None:
        """Writes the constants that have been set, and waits: a launch on any stream finds them."""
        known = {name: value for name, value in held.items() if name in self.build.constants}
        if not known:
            return
        with driver.side_stream() as stream:
            for name, value in known.items():
                value.wait()
                self._write(driver, name, value, stream)

    def set_constant(self, name: str, value: Held, index: int) -> None:
        """Writes a constant where this module is loaded, on torch's current stream of the device."""
        with self._lock:
            if index in self.devices and self._driver is not None and name in self.build.constants:
                with self._driver.on(index):
                    self._write(self._driver, name, value, self._driver.current_stream(index))

    def _write(self, driver: Driver, name: str, value: Held, stream: int) -> None:
        address, size = driver.variable(self._library, self.build.constants[name].symbol)
        if size != value.size:
            raise self.build.snapshot.constant_error(
                name, f"has {size} bytes now and was set when it had {value.size}: call set_constant again"
            )
        driver.write(address, value.source, size, stream)
