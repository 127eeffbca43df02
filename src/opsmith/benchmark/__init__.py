"""Measuring: one timer for an op and every baseline.

workload.py    an op on arguments of one size         contenders.py   the op, its kernels, eager, compile, Liger
gpu.py, cpu.py what one sample of a time is           sampling.py     contenders in turns, until the spread is known
ceilings.py    the limits of the machine                 results.py      rows, files, regressions
shapes.py      samples of other sizes                 verifying.py    results are verified before timing
run.py         opsmith.bench                          environment.py  what rows were measured on
stage.py       what all contenders have in common     cold.py         first calls
timing.py      callables timed side by side           profiling.py    which kernels a call runs
report/        rows as a page
"""

from .ceilings import Ceilings
from .results import Change, Results, regressions
from .run import bench
from .timing import Timing, Versus, time_together

__all__ = ["Ceilings", "Change", "Results", "Timing", "Versus", "bench", "regressions", "time_together"]
