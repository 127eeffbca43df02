"""Measuring: one timer for an op and every baseline.

run.py         opsmith.bench                          results.py      rows, files, regressions
workload.py    an op on arguments of one size         contenders.py   the op, its kernels, eager, compile, Liger
timing.py      contenders in turns, with intervals    gpu.py, cpu.py  what a measurement needs on each
ceilings.py    the limits of the machine              verifying.py    results are verified before timing
shapes.py      samples of other sizes                 cold.py         first calls
profiling.py   the kernels that a call runs           report/         rows as a page
"""

from .ceilings import Ceilings
from .results import Change, Results, regressions
from .run import bench
from .timing import Timing, Versus, time_together

__all__ = ["Ceilings", "Change", "Results", "Timing", "Versus", "bench", "regressions", "time_together"]
