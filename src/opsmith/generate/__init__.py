"""Plain PyTorch in, fused forward and backward kernels out.

    trace -> specialise -> levels -> program -> text (emit_cuda, emit_cpp) -> launch

A reference is traced when declared. On a call with dtypes not seen before it becomes expressions, on one with a layout
not seen before a kernel.
"""
