"""What an Op is: its layout, aliasing, in-place and out= meaning, its identity, and what it says of itself."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import opsmith
from opsmith import Cost, Op, Sample, errors

Fresh = Callable[[str], str]


def square(x: Tensor) -> Tensor:
    return x * x


@opsmith.op("opsmith_tests::module_level")
def module_level(x: Tensor, scale: float = 2.0) -> Tensor:
    """x * scale, with a docstring."""
    return x * scale


@pytest.mark.usefixtures("tier")
class TestMeaning:
    @settings(max_examples=30, deadline=None)
    @given(
        shape=st.lists(st.integers(0, 4), max_size=4),
        seed=st.integers(0, 100),
        step=st.integers(1, 3),
        offset=st.integers(0, 2),
    )
    def test_results_are_contiguous_whatever_the_input(
        self, shape: list[int], seed: int, step: int, offset: int
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        wide = torch.randn([offset + step * size for size in shape], generator=generator)
        x = wide[tuple(slice(offset, None, step) for _ in shape)]
        x = x.permute(torch.randperm(x.ndim, generator=generator).tolist())
        result = module_level(x, 3.0)
        assert result.is_contiguous()
        torch.testing.assert_close(result, (x * 3.0).contiguous(), rtol=0, atol=0)
        assert result.numel() == 0 or result.data_ptr() != x.data_ptr()

    def test_expanded_inputs(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("expanded"))(square)
        x = torch.randn(3, 1).expand(3, 5).requires_grad_()
        result = op(x)
        assert result.stride() == (5, 1)
        (gradient,) = torch.autograd.grad(result, x, torch.ones(()).expand(3, 5))
        torch.testing.assert_close(gradient, 2 * x.detach())

    def test_one_tensor_given_twice(self, fresh: Fresh) -> None:
        def minus(a: Tensor, b: Tensor) -> Tensor:
            return a * 3 - b * b

        op = opsmith.op(fresh("minus"))(minus)
        x = torch.randn(4, dtype=torch.float64, requires_grad=True)
        torch.testing.assert_close(torch.autograd.grad(op(x, x).sum(), x)[0], 3 - 2 * x.detach())
        assert torch.autograd.gradgradcheck(lambda v: op(v, v), (x,))

    def test_in_place_returns_its_argument_and_bumps_its_version(self, fresh: Fresh) -> None:
        def double_(x: Tensor) -> None:
            x.mul_(2)

        op = opsmith.op(fresh("double_"), mutates_args=("x",))(double_)
        x = torch.ones(3)
        before = x._version
        assert op(x) is x
        torch.testing.assert_close(x, torch.full((3,), 2.0))
        assert x._version > before

    def test_in_place_on_what_autograd_needs_is_noticed(self, fresh: Fresh) -> None:
        def double_(x: Tensor) -> None:
            x.mul_(2)

        op = opsmith.op(fresh("noticed_"), mutates_args=("x",))(double_)
        leaf = torch.randn(3, requires_grad=True)
        middle = leaf * 1
        result = middle.exp() * middle
        with torch.no_grad():
            op(middle)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()

    def test_in_place_has_the_right_gradient(self, fresh: Fresh) -> None:
        def fma_(x: Tensor, y: Tensor, scale: float) -> None:
            x.copy_(x.clone() * y * scale)

        op = opsmith.op(fresh("fma_"), mutates_args=("x",))(fma_)
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        y = torch.randn(3, dtype=torch.float64, requires_grad=True)
        start = x * 1
        result = op(start, y, 2.0)
        assert result is start
        result.sum().backward()
        torch.testing.assert_close(x.grad, 2 * y.detach())
        torch.testing.assert_close(y.grad, 2 * x.detach())
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            op(x, y, 1.0)

    def test_in_place_on_a_view_and_on_inference_tensors(self, fresh: Fresh) -> None:
        def double_(x: Tensor) -> None:
            x.mul_(2)

        op = opsmith.op(fresh("view_"), mutates_args=("x",))(double_)
        base = torch.ones(2, 3)
        op(base[:, 1])
        torch.testing.assert_close(base, torch.tensor([[1.0, 2, 1], [1, 2, 1]]))
        with torch.inference_mode():
            torch.testing.assert_close(op(torch.ones(2)), torch.full((2,), 2.0))

    def test_out_is_written_and_returned(self, fresh: Fresh) -> None:
        def pair(x: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
            return x * scale, x + scale

        op = opsmith.op(fresh("pair"))(pair)
        outs = (torch.empty(3), torch.empty(6)[::2])
        assert op(torch.ones(3), scale=3.0, out=outs) is outs
        torch.testing.assert_close(outs, (torch.full((3,), 3.0), torch.full((3,), 4.0)))
        single = opsmith.op(fresh("single"))(square)
        out = torch.empty(3)
        assert single(torch.full((3,), 2.0), out=out) is out
        torch.testing.assert_close(out, torch.full((3,), 4.0))
        assert single(torch.ones(3), out=None) is not None
        torch.library.opcheck(single._families.default.out.overload, (torch.ones(3),), {"out": torch.empty(3)})  # type: ignore[union-attr]

    def test_out_in_a_compiled_function(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("out_compiled"))(square)
        out = torch.empty(3)
        compiled = torch.compile(lambda x, o: op(x, out=o), fullgraph=True, backend="aot_eager")
        compiled(torch.full((3,), 3.0), out)
        torch.testing.assert_close(out, torch.full((3,), 9.0))

    def test_inference_mode(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("inference"))(square)
        with torch.inference_mode():
            result = op(torch.full((3,), 3.0))
        torch.testing.assert_close(result.clone(), torch.full((3,), 9.0))

    def test_integer_inputs_and_results(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("integers"))(square)
        assert op(torch.arange(3)).dtype is torch.int64
        assert not op(torch.arange(3)).requires_grad

    def test_complex(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("complex"))(square)
        x = torch.randn(3, dtype=torch.complex128, requires_grad=True)
        assert torch.autograd.gradcheck(op, (x,))
        torch.testing.assert_close(op(x.detach().conj()), (x.detach().conj() ** 2).resolve_conj())

    def test_meta_tensors(self, fresh: Fresh) -> None:
        result = opsmith.op(fresh("meta"))(square)(torch.empty(2, 3, device="meta"))
        assert result.is_meta and result.shape == (2, 3)

    def test_threads_calling_at_once(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("threads"))(square)
        op.register_kernel("cpu", lambda x: x * x)
        failures: list[Any] = []

        def work(seed: int) -> None:
            generator = torch.Generator().manual_seed(seed)
            for _ in range(30):
                x = torch.randn(50, generator=generator).requires_grad_()
                (gradient,) = torch.autograd.grad(op(x).sum(), x)
                if not torch.equal(gradient, 2 * x.detach()):
                    failures.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    def test_a_graph_is_freed(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("freed"))(square)
        x = torch.randn(3, requires_grad=True) * 1
        ghost = weakref.ref(x)
        result = op(x)
        result.sum().backward()
        del x
        gc.collect()
        assert ghost() is None
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            result.sum().backward()

    def test_hooks_and_retain_graph(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("hooks"))(square)
        x = torch.randn(3, requires_grad=True)
        result = op(x)
        result.register_hook(lambda grad: grad * 2)
        result.sum().backward(retain_graph=True)
        torch.testing.assert_close(x.grad, 4 * x.detach())
        result.sum().backward()
        torch.testing.assert_close(x.grad, 8 * x.detach())

    def test_inline_is_the_op_for_compile_to_fuse_through(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("inlined"))(square)
        graphs: list[Any] = []

        def backend(module: Any, inputs: Any) -> Any:
            graphs.append(module)
            return module.forward

        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.compile(lambda x: op.inline(x) + 1, backend=backend, fullgraph=True)(torch.ones(3))
        assert "opsmith_tests" not in graphs[0].code
        torch.compile(lambda x: op(x) + 1, backend=backend, fullgraph=True)(torch.ones(3))
        assert "opsmith_tests" in graphs[1].code

    def test_a_changing_size_does_not_recompile_each_time(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("sizes"))(square)
        graphs: list[Any] = []

        def backend(module: Any, inputs: Any) -> Any:
            graphs.append(module)
            return module.forward

        compiled = torch.compile(lambda x: op(x) + 1, backend=backend, fullgraph=True)
        for size in range(2, 9):
            compiled(torch.ones(size))
        assert len(graphs) == 2, "one for the first size, one for all others"


class TestIdentity:
    def test_pickle_and_deepcopy(self) -> None:
        assert pickle.loads(pickle.dumps(module_level)) is module_level
        assert copy.deepcopy(module_level) is module_level
        assert copy.copy(module_level) is module_level

    def test_it_looks_like_its_function(self) -> None:
        assert module_level.__name__ == "module_level"
        assert module_level.__doc__ == "x * scale, with a docstring."
        assert module_level.schema == "opsmith_tests::module_level(Tensor x, float scale=2.0) -> Tensor"

    def test_torch_knows_it(self) -> None:
        torch.testing.assert_close(torch.ops.opsmith_tests.module_level(torch.ones(2)), torch.full((2,), 2.0))
        torch.testing.assert_close(module_level(torch.ones(2), scale=4.0), torch.full((2,), 4.0))

    @pytest.mark.usefixtures("tier")
    def test_declaring_again_replaces(self, fresh: Fresh) -> None:
        name = fresh("again")
        first = opsmith.op(name)(square)
        x = torch.randn(3, requires_grad=True)
        recorded = first(x)
        overload = first._families.default.forward.overload
        compiled = torch.compile(lambda v: first(v) + 1, backend="aot_eager", fullgraph=True)
        compiled(x)

        def other(x: Tensor, shift: float = 1.0) -> Tensor:
            return x * 3 + shift

        second = opsmith.op(name)(other)
        assert opsmith.get(name) is second
        torch.testing.assert_close(second(torch.ones(2)), torch.full((2,), 4.0))
        operator = getattr(torch.ops, name.partition("::")[0]).again
        torch.testing.assert_close(operator(torch.ones(2)), torch.full((2,), 4.0))
        with pytest.raises(RuntimeError, match=r"has been declared again since"):
            recorded.sum().backward()
        for stale in (first, overload, compiled):
            with pytest.raises(RuntimeError, match=r"has been declared again since"):
                stale(x)
        x.grad = None
        second(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.full((3,), 3.0))

    def test_samples_and_cost(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("samples"))(square)
        op.register_samples(lambda device, dtype: iter([Sample(args=(torch.ones(3, device=device, dtype=dtype),))]))
        op.register_cost(lambda x: Cost(bytes=2 * x.nbytes, flops=x.numel()))
        (sample,) = op.samples_for("cpu", torch.float64)
        assert sample.args[0].dtype is torch.float64
        assert op.cost is not None and op.cost(*sample.args) == Cost(bytes=48, flops=3)


class TestDescription:
    def test_a_bare_op_says_what_is_derived(self, fresh: Fresh) -> None:
        text = repr(opsmith.op(fresh("bare"))(square))
        assert "(Tensor x) -> Tensor" in text
        for part in ("cpu forward", "cuda forward", "cpu backward", "second gradient", "forward-mode", "fake", "vmap"):
            assert f"  {part}" in text
        assert text.count("derived") >= 9
        assert "samples          absent" in text

    def test_written_parts_say_by_whom(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("written"))(square)

        def my_kernel(x: Tensor) -> Tensor:
            return x * x

        def my_fake(x: Tensor) -> Tensor:
            return torch.empty_like(x)

        op.register_kernel("cpu", my_kernel, name="mine")
        op.register_backward("cuda", lambda grads, x, *, needs: 2 * x * grads[0])
        op.register_fake(my_fake)
        op.register_autocast("cpu", torch.float16)
        text = repr(op)
        assert "cpu forward      written    mine: Python my_kernel (test_op.py:" in text
        assert "cuda backward    written" in text and "saves x" in text
        assert "fake             written    my_fake" in text
        assert "cpu: torch.float16" in text
        parts = {part.name: part.status for part in opsmith.operator.describe.parts(op)}
        assert parts["cpu forward"] == "written" and parts["cuda forward"] == "derived" and parts["cost"] == "absent"

    def test_register_autograd_is_reported(self, fresh: Fresh) -> None:
        op = opsmith.op(fresh("autograd"))(square)
        op.register_autograd(lambda ctx, grad: grad)
        assert "gradient         written    register_autograd" in repr(op)


def test_the_names_of_the_op_are_settled_before_anything_is_left_behind(fresh: Fresh) -> None:
    name = fresh("half")
    opsmith.op(f"{name}_out")(square)
    with pytest.raises(errors.NameTakenError, match=f"{name}_out"):
        opsmith.op(name)(square)
    opsmith.get(f"{name}_out")._close()
    assert isinstance(opsmith.op(name)(square), Op)


def test_an_op_of_a_text_that_was_executed_has_a_module(fresh: Callable[[str], str]) -> None:
    names: dict[str, Any] = {"Tensor": torch.Tensor}
    exec("def doubled(x: Tensor) -> Tensor:\n    return 2 * x\n", names)
    names["doubled"].__module__ = None
    assert opsmith.op(fresh("doubled"))(names["doubled"]).__module__ == "__main__"
