"""Reads CUDA C++ without a compiler: tokens, preprocessor lines, functions, launches, declarations.

The linter, `opsmith.cuda_source` and the emulator use it. Needs the standard library alone.
"""
