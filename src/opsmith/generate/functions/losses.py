"""Losses of torch.nn.functional over the classes of a row, one for each row: reduction="none"."""

from __future__ import annotations

from typing import Any

from .core import Call, Value, define, of, primitive, translates


def _at(name: str, x: Value, index: Value) -> Value:
    return x.builder.call(primitive(name), [x, index], x.dtype)


def _negative_log_likelihood(x: Value, index: Value) -> Value:
    return -_at("row_at", of("log_softmax", x), index)


def _its_gradient(g: Value, x: Value, index: Value, y: Value) -> tuple[Value, None]:
    """Of log_softmax and row_at together: no sum over the row is needed, since just one element has a gradient."""
    column = x.builder.value(x.builder.interner.column())
    return g * of("exp", of("log_softmax", x)) - column.equals(index).where(g, 0), None


define("row_cross_entropy", _its_gradient, expand=_negative_log_likelihood, reduces=True)


class _Classes:
    """The dimension of the classes, by torch's rule, and the place of one value for each row."""

    def __init__(self, call: Call, input: Any, weight: Any, reduction: str, averages: tuple[Any, ...]) -> None:
        if reduction != "none" or any(each is not None for each in averages):
            raise TypeError('only reduction="none" is supported, one loss for each row: average outside of the op')
        if weight is not None:
            raise TypeError("weights of classes are not supported: multiply by them outside of the op")
        rank = len(input.place)
        call.shapes.counts_from_the_first |= rank > 1
        self.call = call
        self.dimension = -1 if rank == 1 else 1 - rank

    def chosen(self, input: Any, target: Any, ignored: Value, by: str) -> Value:
        """A function of the input and of the target's index, 0 where that is to be ignored."""
        call = self.call
        place = call.shapes.unsqueeze(target.place, self.dimension)
        index = ignored.where(0, call.own(target))
        call.gathered(input, self.dimension, Value(call.builder, index.node, None, place))
        call.place = call.shapes.squeeze(call.place, self.dimension)
        return ignored.where(0, _at(by, call.operand(input), index))

    def summed(self, input: Any, value: Value) -> Value:
        call = self.call
        call.place = call.shapes.reduce(input.place, (self.dimension,), False, call.builder.line)
        return of("row_sum", value)


@translates("nll_loss", rows=True)
def nll_loss(
    call: Call, input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean",
) -> Value:  # fmt: skip
    classes = _Classes(call, input, weight, reduction, (size_average, reduce))
    ignored = call.own(target).equals(ignore_index)
    return -classes.chosen(input, target, ignored, "row_at")


@translates("cross_entropy", rows=True)
def cross_entropy(
    call: Call, input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: Any = 0.0,
) -> Value:  # fmt: skip
    classes = _Classes(call, input, weight, reduction, (size_average, reduce))
    x, smoothing = call.operand(input), call.operand(label_smoothing)
    count = call.size(input, classes.dimension).to(x.dtype)
    if target.example.dtype.is_floating_point:  # the probability of each class
        call.shapes.broadcast([input.place, target.place])
        share = call.operand(target)
        if label_smoothing != 0:
            share = share * (1 - smoothing) + smoothing / count
        return -classes.summed(input, of("log_softmax", x) * share)
    ignored = call.own(target).equals(ignore_index)
    loss = classes.chosen(input, target, ignored, "row_cross_entropy")
    if label_smoothing == 0:
        return loss
    uniform = ignored.where(0, -classes.summed(input, of("log_softmax", x)))
    return loss * (1 - smoothing) + uniform * (smoothing / count)
