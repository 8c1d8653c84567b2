"""Inputs and references: by which conventions they are called, and when they are called again."""

# ruff: noqa: ANN401, N803, N806 - references take any kind of array, and tensors are called A and B

import contextlib
import io
import json
import os
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

import tileyard
from tileyard.artifacts.arrays import get_array
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Draw, GoldenKey, Outcome, TensorSpec, TimingPolicy
from tileyard.frontend.discover import find_declared
from tileyard.frontend.reads import Watch
from tileyard.workers import author, golden
from tileyard.workers.author import Author
from tileyard.workers.golden import cap_threads, find_controls
from tileyard.workers.protocol import Failed, Golden, MakeGolden


def _spec(name: str, *shape: int, dtype: str = "float32", role: Any = "in") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape, role=role)


A, B, C = _spec("A", 4, 3), _spec("B", 3, 5), _spec("C", 4, 5, role="out")


class Bench:
    """Asks an author of one declared kernel for its golden result."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects

    def author(self, **fields: Any) -> Author:
        """An author of a kernel declared with ``fields``."""

        def kernel(M: int = 4, N: int = 5, causal: bool = False) -> None:
            pass

        found = find_declared(tileyard.kernel(**fields)(kernel))
        return Author({"kernel": found}, self.objects, globals())

    def ask(self, *specs: TensorSpec, given: Any = None, **fields: Any) -> Golden | Failed:
        """A fresh author's answer for a kernel with these tensors."""
        request = MakeGolden(kernel="kernel", arguments=given or {}, specs=specs)
        reply = self.author(**fields).answer(request)
        assert isinstance(reply, (Golden, Failed))
        return reply

    def make(self, *specs: TensorSpec, **fields: Any) -> tuple[list[Any], list[Any]]:
        """The inputs and the golden outputs."""
        golden = self.ask(*specs, **fields)
        assert isinstance(golden, Golden), golden
        return (
            [get_array(self.objects, digest) for digest in golden.inputs],
            [get_array(self.objects, digest) for digest in golden.outputs],
        )


@pytest.fixture
def bench(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench over an empty object store, in a process that has read nothing."""
    monkeypatch.setattr(golden, "WATCH", Watch())
    return Bench(objects)


# ---- references -------------------------------------------------------------------------------


def _write_third(A: Any, B: Any, C: Any) -> None:
    C[:] = A @ B


def _write_by_name(A: Any, B: Any, *, C: Any) -> None:
    np.matmul(A, B, out=C)


def _write_anywhere(*tensors: Any) -> Any:
    if len(tensors) == 3:
        tensors[2][:] = tensors[0] @ tensors[1]


def _spoil_inputs(A: Any, B: Any) -> Any:
    product = A @ B
    A[:] = 0
    return product


@pytest.mark.parametrize(
    "reference",
    [
        lambda A, B: A @ B,
        lambda A, B: (A @ B,),
        lambda A, B: [A @ B],
        lambda *tensors: tensors[0] @ tensors[1],
        lambda A, B, scale=1: A @ B * scale,
        np.matmul,
        _write_third,
        _write_by_name,
        _write_anywhere,
        _spoil_inputs,
    ],
)
def test_references_return_or_write_their_outputs(bench: Bench, reference: Any) -> None:
    """Every convention gives the same golden output, and none of them touches the inputs."""
    (a, b), (got,) = bench.make(A, B, C, reference=reference)
    np.testing.assert_array_equal(got, a @ b)
    assert a.any()


def test_a_reference_gets_arguments_by_name(bench: Bench) -> None:
    """What the kernel is called with reaches the reference, with the kernel's defaults."""

    def reference(A: Any, causal: bool, N: int = 0) -> Any:
        return A * (100 if causal else 1) + N

    specs = (A, _spec("out", 4, 3, role="out"))
    (a,), (got,) = bench.make(*specs, reference=reference, given={"causal": True})
    np.testing.assert_array_equal(got, a * 100 + 5)


def test_several_outputs_come_in_order(bench: Bench) -> None:
    """A tuple is taken in the order of the kernel's parameters."""
    specs = (A, _spec("low", 3, role="out"), _spec("high", 3, role="out"))
    (a,), (low, high) = bench.make(*specs, reference=lambda A: (A.min(axis=0), A.max(axis=0)))
    np.testing.assert_array_equal(low, a.min(axis=0))
    np.testing.assert_array_equal(high, a.max(axis=0))


@pytest.mark.parametrize("returns", [True, False])
def test_what_is_changed_in_place_is_an_output(bench: Bench, returns: bool) -> None:
    """A tensor that is read and written may be returned, or changed where it is."""

    def reference(A: Any) -> Any:
        if returns:
            return A + 1
        A += 1
        return None

    (before,), (after,) = bench.make(_spec("A", 4, 3, role="inout"), reference=reference)
    np.testing.assert_array_equal(after, before + 1)


def test_a_reference_may_return_the_pure_outputs_only(bench: Bench) -> None:
    """Beside a tensor changed in place, only the other outputs need be returned."""

    def reference(A: Any) -> Any:
        total = A.sum(axis=0)
        A *= 2
        return total

    specs = (_spec("A", 4, 3, role="inout"), _spec("total", 3, role="out"))
    (a,), (doubled, total) = bench.make(*specs, reference=reference)
    np.testing.assert_array_equal(doubled, a * 2)
    np.testing.assert_array_equal(total, a.sum(axis=0))


def test_without_a_reference_there_are_only_inputs(bench: Bench) -> None:
    """A kernel without a reference has inputs and no golden outputs."""
    inputs, outputs = bench.make(A, B, C)
    assert [array.shape for array in inputs] == [(4, 3), (3, 5)]
    assert outputs == []


@pytest.mark.parametrize("reference", [lambda A, B: A @ B, _write_third, _write_by_name])
def test_a_reference_is_timed_on_request(bench: Bench, reference: Callable[..., object]) -> None:
    """However its outputs come back; otherwise it has no time."""
    author = bench.author(reference=reference)
    request = MakeGolden(kernel="kernel", arguments={}, specs=(A, B, C))
    policy = TimingPolicy(warmup_launches=1, launches=3)
    timed: Any = author.answer(msgspec.structs.replace(request, timing=policy))
    assert len(timed.measurement.samples_ns) == 3
    untimed: Any = author.answer(request)
    assert untimed.measurement is None
    assert untimed.outputs == timed.outputs


def test_a_reference_may_be_named_by_the_request(bench: Bench) -> None:
    """Another function of the user's file takes the place of the kernel's reference."""
    author = bench.author(reference=lambda A, B: None)

    def ask(name: str) -> Any:
        request = MakeGolden(kernel="kernel", arguments={}, specs=(A, B, C), reference=name)
        return author.answer(request)

    assert isinstance(ask("_write_third"), Golden)
    refused = ask("_write_thrid")
    assert refused.usage
    assert "did you mean _write_third?" in refused.message
    refused = ask("nowhere")
    assert refused.message == "reference 'nowhere' is not in the kernel's file"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda A, B: (A @ B).T, r"gives C the shape \(5, 4\), the kernel \(4, 5\)"),
        (lambda A, B: (A @ B).astype("int32"), "gives C the dtype int32, the kernel float32"),
        (lambda A, B: (A, B), r"returned 2 outputs, the kernel has 1 \(C\)"),
        (lambda A, B: None, "returned nothing and takes no array for C"),
        (lambda A, B: 1 / 0, r"test_golden.py:\d+: reference of kernel: ZeroDivisionError"),
        (lambda A, B: np.full((4, 5), "x"), "gives C the dtype <U1"),
    ],
)
def test_a_reference_that_fails_ends_its_case(bench: Bench, reference: Any, message: str) -> None:
    """What is wrong with a reference is one line, and no matter of usage."""
    failed = bench.ask(A, B, C, reference=reference)
    assert isinstance(failed, Failed)
    assert failed.outcome is Outcome.RUNTIME_ERROR
    assert not failed.usage
    assert "\n" not in failed.message
    assert re.search(message, failed.message)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda A: A, "takes 1 tensor, the kernel reads 2 (A, B)"),
        (lambda A, B, C, wide: None, "asks for wide, which the kernel does not have"),
    ],
)
def test_a_reference_with_other_parameters_is_refused(
    bench: Bench, reference: Any, message: str
) -> None:
    """A reference that cannot be called is a wrong request."""
    failed = bench.ask(A, B, C, reference=reference)
    assert isinstance(failed, Failed)
    assert failed.usage
    assert message in failed.message


def test_the_traceback_holds_the_users_frames_and_what_was_printed(bench: Bench) -> None:
    """The log of a failure is what its author needs to see, and nothing of ours."""

    def helper() -> None:
        raise ValueError("first line\nsecond line")

    def reference(A: Any, B: Any) -> None:
        sys.stdout.write("on the way\n")
        sys.stderr.write("to ruin\n")
        helper()

    failed = bench.ask(A, B, C, reference=reference)
    assert isinstance(failed, Failed)
    assert failed.message.endswith("ValueError: first line")
    assert failed.diagnostic is not None
    assert failed.diagnostic.where is not None
    assert failed.diagnostic.where.file == __file__
    assert failed.log.startswith("on the way\nto ruin\n")
    assert "in helper" in failed.log
    assert "second line" in failed.log
    assert "tileyard/" not in failed.log.replace("tileyard/tests", "")


# ---- inputs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inputs",
    [
        lambda: [np.ones((4, 3), np.float32), np.ones((3, 5), np.float64)],
        lambda: {"B": np.ones((3, 5), int), "A": np.ones((4, 3), bool)},
        lambda M: (np.ones((M, 3)), np.ones((3, 5), ml_dtypes.bfloat16)),
        lambda specs: [np.ones(spec.shape) for spec in specs],
    ],
)
def test_inputs_may_be_given_by_name_or_in_order(bench: Bench, inputs: Any) -> None:
    """Sequences and mappings both work, and are converted to the parameters' dtypes."""
    (a, b), (c,) = bench.make(A, B, C, inputs=inputs, reference=lambda A, B: A @ B)
    assert (a.dtype, b.dtype) == (np.float32, np.float32)
    np.testing.assert_array_equal(c, np.full((4, 5), 3, np.float32))


def test_inputs_that_are_left_out_are_the_usual_ones(bench: Bench) -> None:
    """A mapping may name some of the tensors only; random numbers are always seeded alike."""
    usual, _ = bench.make(A, B, C)
    some, _ = bench.make(A, B, C, inputs=lambda rng: {"B": rng.random((3, 5))})
    again, _ = bench.make(A, B, C, inputs=lambda rng: {"B": rng.random((3, 5)) * 1})
    np.testing.assert_array_equal(some[0], usual[0])
    np.testing.assert_array_equal(some[1], again[1])
    assert not np.array_equal(some[1], usual[1])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda: [np.ones((4, 3))], "1 array for 2 input tensors"),
        (lambda: {"Z": np.ones(3)}, "Z is not one of A, B"),
        (lambda: {"A": np.ones((3, 4))}, "A has the shape (3, 4), the kernel takes (4, 3)"),
        (lambda: 3, "TypeError"),
        (lambda nothing: 3, "asks for nothing"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(bench: Bench, inputs: Any, message: str) -> None:
    """What is wrong with the inputs is one line."""
    failed = bench.ask(A, B, C, inputs=inputs)
    assert isinstance(failed, Failed)
    assert message in failed.message


def test_fractions_are_no_integers(bench: Bench) -> None:
    """Floats are not cut to fit an integer parameter."""
    failed = bench.ask(_spec("I", 4, dtype="int32"), inputs=lambda: [np.ones(4) / 2])
    assert isinstance(failed, Failed)
    assert "I is float64, the kernel takes int32" in failed.message


# ---- identity ---------------------------------------------------------------------------------


def _multiply(factor: float) -> Callable[..., Any]:
    return lambda A, B: A @ B * factor


def test_a_golden_result_is_made_once(bench: Bench) -> None:
    """Another author finds it by what the reference does, and does not run that again."""
    first = bench.ask(A, B, C, reference=_multiply(2))
    again = bench.ask(A, B, C, reference=_multiply(2))
    other = bench.ask(A, B, C, reference=_multiply(3))
    assert isinstance(first, Golden)
    assert isinstance(again, Golden)
    assert isinstance(other, Golden)
    assert (first.reused, again.reused, other.reused) == (False, True, False)
    assert (again.key, again.inputs, again.outputs) == (first.key, first.inputs, first.outputs)
    assert other.key != first.key
    assert other.inputs == first.inputs
    anew = MakeGolden(kernel="kernel", arguments={}, specs=(A, B, C), anew=True)
    made = bench.author(reference=_multiply(2)).answer(anew)
    assert made == first


def test_everything_that_decides_a_result_is_in_its_key(bench: Bench) -> None:
    """Shapes, dtypes, inputs, named arguments and threads each change the key."""

    def reference(A: Any, causal: bool) -> Any:
        return A if causal else -A

    def key(given: Any = None, threads: int = 1, dtype: str = "float32", **fields: Any) -> str:
        specs = (_spec("A", 4, 3, dtype=dtype), _spec("out", 4, 3, role="out"))
        author = bench.author(reference=reference, **fields)
        reply = author.answer(
            MakeGolden(kernel="kernel", arguments=given or {}, specs=specs, threads=threads)
        )
        assert isinstance(reply, Golden), reply
        return reply.key

    keys = [
        key(),
        key(given={"causal": True}),
        key(threads=2),
        key(dtype="float64"),
        key(inputs=lambda: [np.ones((4, 3))]),
        key(inputs=lambda: [np.zeros((4, 3))]),
        key(inputs=lambda: [np.zeros((4, 3))], dtype="float64"),
    ]
    assert len(set(keys)) == len(keys)
    assert key(given={"M": 9}) == keys[0]


def _read_descriptor(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def _run_helper(path: str) -> str:
    source = "from pathlib import Path\nVALUE = Path({!r}).read_text()"
    helper = Path(f"{path}.py")
    helper.write_text(source.format(path), encoding="utf-8")
    return str(runpy.run_path(str(helper))["VALUE"])


READERS: dict[str, Callable[[str], Any]] = {
    "read_text": lambda path: Path(path).read_text(encoding="utf-8"),
    "read_bytes": lambda path: Path(path).read_bytes(),
    "Path.open": lambda path: Path(path).open(encoding="utf-8").read(),  # noqa: SIM115
    "open": lambda path: open(path, encoding="utf-8").read(),  # noqa: PTH123, SIM115
    "io.open": lambda path: io.open(path).read(),  # noqa: SIM115, UP020
    "os.open": _read_descriptor,
    "loadtxt": np.loadtxt,
    "fromfile": lambda path: np.fromfile(path, sep=" ")[0],
    "memmap": lambda path: bytes(np.memmap(path, np.uint8, "r")),
    "json": lambda path: json.loads(Path(path).read_bytes()),
    "helper": _run_helper,
}


@pytest.mark.parametrize("use", ["reference", "inputs"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.filterwarnings("ignore:unclosed file")
def test_a_file_that_was_read_is_read_again_once_it_changes(
    bench: Bench, tmp_path: Path, reader: str, use: str
) -> None:
    """However a reference or its inputs read it, directly or not: the result is that of the present file."""
    file, read = str(tmp_path / "scale"), READERS[reader]
    fields: dict[str, Any] = {
        "reference": {"reference": lambda A: A * 0 + float(read(file))},
        "inputs": {
            "inputs": lambda: [np.full((4, 3), float(read(file)))],
            "reference": lambda A: A,
        },
    }[use]
    for value in (2, 3):
        Path(file).write_text(f"{value}\n", encoding="utf-8")
        _, (out,) = bench.make(A, _spec("out", 4, 3, role="out"), **fields)
        assert out[0, 0] == value


def test_a_file_that_a_module_read_when_it_was_imported_counts(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference may use a module's data, which the module's source does not show."""
    (tmp_path / "scales.py").write_text(
        "from pathlib import Path\nSCALE = float(Path(__file__).with_name('scale').read_text())\n"
    )
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "import tileyard\nimport scales\n\n"
        "@tileyard.kernel(reference=lambda A: A * 0 + scales.SCALE)\ndef kernel():\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    request = MakeGolden(kernel="kernel", arguments={}, specs=(A, _spec("out", 4, 3, role="out")))
    for value in (2, 3):
        (tmp_path / "scale").write_text(str(value))
        watch = Watch()
        for module in (golden, author):
            monkeypatch.setattr(module, "WATCH", watch)
        reply = Author.of_file(kernel, objects).answer(request)
        monkeypatch.delitem(sys.modules, "scales")
        assert isinstance(reply, Golden), reply
        assert get_array(objects, reply.outputs[0])[0, 0] == value


def test_a_reference_that_reads_is_remembered_by_what_it_read(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unchanged and absent files, and variables that its code names, lead to the kept result, else not."""
    there, absent = Path(__file__).with_name("test_author.py"), tmp_path / "absent"
    environ = os.environ

    def reference(A: Any) -> Any:
        there.read_bytes()
        with contextlib.suppress(FileNotFoundError):
            return A * float(absent.read_text(encoding="utf-8"))
        return A * float(environ.get("SCALED_BY", "1"))

    def ask() -> Golden:
        monkeypatch.setattr(golden, "WATCH", Watch())  # as in a fresh process
        reply = bench.ask(A, _spec("out", 4, 3, role="out"), reference=reference)
        assert isinstance(reply, Golden)
        assert reply.is_identified
        return reply

    first, again = ask(), ask()
    monkeypatch.setenv("SCALED_BY", "3")
    scaled = ask()
    monkeypatch.delenv("SCALED_BY")
    assert (again.reused, again.key) == (True, first.key)
    assert not scaled.reused
    absent.write_text("5", encoding="utf-8")
    read = bench.ask(A, _spec("out", 4, 3, role="out"), reference=reference)
    assert isinstance(read, Golden)
    assert len({first.key, scaled.key, read.key}) == 3


def test_a_reference_without_identity_is_keyed_by_content(bench: Bench) -> None:
    """Where nothing says what a reference does, its outputs do; one author still asks once."""
    calls: list[int] = []
    with Path(os.devnull).open() as stream:

        def reference(A: Any, B: Any) -> Any:
            calls.append(stream.fileno())
            return A @ B

        author = bench.author(reference=reference)
        request = MakeGolden(kernel="kernel", arguments={}, specs=(A, B, C))
        first, again = author.answer(request), author.answer(request)
        fresh = bench.author(reference=reference).answer(request)
    assert isinstance(first, Golden)
    assert isinstance(fresh, Golden)
    assert again == first
    assert len(calls) == 2
    assert not fresh.reused
    assert fresh.key == first.key


def test_what_has_no_identity_is_refused_where_only_the_rest_is_wanted(bench: Bench) -> None:
    """Such a reference is not run, and its golden has no key; one with an identity is made all the same."""
    calls: list[int] = []
    request = MakeGolden(kernel="kernel", arguments={}, specs=(A, B, C), only_identified=True)
    with Path(os.devnull).open() as stream:

        def reference(A: Any, B: Any) -> Any:
            calls.append(stream.fileno())

        refused = bench.author(reference=reference).answer(request)
    assert refused == Golden(key=GoldenKey(""), inputs=(), outputs=())
    assert not calls
    made = bench.author(reference=_multiply(2)).answer(request)
    assert isinstance(made, Golden)
    assert made.is_identified


def test_a_reference_that_failed_is_not_asked_again(bench: Bench) -> None:
    """All configs that share a broken reference hear of it without running it each time."""
    calls: list[int] = []

    def reference(A: Any, B: Any) -> Any:
        calls.append(1)
        raise ValueError("no")

    author = bench.author(reference=reference)
    request = MakeGolden(kernel="kernel", arguments={}, specs=(A, B, C))
    first, again = author.answer(request), author.answer(request)
    assert isinstance(first, Failed)
    assert isinstance(again, Failed)
    assert again.message == first.message
    assert calls == [1]


def test_a_damaged_result_is_made_anew(bench: Bench) -> None:
    """An array that was lost or altered is noticed, and the reference runs again."""
    first = bench.ask(A, B, C, reference=_multiply(2))
    assert isinstance(first, Golden)
    bench.objects.path(first.outputs[0]).unlink()
    again = bench.ask(A, B, C, reference=_multiply(2))
    assert isinstance(again, Golden)
    assert not again.reused
    assert get_array(bench.objects, again.outputs[0]).shape == (4, 5)


# ---- torch ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    """torch, which takes a second or two to import."""
    return pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8", "uint32", "bool"]
)
def test_a_torch_reference_gets_tensors(bench: Bench, torch: Any, dtype: str) -> None:
    """A reference whose code names torch gets tensors of the parameter's dtype."""

    def reference(X: Any) -> Any:
        assert X.dtype is getattr(torch, dtype)
        return torch.clone(X)

    specs = (_spec("X", 4, 3, dtype=dtype), _spec("Y", 4, 3, dtype=dtype, role="out"))
    (x,), (y,) = bench.make(*specs, reference=reference)
    assert y.dtype == x.dtype
    assert y.tobytes() == x.tobytes()


@pytest.mark.slow
def test_tensors_are_tried_where_arrays_do_not_do(bench: Bench, torch: Any) -> None:
    """Methods that only tensors have show that a reference means torch."""
    specs = (_spec("X", 4, 3), _spec("Y", 4, 3, role="out"))
    (x,), (y,) = bench.make(*specs, reference=lambda X: X.float().relu())
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    failed = bench.ask(*specs, reference=lambda X: X.nonsense())
    assert isinstance(failed, Failed)
    assert "'numpy.ndarray' object has no attribute 'nonsense'" in failed.message
    assert "with torch tensors: " in failed.message


@pytest.mark.slow
def test_what_names_a_gpu_stays_on_the_cpu(bench: Bench, torch: Any) -> None:
    """References and inputs written for a GPU work without one."""

    def inputs() -> Any:
        return [torch.ones(4, 3, device="cuda:0")]

    def reference(X: Any) -> Any:
        ramp = torch.arange(3, device=torch.device("cuda"))
        return X.to("cuda") + X.cuda() + ramp.to(dtype=X.dtype, device="cuda")

    specs = (_spec("X", 4, 3), _spec("Y", 4, 3, role="out"))
    _, (y,) = bench.make(*specs, inputs=inputs, reference=reference)
    expected = np.array([[2, 3, 4]] * 4, np.float32)
    np.testing.assert_array_equal(y, expected)


def test_numpys_own_threads_are_capped() -> None:
    """Where NumPy's library can be told, it has what was granted inside, and its own afterwards."""
    controls = [get for get, _ in find_controls()]
    before = [get() for get in controls]
    with cap_threads(1):
        inside = [get() for get in controls]
    expected = [1] * len(controls)
    assert inside == expected
    assert [get() for get in controls] == before


@pytest.mark.slow
def test_references_run_with_capped_threads(bench: Bench, torch: Any) -> None:
    """Inside a reference torch uses the threads that were granted, and afterwards its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        specs = (_spec("X", 1), _spec("Y", 1, role="out"))

        def reference(X: Any) -> Any:
            return torch.full((1,), float(torch.get_num_threads()))

        _, (y,) = bench.make(*specs, reference=reference)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert y[0] == 1.0
    assert after == 2


# ---- draws ------------------------------------------------------------------------------------


def test_each_draw_has_inputs_and_a_key_of_its_own(bench: Bench) -> None:
    """Floats of the reference overflow as the kernel's do."""
    half = [_spec(name, 8, dtype="float16") for name in "AB"]
    out = _spec("C", 8, dtype="float16", role="out")
    author = bench.author(reference=lambda A, B: (A * 2.0 + B).astype(np.float64) * 1.5)
    draws = (Draw(), Draw(seed=1), Draw(edges="largest"))
    keys = set()
    for draw in draws:
        golden = author.answer(
            MakeGolden(kernel="kernel", arguments={}, specs=(*half, out), draw=draw)
        )
        assert isinstance(golden, Golden), golden
        keys |= {golden.key, *golden.inputs}
    (found,) = (get_array(bench.objects, digest) for digest in golden.outputs)
    assert len(keys) == 3 * 3
    assert found.dtype == np.float16
    assert np.isinf(found[0])


def test_a_function_for_the_inputs_draws_from_another_seed(bench: Bench) -> None:
    """If it takes an rng."""
    inputs = {
        seed: bench.author(inputs=lambda rng: [rng.random((4, 3))]).answer(
            MakeGolden(kernel="kernel", arguments={}, specs=(A,), draw=Draw(seed=seed))
        )
        for seed in (0, 7)
    }
    assert len({golden.inputs for golden in inputs.values() if isinstance(golden, Golden)}) == 2
