"""Your own backward, several outputs, and an op that works in place.

A backward kernel names what it needs, and only that is saved. Here the softmax's gradient is taken from its output
alone, so the input can be freed. opsmith still knows what the gradient must be (the reference's), and can check it.
"""

import torch

import opsmith
from opsmith.checks import compare_samples


# [outputs]
@opsmith.op("examples::softmax_entropy")
def softmax_entropy(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(softmax(x), its entropy), each over the last dimension: [..., n] -> [..., n], [...]."""
    probabilities = torch.softmax(x, dim=-1)
    return probabilities, -(probabilities * torch.log_softmax(x, dim=-1)).sum(-1)


# [outputs]


# [backward]
@softmax_entropy.register_backward("cpu")
@softmax_entropy.register_backward("cuda")
def _(grads, output_0, *, needs):
    grad_probabilities, grad_entropy = grads  # None where nothing came back for a result
    probabilities = output_0
    total = torch.zeros_like(probabilities) if grad_probabilities is None else grad_probabilities
    if grad_entropy is not None:  # d entropy / d p = -(log p + 1), and the 1 falls out below
        total = total - grad_entropy[..., None] * torch.log(probabilities)
    return probabilities * (total - (total * probabilities).sum(-1, keepdim=True))


# [backward]


@softmax_entropy.register_samples
def _(device, dtype):
    yield opsmith.Sample(args=(torch.randn(4, 16, device=device, dtype=dtype),), name="4x16")


# [inplace]
@opsmith.op("examples::clip_", mutates_args=("x",))
def clip_(x: torch.Tensor, limit: float = 1.0) -> None:
    x.clamp_(-limit, limit)


# [inplace]


def main() -> None:
    for comparison in compare_samples(softmax_entropy):
        print(f"{'ok' if comparison else 'WRONG':5} {comparison.what}")

    x = torch.randn(4, 16, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.untyped_storage().nbytes()) or t, lambda t: t
    ):
        _, entropy = softmax_entropy(x)
    print("bytes saved for backward:", sum(kept), "- the output, and of the input only its shape")
    entropy.sum().backward()

    values = torch.tensor([-3.0, 0.5, 2.0])
    print("in place:", clip_(values, 1.0).tolist(), "- the same tensor:", clip_(values) is values)
    leaf = torch.tensor([-3.0, 0.5, 2.0], requires_grad=True)
    clip_(leaf * 1.0).sum().backward()  # autograd knows what happened to the tensor
    print("gradient through it:", leaf.grad.tolist())


if __name__ == "__main__":
    main()
