"""What "correct" means. So far: an op against its reference."""

from .compare import Comparison, compare, compare_samples

__all__ = ["Comparison", "compare", "compare_samples"]
