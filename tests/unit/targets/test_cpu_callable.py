"""Kernels called as Python functions on the caller's own arrays."""

import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tileyard.base.errors import BindError, KernelFault
from tileyard.targets.cpu.loaded import CpuLoaded

Load = Callable[..., CpuLoaded]

AXPY = """
def axpy(a: float32, X: float32[m, 8], Y: out.float32[m, 8]):
    m: dim
    for i, j in parallel(m, 8):
        Y[i, j] = X[i, j] * a
"""

SPLIT = """
def split(X: int32[16], Low: out.int32[8], High: out.int32[8]):
    for i in parallel(8):
        Low[i] = X[i]
        High[i] = X[i + 8]
"""

COUNT = """
def count(Y: inout.int64[4]):
    for i in parallel(4):
        Y[i] = Y[i] + 1
"""

HALF = """
def half(X: float16[4, 6], Y: out.float16[4, 6]):
    t: shared.float16[4, 6]
    copy(X, t)
    for i, j in parallel(4, 6):
        t[i, j] = t[i, j] * 2.0
    copy(t, Y)
"""

BLOCKS = """
def blocks(Seen: inout.int32[1000]):
    b: grid[1000]
    t: shared.int32[64]
    fill(t, b)
    Seen[b] = Seen[b] + t[b % 64]
"""


@pytest.mark.slow
def test_outputs_are_allocated_where_they_are_not_given(load_text: Load) -> None:
    """With inputs only, the output comes back as a new array of the right shape and type."""
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    result = load_text(AXPY).as_callable()(2.0, x)
    expected = x * 2
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float32
    assert np.array_equal(result, expected)


@pytest.mark.slow
def test_several_outputs_come_as_a_tuple(load_text: Load) -> None:
    """Two outputs are returned in calling order."""
    result = load_text(SPLIT).as_callable()(np.arange(16, dtype=np.int32))
    expected = (list(range(8)), list(range(8, 16)))
    assert isinstance(result, tuple)
    assert tuple(list(part) for part in result) == expected


@pytest.mark.slow
def test_given_outputs_are_written_in_place(load_text: Load) -> None:
    """With all tensors given, the caller's own array is written and nothing returned."""
    x, y = np.ones((2, 8), np.float32), np.zeros((2, 8), np.float32)
    expected = None
    assert load_text(AXPY).as_callable()(3.0, x, y) is expected
    assert (y == 3).all()


@pytest.mark.slow
def test_inouts_are_written_in_place(load_text: Load) -> None:
    """A parameter that is read and written is changed where it is, call after call."""
    y = np.zeros(4, np.int64)
    kernel = load_text(COUNT).as_callable()
    for _ in range(3):
        kernel(y)
    expected = [3, 3, 3, 3]
    assert list(y) == expected


@pytest.mark.slow
def test_inputs_that_are_not_contiguous_are_copied(load_text: Load) -> None:
    """A transposed or strided input gives the same result as its copy, and is left alone."""
    base = np.arange(64, dtype=np.float32).reshape(8, 8)
    kernel = load_text(AXPY).as_callable()
    for x in (base.T, base[::2], np.asfortranarray(base)):
        expected = np.ascontiguousarray(x) * 2
        assert np.array_equal(kernel(2.0, x), expected)


@pytest.mark.slow
def test_written_arrays_may_have_the_strides_that_the_kernel_declares(load_text: Load) -> None:
    """A parameter with strides takes any array of its shape, and writes it where it lies."""
    text = """
def double(Y: inout.float32[4, 2] @ (0, 1), n: int32):
    for i, j in parallel(4, 2):
        Y[i, j] = Y[i, j] * float32(n)
"""
    kernel = load_text(text).as_callable()
    base = np.ones((4, 4), np.float32)
    expected = [1, 1, 3, 3]
    kernel(base[:, 2:], 3)
    assert [list(row) for row in base] == [expected] * 4


@pytest.mark.slow
def test_shapes_may_change_from_call_to_call(load_text: Load) -> None:
    """Dimensions that are open are bound by each call's own arrays."""
    kernel = load_text(AXPY).as_callable()
    expected = [(1, 8), (5, 8), (1, 8), (0, 8)]
    assert [kernel(1.0, np.ones(shape, np.float32)).shape for shape in expected] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((1.0, np.ones((2, 8))), "X is float32, the array float64"),
        ((1.0, np.ones((2, 7), np.float32)), "X has shape"),
        ((1.0, [[1.0] * 8]), "X is an array, not list"),
        (("1", np.ones((2, 8), np.float32)), "a is a number, not str"),
        ((1.0,), "takes 2 or 3 arguments, not 1"),
        (
            (1.0, np.ones((2, 8), np.float32), np.zeros((8, 2), np.float32).T),
            "Y is written in place, and the array is not contiguous",
        ),
        (
            (1.0, np.ones((2, 8), np.float32), np.zeros((3, 8), np.float32)),
            "Y has shape",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    arguments: tuple[object, ...], expected: str, load_text: Load
) -> None:
    """A wrong type, shape, layout or number of arguments is a BindError that names the parameter."""
    with pytest.raises(BindError, match=expected):
        load_text(AXPY).as_callable()(*arguments)


@pytest.mark.slow
def test_written_arrays_must_be_writable(load_text: Load) -> None:
    """A read-only output is refused before anything runs."""
    y = np.zeros((2, 8), np.float32)
    y.flags.writeable = False
    with pytest.raises(BindError, match="Y is written, and the array is read-only"):
        load_text(AXPY).as_callable()(3.0, np.ones((2, 8), np.float32), y)
    expected = 0
    assert y.sum() == expected


@pytest.mark.slow
def test_written_arrays_must_not_overlap_others(load_text: Load) -> None:
    """An output that shares memory with an input would change it half-way: it is refused."""
    both = np.ones((4, 8), np.float32)
    expected = "Y is written, and shares memory with X"
    with pytest.raises(BindError, match=expected):
        load_text(AXPY).as_callable()(2.0, both[:3], both[1:])


@pytest.mark.slow
def test_torch_tensors_are_used_in_place(load_text: Load) -> None:
    """Torch CPU tensors go in and come out as tensors, without a copy where they are contiguous."""
    torch = pytest.importorskip("torch")
    kernel = load_text(AXPY).as_callable()
    x = torch.arange(16, dtype=torch.float32).reshape(2, 8)
    result = kernel(2.0, x)
    expected = x * 2
    assert torch.equal(result, expected)
    y = torch.zeros(2, 8)
    address = y.data_ptr()
    assert kernel(2.0, x, y) is None
    assert (y.data_ptr(), torch.equal(y, expected)) == (address, True)
    turned = torch.arange(16, dtype=torch.float32).reshape(8, 2).T
    assert torch.equal(kernel(2.0, turned), turned * 2)


@pytest.mark.slow
def test_half_precision_tensors_fit(load_text: Load) -> None:
    """float16 tensors of torch are the kernel's float16; other types are refused by name."""
    torch = pytest.importorskip("torch")
    kernel = load_text(HALF).as_callable()
    x = torch.randn(4, 6, dtype=torch.float16)
    expected = x * 2
    assert torch.equal(kernel(x), expected)
    with pytest.raises(BindError, match=r"X is float16, the tensor torch.bfloat16"):
        kernel(x.bfloat16())


@pytest.mark.slow
def test_torch_is_not_imported_for_numpy(load_text: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call on NumPy arrays works where torch cannot be imported."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "path", [])
    expected = 8.0
    assert load_text(AXPY).as_callable()(1.0, np.ones((1, 8), np.float32)).sum() == expected
    assert "torch" not in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_block_runs_once(threads: int, load_text: Load) -> None:
    """However many threads share the blocks, each block runs exactly once."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    loaded = load_text(BLOCKS, tuple(cores[i % len(cores)] for i in range(threads)))
    kernel = loaded.as_callable()
    seen = np.zeros(1000, np.int32)
    expected = list(range(1000))
    kernel(seen)
    assert list(seen) == expected


@pytest.mark.slow
def test_threads_of_the_caller_may_call_at_once(load_text: Load) -> None:
    """Calls from several Python threads do not disturb each other."""
    kernel = load_text(BLOCKS).as_callable()
    arrays = [np.zeros(1000, np.int32) for _ in range(4)]

    def call(array: np.ndarray) -> None:
        for _ in range(20):
            kernel(array)

    threads = [threading.Thread(target=call, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [20 * i for i in range(1000)]
    assert all(list(array) == expected for array in arrays)


@pytest.mark.slow
def test_a_forked_child_has_threads_of_its_own(load_text: Load) -> None:
    """After a fork the child can call a kernel that its parent has called before."""
    kernel = load_text(BLOCKS).as_callable()
    seen = np.zeros(1000, np.int32)
    kernel(seen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads in the parent
        child = os.fork()
    if child == 0:
        kernel(seen)
        os._exit(0 if seen[999] == 2 * 999 else 1)
    _, status = os.waitpid(child, 0)
    expected = 0
    assert os.waitstatus_to_exitcode(status) == expected


@pytest.mark.slow
def test_the_callers_thread_stays_where_it_is(load_text: Load) -> None:
    """Calling a kernel does not pin the caller's thread to a core."""
    expected = os.sched_getaffinity(0)
    load_text(BLOCKS).as_callable()(np.zeros(1000, np.int32))
    assert os.sched_getaffinity(0) == expected


@pytest.mark.slow
def test_faults_are_raised(load_text: Load) -> None:
    """A kernel's own failure is a KernelFault in the caller."""
    text = """
def divide(X: int32[2], Y: out.int32[2]):
    for i in serial(2):
        Y[i] = 1 // X[i]
"""
    expected = "divide: an integer is divided by zero"
    with pytest.raises(KernelFault, match=expected):
        load_text(text).as_callable()(np.zeros(2, np.int32))


@pytest.mark.slow
def test_scratch_memory_that_does_not_exist_is_a_memory_error(load_text: Load) -> None:
    """A kernel whose tiles do not fit in memory fails when it is bound, not later."""
    text = """
def huge(Y: out.float32[4]):
    t: shared.float32[1000000000, 40000]
    t[0, 0] = 1.0
    Y[0] = t[0, 0]
"""
    with pytest.raises(MemoryError, match="bytes of scratch"):
        load_text(text).bind([], [])


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two cores are needed")
def test_a_thread_leaves_the_core_of_the_caller(load_text: Load) -> None:
    """It may run on the other one afterwards: on one core they would take turns, launch after launch."""
    allowed = os.sched_getaffinity(0)
    here, there = sorted(allowed)[:2]
    before = set(Path("/proc/self/task").iterdir())
    kernel = load_text(BLOCKS, (there, here)).as_callable()
    seen = np.zeros(1000, np.int32)
    kernel(seen)
    (member,) = (int(task.name) for task in set(Path("/proc/self/task").iterdir()) - before)
    os.sched_setaffinity(0, {here})
    places = []
    try:
        for _ in range(2):  # before one of them the thread has ended on its caller's core
            os.sched_setaffinity(member, {here})
            kernel(seen)
            places.append(os.sched_getaffinity(member))
    finally:
        os.sched_setaffinity(0, allowed)
    assert {there} in places
