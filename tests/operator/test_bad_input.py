"""Mistakes that users make, each with the message of its error."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import errors

Fresh = Callable[[str], str]


def square(x: Tensor) -> Tensor:
    return x * x


def scaled(x: Tensor, bias: Tensor, scale: float = 1.0, *, flag: bool = False) -> Tensor:
    return x * scale + bias


# --- declaring ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["mish", "my lib::mish", "lib::", "::mish", "lib::1mish", "a::b::c", "lib::mish.out", 7]
)
def test_ill_formed_name(name: Any) -> None:
    with pytest.raises(errors.InvalidNameError, match=r"is not an operator name. Write 'namespace::name'"):
        opsmith.op(name)(square)


def test_a_name_of_torchs_own(fresh: Fresh) -> None:
    with pytest.raises(errors.NameTakenError, match=r"aten::relu is already declared by a library outside opsmith"):
        opsmith.op("aten::relu")(square)


def test_a_name_of_another_module(fresh: Fresh) -> None:
    name = fresh("taken")
    opsmith.op(name)(square)

    def other(x: Tensor) -> Tensor:
        return x

    other.__module__ = "somewhere.else"
    with pytest.raises(errors.NameTakenError, match=f"{name} is already declared by module .*test_bad_input"):
        opsmith.op(name)(other)
    assert opsmith.get(name).reference is square


def test_a_backward_name_that_is_taken_leaves_nothing_behind(fresh: Fresh) -> None:
    name = fresh("first")
    opsmith.op(f"{name}_backward")(square)
    with pytest.raises(errors.NameTakenError, match=f"{name}_backward is already declared"):
        opsmith.op(name)(square)
    opsmith.op(f"{name}_other")(square)  # and the process continues


def _no_annotation(x):  # type: ignore[no-untyped-def]
    return x


def _no_return(x: Tensor):  # type: ignore[no-untyped-def]
    return x


def _dict(x: Tensor, table: dict[str, int]) -> Tensor:
    return x


def _variadic(*tensors: Tensor) -> Tensor:
    return tensors[0]


def _returns_int(x: Tensor) -> int:
    return 1


def _returns_any_tuple(x: Tensor) -> tuple[Tensor, ...]:
    return (x,)


def _no_tensor(n: int) -> Tensor:
    return torch.zeros(n)


def _infinite_default(x: Tensor, limit: float = float("inf")) -> Tensor:
    return x


def _nothing(x: Tensor) -> None:
    return None


def _union(x: Tensor, y: "int | str") -> Tensor:  # noqa: UP037
    return x


def _unreadable(x: Tensr) -> Tensor:  # type: ignore[name-defined]  # noqa: F821
    return x


@pytest.mark.parametrize(
    ("function", "mutates", "complaint"),
    [
        (_no_annotation, (), r"parameter 'x' has no annotation: write `x: torch.Tensor`"),
        (_no_return, (), r"its return annotation is missing: write `-> torch.Tensor`"),
        (_dict, (), r"parameter 'table' is annotated dict\[str, int\]; accepted are Tensor, int, float"),
        (_union, (), r"parameter 'y' is annotated int \| str; accepted are"),
        (_variadic, (), r"\*tensors is not accepted: name every parameter"),
        (_returns_int, (), r"its return annotation is int; an op returns torch.Tensor"),
        (_returns_any_tuple, (), r"tuple\[torch.Tensor, ...\] of a fixed length written out"),
        (_no_tensor, (), r"it takes no tensor"),
        (_infinite_default, (), r"the default limit=inf cannot be written in a schema; use None"),
        (_nothing, (), r"it returns nothing and mutates nothing"),
        (_unreadable, (), r"its annotations cannot be read: name 'Tensr' is not defined"),
        (square, ("x",), r"an op with mutates_args returns nothing: annotate `-> None`"),
        (square, ("y",), r"mutates_args names 'y', which is not one of its parameters"),
        (square, "x", r'mutates_args takes names in a tuple: mutates_args=\("x",\)'),
    ],
)
def test_a_reference_that_cannot_become_an_operator(fresh: Fresh, function: Any, mutates: Any, complaint: str) -> None:
    with pytest.raises(errors.SignatureError, match=complaint) as caught:
        opsmith.op(fresh("signature"), mutates_args=mutates)(function)
    name = getattr(function, "__name__", "")
    assert re.search(rf"\n  test_bad_input.py:\d+: def {name}\(", str(caught.value)), "the author's line is shown"


def test_an_unknown_autocast_policy(fresh: Fresh) -> None:
    with pytest.raises(errors.AutocastPolicyError, match=r"autocast='bfloat16' is not one of keep, lower, float32"):
        opsmith.op(fresh("policy"), autocast="bfloat16")(square)


@pytest.mark.parametrize(
    ("register", "error", "message"),
    [
        (lambda op: op.register_kernel("gpu", square), errors.UnknownDeviceError, "'gpu' is not one of cpu, cuda"),
        (lambda op: op.register_backward("gpu", square), errors.UnknownDeviceError, "'gpu' is not one of cpu, cuda"),
        (lambda op: op.register_autocast(device="gpu", cast_inputs=torch.half), errors.UnknownDeviceError, "'gpu'"),
        (lambda op: op.register_kernel("cpu", square, layout="rows"), errors.LayoutError, "'rows' is not one of conti"),
        (lambda op: op.register_backward("cpu", square, layout="rows"), errors.LayoutError, "'rows' is not one of con"),
        (lambda op: op.register_autocast("cpu", "bfloat16"), errors.AutocastDtypeError, r"a torch.dtype, not str"),
        (lambda op: op.register_kernel("cpu", 3.0), errors.KernelTypeError, r"a kernel is a function .*, not float"),
        (lambda op: op.register_backward("cpu", 3.0), errors.KernelTypeError, r"a kernel is a function .*, not float"),
        (lambda op: op.register_samples(3), errors.NotAFunctionError, r"register_samples takes a function, not int"),
        (lambda op: op.register_cost(3), errors.NotAFunctionError, r"register_cost takes a function, not int"),
        (lambda op: op.register_fake(None), errors.NotAFunctionError, r"register_fake takes a function, not None"),
        (lambda op: op.register_vmap(3), errors.NotAFunctionError, r"register_vmap takes a function, not int"),
        (lambda op: op.register_autograd(3), errors.NotAFunctionError, r"register_autograd takes a function, not int"),
        (lambda op: op.register_kernel("cpu", square, name="my kernel"), errors.KernelNameError, "'my kernel' is not"),
    ],
)
def test_registering_what_is_not_accepted(
    fresh: Fresh, register: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    op = opsmith.op(fresh("registering"))(square)
    with pytest.raises(error, match=message) as caught:
        register(op)
    assert isinstance(caught.value, errors.RegistrationError)
    assert re.search(r"\n  test_bad_input.py:\d+: \(lambda op: op.register_", str(caught.value)), "the author's line"


def test_a_registration_inside_an_executed_text_has_no_line_to_show(fresh: Fresh) -> None:
    op = opsmith.op(fresh("executed"))(square)
    with pytest.raises(errors.UnknownDeviceError) as caught:
        exec("op.register_kernel('gpu')", {"op": op})
    assert len(str(caught.value).splitlines()) == 1


def test_a_function_is_described_by_its_definition_below_its_decorators() -> None:
    def passed_through(function: Any) -> Any:
        return function

    @passed_through
    @passed_through
    def decorated(x: Tensor) -> Tensor:
        return x

    line = errors.definition(decorated)
    assert line is not None and line.text == "def decorated(x: Tensor) -> Tensor:"
    assert errors.described(decorated) == f"decorated ({line.place})"
    assert errors.definition(len) is None and errors.described(len) == "len"


# --- the reference --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tier")
class TestReferences:
    def test_that_returns_its_input_is_given_a_copy(self, fresh: Fresh) -> None:
        def as_float(x: Tensor) -> Tensor:
            return x.float()

        op = opsmith.op(fresh("as_float"))(as_float)
        x = torch.randn(3, requires_grad=True)
        result = op(x)
        assert result.data_ptr() != x.data_ptr()
        result.sum().backward()
        torch.testing.assert_close(x.grad, torch.ones(3))
        torch.library.opcheck(op._families.default.forward.overload, (x,))

    def test_that_returns_one_tensor_twice_is_given_copies(self, fresh: Fresh) -> None:
        def twice(x: Tensor) -> tuple[Tensor, Tensor]:
            doubled = x * 2
            return doubled, doubled

        first, second = opsmith.op(fresh("twice"))(twice)(torch.ones(3))
        assert first.data_ptr() != second.data_ptr()

    def test_that_changes_an_input_is_refused_before_it_does(self, fresh: Fresh) -> None:
        def careless(x: Tensor, y: Tensor) -> Tensor:
            y.view(-1).add_(1)
            return x + y

        op = opsmith.op(fresh("careless"))(careless)
        y = torch.zeros(3)
        with pytest.raises(
            errors.UndeclaredMutationError, match=r"changes its input 'y' in place.*clone\(\).*mutates_args=\(\"y\",\)"
        ) as caught:
            op(torch.zeros(3), y)
        assert "aten::add_" in str(caught.value)
        assert re.search(r"\n  test_bad_input.py:\d+: y.view\(-1\).add_\(1\)$", str(caught.value))
        torch.testing.assert_close(y, torch.zeros(3))

    def test_that_changes_an_input_on_a_later_call_is_refused(self, fresh: Fresh) -> None:
        def sometimes(x: Tensor, go: bool) -> Tensor:
            return x.mul_(2).clone() if go else x * 2

        op = opsmith.op(fresh("sometimes"))(sometimes)
        op(torch.ones(3), False)
        with pytest.raises(errors.UndeclaredMutationError, match="changes its input 'x' in place"):
            op(torch.ones(3), True)

    def test_that_draws_random_numbers_has_no_derived_gradient(self, fresh: Fresh) -> None:
        def noisy(x: Tensor) -> Tensor:
            scale = 2.0
            return torch.nn.functional.dropout(x * scale, 0.5, True)

        op = opsmith.op(fresh("noisy"))(noisy)
        x = torch.randn(100, requires_grad=True)
        result = op(x)
        with pytest.raises(
            errors.RandomReferenceError, match=r"draws random numbers \(aten::.* at test_bad_input.py:\d+\)"
        ) as caught:
            result.sum().backward()
        assert str(caught.value).endswith(": return torch.nn.functional.dropout(x * scale, 0.5, True)")

    def test_that_draws_random_numbers_on_a_later_call(self, fresh: Fresh) -> None:
        def sometimes(x: Tensor, go: bool) -> Tensor:
            return x * torch.rand_like(x) if go else x * 2

        op = opsmith.op(fresh("noisy_later"))(sometimes)
        x = torch.randn(10, requires_grad=True)
        op(x, False)
        with pytest.raises(errors.RandomReferenceError, match="draws random numbers"):
            op(x, True).sum().backward()

    @pytest.mark.parametrize(
        "reference",
        [
            lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
            lambda x: torch.nn.functional.dropout(x * 2, 0.5, False),
            lambda x: torch.nn.functional.dropout(x * 2, 0.0, True),
            lambda x: torch.rrelu(x, training=False),
        ],
        ids=["attention", "inference", "no dropout", "rrelu"],
    )
    def test_that_could_draw_random_numbers_and_does_not(self, fresh: Fresh, reference: Callable[..., Any]) -> None:
        def plain(x: Tensor) -> Tensor:
            return reference(x)  # type: ignore[no-any-return]

        x = torch.randn(2, 3, 5, 8, requires_grad=True)
        op = opsmith.op(fresh("could_be_noisy"))(plain)
        torch.testing.assert_close(
            torch.autograd.grad(op(x).square().sum(), x), torch.autograd.grad(plain(x).square().sum(), x)
        )

    def test_that_returns_other_than_annotated(self, fresh: Fresh) -> None:
        def liar(x: Tensor) -> Tensor:
            return x, x  # type: ignore[return-value]

        op = opsmith.op(fresh("liar"))(liar)
        with pytest.raises(
            errors.ReferenceResultError,
            match=r"annotated to return one Tensor but returned tuple of Tensor, Tensor.\n  test_bad_input.*def liar",
        ):
            op(torch.randn(3))

    def test_that_returns_a_sparse_tensor(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("sparse"))(square)
        with pytest.raises(
            errors.ReferenceResultError, match=r"strided tensors, as every op does, but returned sparse_coo"
        ):
            op(torch.eye(3).to_sparse())

    def test_that_raises_keeps_its_own_message(self, fresh: Fresh) -> None:
        def picky(x: Tensor) -> Tensor:
            raise ValueError("only on Sundays")

        with pytest.raises(ValueError, match="only on Sundays"):
            opsmith.op(fresh("picky"))(picky)(torch.randn(3))


# --- calling --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tier")
class TestCalls:
    @pytest.mark.parametrize(
        ("args", "kwargs", "complaint"),
        [
            ((1.5, torch.ones(3)), {}, r"argument 'x' takes Tensor, not float \(1.5\); pass torch.tensor\(1.5\)"),
            ((torch.ones(3), None), {}, r"argument 'bias' takes Tensor, not NoneType"),
            ((torch.ones(3),), {}, r"argument 'bias' is missing"),
            ((torch.ones(3), torch.ones(3), "2"), {}, r"argument 'scale' takes float, not str \('2'\)"),
            ((torch.ones(3), torch.ones(3), 1.0, True), {}, r"it takes 3 positional arguments, not 4"),
            ((torch.ones(3), torch.ones(3)), {"sclae": 1.0}, r"it has no argument 'sclae'"),
            ((torch.ones(3), torch.ones(3)), {"bias": torch.ones(3)}, r"argument 'bias' is given twice"),
            (([1.0, 2.0], torch.ones(3)), {}, r"argument 'x' takes Tensor, not list"),
        ],
    )
    def test_arguments_that_do_not_fit(self, fresh: Fresh, args: Any, kwargs: Any, complaint: str) -> None:
        op = opsmith.op(fresh("scaled"))(scaled)
        with pytest.raises(errors.ArgumentError, match=complaint) as caught:
            op(*args, **kwargs)
        assert "(Tensor x, Tensor bias, float scale=1.0, *, bool flag=False) -> Tensor" in str(caught.value)

    def test_dtypes_the_reference_does_not_take(self, fresh: Fresh) -> None:
        def matmul(a: Tensor, b: Tensor) -> Tensor:
            return a @ b

        op = opsmith.op(fresh("matmul"))(matmul)
        with pytest.raises(RuntimeError, match=r"same dtype|expected"):
            op(torch.ones(2, 2), torch.ones(2, 2, dtype=torch.int32))

    def test_shapes_the_reference_does_not_take(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("shapes"))(scaled)
        with pytest.raises(RuntimeError, match="must match the size"):
            op(torch.ones(3), torch.ones(4))

    def test_tensors_on_two_devices(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("mixed"))(scaled)
        for _ in range(2):
            with pytest.raises(errors.DeviceMixError, match=r"one device, but there is x on cpu, bias on meta"):
                op(torch.ones(3), torch.ones(3, device="meta"))
            op.register_kernel("cpu", lambda x, bias, scale, *, flag: x * scale + bias)

    def test_in_place_through_torch_ops_on_a_tensor_that_needs_a_gradient(self, fresh: Fresh) -> None:
        def double_(x: Tensor) -> None:
            x.mul_(2)

        op = opsmith.op(fresh("double_"), mutates_args=("x",))(double_)
        x = torch.randn(3, requires_grad=True) * 1
        with pytest.raises(errors.InPlaceGradientError, match="call the Op object itself"):
            op._families.default.forward.overload(x)
        with torch.no_grad():
            op._families.default.forward.overload(x)

    def test_out_with_another_number_of_tensors(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("out_count"))(square)
        with pytest.raises(errors.OutArgumentError, match=r"out= takes one tensor for each result, 1 in all, not 2"):
            op(torch.randn(3), out=(torch.empty(3), torch.empty(3)))

    def test_out_for_an_op_that_returns_a_list(self, fresh: Fresh) -> None:
        def halves(x: Tensor) -> list[Tensor]:
            return list(x.chunk(2))

        with pytest.raises(errors.OutArgumentError, match=r"there is no out= form"):
            opsmith.op(fresh("out_list"))(halves)(torch.randn(4), out=[torch.empty(2), torch.empty(2)])

    def test_out_where_a_gradient_is_needed(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("out"))(square)
        with pytest.raises(errors.OutGradientError, match=r"out= cannot be differentiated"):
            op(torch.randn(3, requires_grad=True), out=torch.empty(3))

    @pytest.mark.parametrize("out", [torch.empty(4), torch.empty(3, dtype=torch.float64)])
    def test_out_of_another_shape_or_dtype(self, fresh: Fresh, out: Tensor) -> None:
        op = opsmith.op(fresh("out_shape"))(square)
        with pytest.raises(errors.OutMismatchError, match=r"but out= is a torch.float\d\d Tensor of shape"):
            op(torch.randn(3), out=out)


def test_an_op_that_is_not_there() -> None:
    with pytest.raises(errors.UnknownOpError, match=r"No op named 'nowhere::nothing' is declared"):
        opsmith.get("nowhere::nothing")


def test_samples_that_are_not_there(fresh: Fresh) -> None:
    with pytest.raises(
        errors.SamplesMissingError, match=r"test_bad_input.py:\d+: def square.*\n.*\n.*@op.register_samples"
    ):
        opsmith.op(fresh("samples"))(square).samples_for("cpu")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: [opsmith.Sample(x)], "Sample was given a Tensor for args"),
        (lambda x: [opsmith.Sample((x,), x)], "Sample was given a Tensor for kwargs"),
        (lambda x: [(x,)], "samples of .* must be opsmith.Sample, but one is a tuple"),
        (lambda x: opsmith.Sample((x,)), "must yield them, but it returned a Sample"),
        (lambda x: None, "must yield them, but it returned a NoneType"),
    ],
)
def test_samples_that_are_not_samples(fresh: Fresh, make: Callable[[Tensor], Any], said: str) -> None:
    op = opsmith.op(fresh("samples"))(square)
    op.register_samples(lambda device, dtype: make(torch.ones(1, 3)))
    with pytest.raises(errors.InvalidSampleError, match=rf"{said}.*opsmith.Sample\(\(x,\)\)"):
        op.samples_for("cpu")


def test_a_sample_s_name_is_a_string() -> None:
    with pytest.raises(errors.InvalidSampleError, match="Sample was given a int for its name, which must be a string"):
        opsmith.Sample((torch.ones(3),), name=1000)  # type: ignore[arg-type]


def test_a_cost_is_whole_numbers_of_any_kind_and_nothing_else() -> None:
    cost = opsmith.Cost(bytes=8 * np.prod((2, 3)), flops=2.5e3)  # type: ignore[arg-type]
    assert (cost.bytes, cost.flops) == (48, 2500) and {type(cost.bytes), type(cost.flops)} == {int}
    for count in (math.nan, math.inf, -1, "8", None):
        with pytest.raises(ValueError, match="expected a number, zero or more"):
            opsmith.Cost(flops=count)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["default", "reference", "opsmith", "eager", "compile", "liger", "two words"])
def test_a_kernel_cannot_have_a_reserved_name(fresh: Fresh, name: str) -> None:
    op = opsmith.op(fresh("named"))(square)
    with pytest.raises(errors.KernelNameError, match=f"name='{name}' is not a name for a kernel"):
        op.register_kernel("cpu", name=name)(lambda x: x * x)


def test_the_arguments_of_a_sample_may_be_a_list() -> None:
    assert opsmith.Sample([1, 2]).args == (1, 2)  # type: ignore[arg-type]


ONES = torch.ones(3)


@opsmith.op("bad_input::add_", mutates_args=("x",))
def add_(x: Tensor, y: Tensor) -> None:
    x.add_(y)


MISTAKES: dict[str, Callable[[opsmith.Op], object]] = {
    "an argument of another type": lambda op: op(3),
    "an argument that is missing": lambda op: op(),
    "tensors on two devices": lambda op: opsmith.ops.swiglu(torch.randn(3), torch.randn(3, device="meta")),
    "memory that is shared": lambda op: add_(ONES, ONES),
    "an out= of another shape": lambda op: op(torch.randn(3), out=torch.empty(4)),
    "several out= for one result": lambda op: op(torch.randn(3), out=(torch.empty(3), torch.empty(3))),
    "a kernel that is not there": lambda op: op.using("none").__enter__(),
    "an op that is not there": lambda op: opsmith.get("nowhere::nothing"),
    "a name that is not one": lambda op: opsmith.op("nothing")(square),
    "a name that is taken": lambda op: opsmith.op("aten::relu")(square),
    "a source that is not generated": lambda op: op.source("cpu"),
    "a check of something else": lambda op: opsmith.check(square),
    "an extension without sources": lambda op: opsmith.extension("no_sources", sources=[]),
    "an extension whose source is not there": lambda op: opsmith.extension("no_source", sources=["none.cpp"]),
    "a source of CUDA that is not there": lambda op: opsmith.cuda_source("none.cu"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_ends_with_the_line_that_caused_it(fresh: Fresh, mistake: str) -> None:
    op = opsmith.op(fresh("mistaken"))(square)
    with pytest.raises(errors.OpsmithError) as caught:
        MISTAKES[mistake](op)
    last = str(caught.value).splitlines()[-1]
    assert re.fullmatch(rf'  test_bad_input.py:\d+: "{mistake}": lambda op: .*,', last), str(caught.value)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("Traceback:\n  f()\nmylib.LostError: gone\n  ops.py:3: f(x)\n", "mylib.LostError: gone"),
        ("ValueError: first\nwhich led to\nKeyboardInterrupt\n\n", "KeyboardInterrupt"),
        ("a tool's\nlast line\n", "last line"),
        ("", ""),
    ],
)
def test_of_what_a_process_printed_the_exception_is_shown(output: str, line: str) -> None:
    assert errors.base.exception_line(output) == line


def test_errors_survive_a_worker_process() -> None:
    for error in (errors.InvalidNameError("x"), errors.DeviceMixError("a::b", {"x": "cpu", "y": "cuda:0"})):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_device_mix_names_each_tensor_and_a_remedy() -> None:
    message = str(errors.DeviceMixError("a::b", {"x": "cuda:0", "bias": "cpu"}))
    assert message.startswith(
        "a::b: all tensors of a call must be on one device, but there is x on cuda:0, bias on cpu. "
        "Move them together, for example bias = bias.to('cuda:0')."
    )


def test_optional_annotations_of_both_spellings_are_taken(fresh: Fresh) -> None:
    def either(x: Tensor, a: Optional[Tensor] = None, b: "Tensor | None" = None) -> Tensor:  # noqa: UP045, UP037
        return x

    assert "Tensor? a=None, Tensor? b=None" in opsmith.op(fresh("either"))(either).schema
