"""Plain PyTorch in, kernels of rows out: softmax, norms, losses.

A function in which each row of the result depends only on the rows at the same position of the inputs is declared with
`opsmith.rowwise`. It may do what a pointwise function does, and reduce rows. Here: several reductions in sequence, an
index for each row, results of several dtypes, rows of several dimensions, what is saved, and what is refused.
"""

# [rowwise]
import torch

import opsmith


@opsmith.rowwise("examples::rms_norm")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


# [rowwise]


@rms_norm.register_samples
def _(device: torch.device, dtype: torch.dtype):
    x = torch.randn(8, 300, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x, torch.randn(300, device=device, dtype=dtype)), name="8 rows")
    yield opsmith.Sample(args=(x[::2, ::3], torch.randn(100, device=device, dtype=dtype)), name="sliced")


# [index]
@opsmith.rowwise("examples::negative_log_likelihood")
def negative_log_likelihood(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    chosen = logits.gather(-1, target[..., None])[..., 0]  # [..., classes], [...] -> [...]: one index for each row
    return logits.logsumexp(-1) - chosen


# [index]


# [dtypes]
@opsmith.rowwise("examples::quantize")
def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of int8, and the scale of each: results may have several dtypes, and full rows or one value per row."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return torch.round(x / scale).to(torch.int8), scale[..., 0]


# [dtypes]


# [columns]
@opsmith.rowwise("examples::causal_softmax")
def causal_softmax(scores: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    columns = torch.arange(scores.shape[-1], device=scores.device)
    return scores.masked_fill(columns > last[..., None], float("-inf")).softmax(-1)


# [columns]


# [dimensions]
@opsmith.rowwise("examples::standardize_images")
def standardize_images(x: torch.Tensor) -> torch.Tensor:
    """A row is an image [channels, height, width]: any set of dimensions is a row, the same in every call."""
    mean = x.mean((-3, -2, -1), keepdim=True)
    return (x - mean) / (x.std((-3, -2, -1), keepdim=True, correction=0) + 1e-6)


# [dimensions]


def main() -> None:
    from opsmith.checks import compare_samples

    for comparison in compare_samples(rms_norm):  # the kernels against the reference: results and gradients
        print(f"{'ok' if comparison else 'WRONG':5} {comparison.what}")

    # [backward]
    x, weight = torch.randn(64, 500, requires_grad=True), torch.ones(500, requires_grad=True)
    y = rms_norm(x, weight)
    y.square().sum().backward()  # one kernel: the gradient of x, and that of weight summed over the rows
    # [backward]
    print("gradients:", tuple(x.grad.shape), tuple(weight.grad.shape))

    # [saved]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        rms_norm(x, weight)
    # [saved]
    print("saved for backward:", [tuple(tensor.shape) for tensor in kept])

    logits, target = torch.randn(4, 1000), torch.tensor([1, 999, 0, 7])
    expected = torch.nn.functional.cross_entropy(logits, target)
    print("likelihood:", torch.allclose(negative_log_likelihood(logits, target).mean(), expected))
    rows, scale = quantize(logits)
    print("quantized:", rows.dtype, scale.dtype, tuple(scale.shape))
    print("causal:", causal_softmax(torch.zeros(3, 4), torch.tensor([0, 1, 3])).tolist())

    # [layout]
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    result = standardize_images(images)  # the rows are read in place, and are contiguous in the result
    # [layout]
    print("images:", result.is_contiguous(), round(result.std((1, 2, 3), correction=0).mean().item(), 3))

    # [refused]
    try:

        @opsmith.rowwise("examples::centre_both_ways")
        def centre_both_ways(x: torch.Tensor) -> torch.Tensor:
            rows = x - x.mean(-1, keepdim=True)
            return rows - rows.mean(-2, keepdim=True)

    except opsmith.OpsmithError as error:
        print(f"refused: {error}")
    # [refused]

    print(rms_norm.source("cpu").splitlines()[0])  # or: opsmith show NAME --source cpu --from FILE.py


if __name__ == "__main__":
    main()
