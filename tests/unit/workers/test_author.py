"""What an author answers about kernels of every style, and how it tells of failures."""

# ruff: noqa: ANN401, N803 - arguments have any type, and sizes are called M and N

import contextlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tileyard
from tileyard.artifacts.arrays import get_array
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Outcome, TensorSpec, Tolerance
from tileyard.frontend.no_device import TARGET_VARIABLE
from tileyard.ir.reader import read_program
from tileyard.processes.wire import CHANNEL_VARIABLE, Channel, format_channel
from tileyard.workers.author import Author
from tileyard.workers.protocol import (
    Accepted,
    Answered,
    AuthorRequest,
    CheckConfigs,
    DescribeKernels,
    ElaborateConfig,
    ElaboratedConfig,
    ExpandSpace,
    Failed,
    FileImported,
    Golden,
    Kernels,
    MakeGolden,
    Space,
)

ROOT = Path(__file__).parents[3]


def _spec(name: str, *shape: int, role: Any = "in") -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=shape, role=role)


# ---- requests ---------------------------------------------------------------------------------


def test_requests_that_make_no_sense_are_matters_of_usage(tmp_path: Path) -> None:
    """Unknown kernels, arguments, keys and types, and a where that raises, end the whole run."""

    @tileyard.kernel(space={"M": [4, 8]}, where=lambda M: M % 0)
    def kernel(M: int = 4, N: int = 5) -> None:
        pass

    author = Author.of_kernel(kernel, ObjectStore(tmp_path))
    requests: list[tuple[AuthorRequest, str]] = [
        (ExpandSpace(kernel="gem", arguments={}), "there is no kernel 'gem' (there are: kernel)"),
        (ExpandSpace(kernel="kernel", arguments={"Q": 1}), "kernel has no argument 'Q'"),
        (ExpandSpace(kernel="kernel", arguments={"N": "x"}), "N='x' has the wrong type"),
        (
            CheckConfigs(kernel="kernel", arguments={}, configs=({"Q": 1},)),
            "kernel has no config key 'Q'",
        ),
        (
            CheckConfigs(kernel="kernel", arguments={}, configs=({"M": 4},)),
            "where of kernel: ZeroDivisionError",
        ),
    ]
    for request, expected in requests:
        reply = author.answer(request)
        assert isinstance(reply, Failed), request
        assert reply.usage, reply
        assert expected in reply.message
        assert "\n" not in reply.message


def test_a_config_that_where_rejects_is_refused_by_its_build(tmp_path: Path) -> None:
    """So do verbs that run a given config, as test and bundle; one that draws says why none is left."""

    @tileyard.kernel(space={"block": [4, 8]}, where=lambda N, block: N % block == 0)
    def kernel(N: int, block: int = 8) -> None:
        pass

    author = Author.of_kernel(kernel, ObjectStore(tmp_path))
    line = r"test_author.py:\d+: where of kernel rejects block=8 for N=12"
    for given, config in (({"N": 12}, {"block": 8}), ({"N": 12}, {}), ({"N": 12, "block": 8}, {})):
        reply = author.answer(ElaborateConfig(kernel="kernel", arguments=given, config=config))
        assert isinstance(reply, Failed)
        assert (reply.outcome, reply.usage) == (Outcome.COMPILE_ERROR, False)
        assert re.search(line, reply.message)
        assert reply.diagnostic is not None
        assert reply.diagnostic.where is not None
    configs = ({"block": 4}, {"block": 8})
    answer = author.answer(CheckConfigs(kernel="kernel", arguments={"N": 12}, configs=configs))
    assert isinstance(answer, Accepted)
    assert answer.accepted == (True, False)
    assert re.search(line, answer.refusal)


# ---- the worker -------------------------------------------------------------------------------

LIGHT = """
import os
import tileyard

@tileyard.kernel(space={"block": [1, 2]}, where=lambda block: ask(block))
def light(M, block=1):
    pass

def ask(block):
    if block > 2:
        os._exit(3)
    print("to the log, not into the channel")
    return block > 1
"""


@contextlib.contextmanager
def _worker(home: Path, file: Path) -> Iterator[tuple[Channel, "subprocess.Popen[bytes]"]]:
    """An author's process, talked to as the engine does."""
    to_worker, from_us = os.pipe()
    from_worker, to_us = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tileyard.workers.author", str(home), str(file)],
        env={**os.environ, CHANNEL_VARIABLE: format_channel(to_worker, to_us)},
        pass_fds=(to_worker, to_us),
        stdout=subprocess.DEVNULL,
    ) as process:
        os.close(to_worker)
        os.close(to_us)
        with Channel(from_worker, from_us) as channel:
            assert channel.receive(FileImported) == FileImported()
            yield channel, process


def _ask(channel: Channel, request: AuthorRequest) -> Any:
    channel.send(request)
    answered = channel.receive(Answered)
    assert answered is not None
    return answered.reply


@pytest.mark.slow
def test_the_worker_answers_until_its_channel_closes(tmp_path: Path) -> None:
    """A process that imported a file serves the same answers, and ends well."""
    file = tmp_path / "light_kernels.py"
    file.write_text(LIGHT)
    with _worker(tmp_path, file) as (channel, process):
        described = _ask(channel, DescribeKernels())
        check = CheckConfigs(kernel="light", arguments={}, configs=({"block": 1}, {"block": 2}))
        checked = _ask(channel, check)
        channel.close()
        assert process.wait() == 0
    assert [info.name for info in described.kernels] == ["light"]
    assert isinstance(checked, Accepted)
    assert checked.accepted == (False, True)


@pytest.mark.slow
def test_a_worker_whose_file_is_broken_says_so_each_time(tmp_path: Path) -> None:
    """A failed import answers every question with the user's line, and does not end the worker."""
    file = tmp_path / "light_kernels.py"
    file.write_text("import nowhere_to_be_found\n")
    with _worker(tmp_path, file) as (channel, _):
        replies = [_ask(channel, DescribeKernels()) for _ in range(2)]
    for reply in replies:
        assert isinstance(reply, Failed)
        assert reply.usage
        assert "light_kernels.py:1: ModuleNotFoundError" in reply.message
        assert "import nowhere_to_be_found" in reply.log


# ---- real kernels -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    """An object store that the tests with real kernels share."""
    return ObjectStore(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(scope="module")
def imported() -> Iterator[None]:
    """Files imported by tests leave no trace."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "tests")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def styles(shelf: ObjectStore, imported: None) -> Author:
    """The author of kernels in all of TileLang's styles."""
    return Author.of_file(ROOT / "tests" / "kernels" / "styles.py", shelf)


def _elaborate(author: Author, kernel: str, given: Any, config: Any = None) -> Any:
    request = ElaborateConfig(kernel=kernel, arguments=given, config=config or {})
    return author.answer(request)


@pytest.mark.slow
def test_tilelangs_own_kernels_are_found_and_described(styles: Author) -> None:
    """Lazy and eager kernels, tuned or not, are seen with their parameters."""
    described = styles.answer(DescribeKernels())
    assert isinstance(described, Kernels)
    infos = {info.name: info for info in described.kernels}
    expected = {
        "scale": ("jit", ("N", "rows", "block", "dtype", "m", "s", "n"), ("N",)),
        "add_number": ("jit", ("block", "M", "n"), ("M",)),
        "tuned_gemm": (
            "autotune",
            ("M", "N", "K", "block_M", "block_N", "policy", "dtype"),
            ("M", "N", "K"),
        ),
        "tuned_double": ("autotune", ("block", "M"), ("M",)),
        "unchecked": ("autotune", ("M", "block"), ("M",)),
    }
    assert {name: info.style for name, info in infos.items()} == {
        name: style for name, (style, _, _) in expected.items()
    }
    for name, (_, parameters, required) in expected.items():
        assert set(infos[name].parameters) == set(parameters), name
        assert infos[name].required == required, name
    assert infos["tuned_gemm"].defaults == {"dtype": "float16"}
    tolerance = Tolerance(rtol=0.1, atol=1e-2, is_elementwise=True, share=0.01)
    assert infos["tuned_gemm"].tolerance == tolerance
    assert infos["tuned_double"].tolerance is None
    assert infos["tuned_double"].tunable == ("block", "pass_configs")
    assert infos["tuned_double"].has_reference
    assert not infos["unchecked"].has_reference


@pytest.mark.slow
def test_dynamic_sizes_and_numbers_come_from_the_arguments(styles: Author) -> None:
    """Shapes are made concrete, and scalars stand in calling order."""
    reply = _elaborate(styles, "scale", {"N": 256, "m": 4, "n": 7, "s": 0.5})
    assert isinstance(reply, ElaboratedConfig), reply
    expected = (_spec("A", 4, 256), _spec("B", 4, 256, role="out"))
    assert reply.elaborated.specs == expected
    assert reply.elaborated.scalars == (0.5, 7)
    eager = _elaborate(styles, "add_number", {"M": 256, "n": 3})
    assert eager.elaborated.specs == (_spec("A", 256), _spec("B", 256, role="out"))
    assert eager.elaborated.scalars == (3,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "config", "message"),
    [
        ({"m": 4, "n": 7, "s": 0.5}, {}, "scale needs a value for N"),
        ({"N": 256, "n": 7, "s": 0.5}, {}, "scale needs a value for m"),
        ({"N": 256, "m": 4, "n": 0.5, "s": 0.5}, {}, "scale takes n as int32, not 0.5"),
        ({"N": 256, "m": 4, "n": 7, "s": 0.5, "z": 1}, {}, "scale has no argument 'z'"),
        ({"N": 256, "rows": 4, "m": 4, "n": 7, "s": 0.5}, {}, "scale has no argument 'm'"),
        ({"N": "abc", "m": 4, "n": 7, "s": 0.5}, {}, "scale cannot take N='abc'"),
        ({"N": 256, "m": 4, "n": 7, "s": 0.5}, {"block": "abc"}, "block takes int"),
    ],
)
def test_elaborations_that_make_no_sense_are_matters_of_usage(
    styles: Author, given: Any, config: Any, message: str
) -> None:
    """Missing, unknown and mistyped values are told in one line."""
    reply = _elaborate(styles, "scale", given, config)
    assert isinstance(reply, Failed)
    assert reply.usage
    assert message in reply.message
    assert "\n" not in reply.message


@pytest.mark.slow
def test_configs_of_autotune_are_a_space(styles: Author) -> None:
    """A callable gets the call's arguments; enums and compiler options travel as text."""
    given = {"M": 128, "N": 64, "K": 32}
    space = styles.answer(ExpandSpace(kernel="tuned_gemm", arguments=given))
    assert isinstance(space, Space), space
    assert space.configs == (
        {"block_M": 64, "block_N": 32, "policy": "Square"},
        {"block_M": 64, "block_N": 32, "policy": "FullRow"},
    )
    assert space.flops == 2 * 128 * 64 * 32
    reply = _elaborate(styles, "tuned_gemm", {**given, "dtype": "bfloat16"}, space.configs[1])
    assert isinstance(reply, ElaboratedConfig), reply
    assert [spec.dtype for spec in reply.elaborated.specs] == ["bfloat16"] * 3
    assert reply.elaborated.kernel.pass_options == {"tl.disable_tma_lower": True}
    wrong = _elaborate(styles, "tuned_gemm", {**given, "dtype": "flot16"}, space.configs[1])
    assert wrong.usage
    assert "dtype='flot16' is not a dtype (did you mean float16?)" in wrong.message


@pytest.mark.slow
def test_compiler_options_of_a_config_are_no_parameters(styles: Author) -> None:
    """``pass_configs`` in a config becomes the kernel's pass options."""
    space = styles.answer(ExpandSpace(kernel="tuned_double", arguments={"M": 256}))
    assert isinstance(space, Space), space
    first, second = (
        _elaborate(styles, "tuned_double", {"M": 256}, config) for config in space.configs
    )
    assert first.elaborated.kernel.pass_options == {"tl.disable_warp_specialized": True}
    assert second.elaborated.kernel.pass_options == {}


@pytest.mark.slow
def test_inputs_and_references_of_autotune_are_used(styles: Author, shelf: ObjectStore) -> None:
    """``supply_prog`` gives the inputs, ``ref_prog`` the golden output, without change."""
    elaborated = _elaborate(styles, "tuned_double", {"M": 256}).elaborated
    golden = styles.answer(
        MakeGolden(kernel="tuned_double", arguments={"M": 256}, specs=elaborated.specs)
    )
    assert isinstance(golden, Golden), golden
    expected = np.full(256, 2, np.float32)
    np.testing.assert_array_equal(get_array(shelf, golden.inputs[0]), expected)
    np.testing.assert_array_equal(get_array(shelf, golden.outputs[0]), expected * 2)


@pytest.mark.slow
def test_tir_is_given_where_it_is_asked_for(styles: Author) -> None:
    """Only a target that needs TVM's JSON gets it."""
    request = ElaborateConfig(kernel="unchecked", arguments={"M": 64}, config={"block": 64})
    without = styles.answer(request)
    asked = ElaborateConfig(
        kernel="unchecked", arguments={"M": 64}, config={"block": 64}, with_tir=True
    )
    having = styles.answer(asked)
    assert isinstance(without, ElaboratedConfig)
    assert isinstance(having, ElaboratedConfig)
    assert without.elaborated.kernel.tir == ""
    assert len(having.elaborated.kernel.tir) == 40
    assert "PrimFunc" in having.elaborated.tir
    assert having.elaborated.kernel.program == without.elaborated.kernel.program


BROKEN = """
import tilelang
import tilelang.language as T
import tileyard

print("imported")

@tileyard.kernel(space={"block": [64]})
@tilelang.jit(out_idx=[-1])
def misspelt(M, block=64):
    print("elaborating", block)
    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + undefined_name
    return main

@tilelang.jit
def refused(M):
    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(M, threads=128) as bx:
            a = T.alloc_shared((8, 8), "float32")
            c = T.alloc_fragment((8, 16), "float32")
            T.gemm(a, a, c)
    return main

@tileyard.kernel
def nothing(M):
    return [M]
"""


@pytest.mark.slow
def test_failed_elaborations_are_compile_errors_with_a_line(
    tmp_path: Path, shelf: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kernel's code or TileLang refuses names the user's line; prints are in the log."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv(TARGET_VARIABLE, raising=False)
    file = tmp_path / "broken_kernels.py"
    file.write_text(BROKEN)
    author = Author.of_file(file, shelf)
    expected = {
        "misspelt": ("NameError: name 'undefined_name' is not defined", 16),
        "refused": ("", 26),
        "nothing": ("nothing returned list, not a TileLang PrimFunc", None),
    }
    assert list(author.kernels) == list(expected)
    for name, (message, line) in expected.items():
        reply = _elaborate(author, name, {"M": 64})
        assert isinstance(reply, Failed), name
        assert reply.outcome is Outcome.COMPILE_ERROR
        assert not reply.usage
        assert message in reply.message
        assert "\n" not in reply.message
        assert reply.diagnostic is not None
        where = reply.diagnostic.where
        assert (where and where.line) == line, name
        if line is not None:
            assert f"broken_kernels.py:{line}: " in reply.message
    assert "elaborating 64" in _elaborate(author, "misspelt", {"M": 64}).log
    assert TARGET_VARIABLE not in os.environ
    sys.modules.pop("broken_kernels")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemm", "softmax", "flash_attention"])
def test_every_config_of_the_examples_elaborates(
    name: str, shelf: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples' spaces have no config that fails, and enough of them to be worth a search."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    author = Author.of_file(ROOT / "examples" / f"{name}.py", shelf)
    described = author.answer(DescribeKernels())
    assert isinstance(described, Kernels), described
    (info,) = described.kernels
    given = info.shapes["small"]
    space = author.answer(ExpandSpace(kernel=name, arguments=given))
    assert isinstance(space, Space), space
    points = [
        dict(zip(space.axes, values, strict=True))
        for values in itertools.product(*space.axes.values())
    ]
    reply = author.answer(CheckConfigs(kernel=name, arguments=given, configs=tuple(points)))
    assert isinstance(reply, Accepted), reply
    configs = [*itertools.compress(points, reply.accepted)]
    assert len(configs) >= (24 if name == "gemm" else 6)
    programs = set()
    for config in configs:
        elaborated = _elaborate(author, name, given, config)
        assert isinstance(elaborated, ElaboratedConfig), elaborated
        programs.add(read_program(elaborated.elaborated.kernel.program))
    assert len(programs) == len(configs)
