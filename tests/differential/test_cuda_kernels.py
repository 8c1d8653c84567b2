"""Our kernels, from TileLang to cubins for two architectures, and how they are launched.

No GPU is needed. What is built here is built once for each architecture, by one process. Unless
TILEYARD_SWEEPS is set, only a sample of the examples is built, each for one architecture.
"""

import ast
import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from tests.conftest import KERNELS
from tests.differential import host_reader
from tests.differential.cuda_examples import EXAMPLES, REFUSED, Example
from tests.gpu.conftest import CLIENT, compile_stub, stubbed
from tests.samples import IS_WHOLE, check_sample, choose_cases, list_contents

from tileyard.artifacts.manifest import Build
from tileyard.base.model import Elaborated, Outcome, Value
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Expr, Scalar, Var
from tileyard.ir.specs import evaluate_size
from tileyard.ir.walk import walk_expr
from tileyard.targets.base import Source
from tileyard.targets.cuda.grouping import LARGEST
from tileyard.targets.cuda.launching import (
    CUBIN_FILE,
    HOST_FILE,
    SOURCE_FILE,
    Argument,
    Details,
    KernelLaunch,
    LaunchRecord,
    MapParam,
    ScalarParam,
    TensorMap,
    TensorParam,
    WorkspaceParam,
)
from tileyard.targets.cuda.resources import read_cubin
from tileyard.targets.cuda.sass import KINDS

pytestmark = pytest.mark.slow

ARCHITECTURES = ("sm_80", "sm_90a")


UNREAD = ("neighbours", "with source")
"""Kernels with something that no Program has."""
FIRST_PARAMETER = {"sm_80": 0x160, "sm_90a": 0x210}
"""Where parameters begin in a kernel's bank of constants: alignment counts from the bank's begin."""

ALL = [(name, architecture) for name in EXAMPLES for architecture in ARCHITECTURES]
SAMPLE = (
    # what the IR has: test_the_sample_has_everything
    *((name, "sm_80") for name in ("folds", "histogram, extremes", "integers", "skip empty")),
    *((name, "sm_80") for name in ("gelu", "unpack bits", "narrow integers", "softmax")),
    *((name, "sm_90a") for name in ("async gemm", "causal conv1d", "chunked", "rotate")),
    *((name, "sm_90a") for name in ("two stages", "collatz", "runs", "dot rows")),
    # launches that few others have
    *(("add number", "sm_80"), ("through memory", "sm_80"), ("with source", "sm_90a")),
    *(("conv2d", "sm_90a"), ("neighbours", "sm_90a"), ("two launches", "sm_90a")),
    # what TileLang refuses, for one reason each
    *(("attention", "sm_80"), ("split decode", "sm_90a"), ("neighbours", "sm_80")),
    *(("two stages", "sm_80"), ("deadlocked", "sm_80")),
)
"""What is built by default, with what is disassembled."""
check_sample(ALL, SAMPLE)
DISASSEMBLED = tuple(
    key
    for key in ALL
    if key[0] in ("gemm", "functions", "two steps", "column sums", "cummax")
    and (IS_WHOLE or key[0] == "functions" or (key[0] == "gemm") == (key[1] == "sm_90a"))
)
"""What of which instructions are compared with nvdisasm's listing."""
TRIED = [key for key in ALL if IS_WHOLE or key in SAMPLE or key in DISASSEMBLED]
REFUSALS = {key: REFUSED[key] for key in TRIED if key in REFUSED}
BUILT = [key for key in TRIED if key not in REFUSED]


@dataclass(frozen=True, kw_only=True)
class Built:
    """What became of one example for one architecture; ``device`` is the device module as TileLang has it."""

    build: Build
    folder: Path
    device: Any

    @property
    def details(self) -> Details:
        """What the artifact says of itself."""
        assert self.build.outcome is Outcome.PASSED, self.build
        return msgspec.json.decode(self.build.details, type=Details)

    def text(self, name: str) -> str:
        """One of its files."""
        return (self.folder / name).read_text(encoding="utf-8")


def read_arguments(example: Example) -> dict[str, Any]:
    """The arguments of an example as TileLang has them."""
    arguments = {**example.arguments}
    if "policy" in arguments:
        policies = importlib.import_module("tilelang.language").GemmWarpPolicy
        arguments["policy"] = getattr(policies, str(arguments["policy"]))
    return arguments


@pytest.fixture(scope="session")
def chosen(request: pytest.FixtureRequest) -> set[str]:
    """The examples that this session's tests ask for: who tries one does not wait for all."""
    given = [getattr(item, "callspec", None) for item in request.session.items]
    of_all = (test_together_the_kernels_show_everything, test_every_artifact_is_loaded_and_launched)
    names = {test.__name__ for test in of_all}
    if any(item.name.partition("[")[0] in names for item in request.session.items):
        return {name for name, _ in TRIED}
    keys = [spec.params.get("one") or spec.params.get("key") for spec in given if spec is not None]
    return {key[0] for key in keys if isinstance(key, tuple)}


@pytest.fixture(scope="session")
def sources(
    kernels: Callable[[str], ModuleType], lower_prim_func: object, chosen: set[str]
) -> dict[str, Source]:
    """Each example that is asked for as a target is given it."""
    make_kernel = importlib.import_module("tileyard.frontend.tilelang").make_kernel
    found = {}
    for name in EXAMPLES.keys() & chosen:
        example = EXAMPLES[name]
        function = getattr(kernels(example.file), example.kernel)
        function = getattr(function, "jit_impl", function)
        outputs = function.out_idx
        outputs = [outputs] if isinstance(outputs, int) else outputs
        func = function.get_tir(**read_arguments(example))
        made = make_kernel(func, outputs, with_tir=True)
        found[name] = Source(elaborated=Elaborated(kernel=made.kernel, tir=made.tir))
    return found


@pytest.fixture(scope="session")
def built(
    sources: dict[str, Source], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Built]]:
    """What is tried of the examples, built in groups."""
    lowering = importlib.import_module("tileyard.targets.cuda.lowering")
    nvrtc = importlib.import_module("tileyard.targets.cuda.nvrtc")
    target_of = importlib.import_module("tileyard.targets.cuda.target").CudaTarget
    out = tmp_path_factory.mktemp("cuda")
    devices: list[Any] = []
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        read = lowering.read_launch

        def note(host: Any, device: Any, signature: Any) -> LaunchRecord:
            devices[-1] = device
            return read(host, device, signature)  # type: ignore[no-any-return]

        lower = lowering.lower

        def begin(*arguments: Any) -> Any:
            devices.append(None)
            return lower(*arguments)

        compile_source = nvrtc._compile

        def compile_once(source: str, flags: Sequence[str]) -> Any:
            # Most headers are read once or twice here: an image of them would cost more than it saves.
            return compile_source(source, [flag for flag in flags if flag != "-pch"])

        patch.setattr(nvrtc, "_compile", compile_once)
        patch.setattr(lowering, "read_launch", note)
        patch.setattr(lowering, "lower", begin)
        for architecture in ARCHITECTURES:
            target = target_of(architecture)
            target.caches = out / "caches"
            target.group_size = LARGEST  # to try what pays would cost more than it saves, too
            devices.clear()
            names = [name for name in sources if (name, architecture) in TRIED]
            builds = target.build([sources[name] for name in names], out / architecture)
            for number, (name, build) in enumerate(zip(names, builds, strict=True)):
                folder = out / architecture / str(number)
                found[name, architecture] = Built(
                    build=build, folder=folder, device=devices[number]
                )
    yield found
    shutil.rmtree(out)


@pytest.fixture
def one(request: pytest.FixtureRequest, built: dict[tuple[str, str], Built]) -> Built:
    """The example of this test."""
    return built[request.param]


@pytest.fixture
def numbers(request: pytest.FixtureRequest) -> Mapping[str, Value]:
    """Dimensions and scalars of a call of this test's example."""
    name, _ = request.node.callspec.params["one"]
    return EXAMPLES[name].numbers


each = pytest.mark.parametrize("one", BUILT, ids=[", ".join(key) for key in BUILT], indirect=True)


def test_every_kernel_is_built_here() -> None:
    """No kernel of the folder is forgotten; one in a style of our own belongs to other tests."""
    expected = {
        (path.stem, node.name)
        for path in KERNELS.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and any("tilelang.jit" in ast.unparse(mark) for mark in node.decorator_list)
    }
    assert {(example.file, example.kernel) for example in EXAMPLES.values()} == expected


@pytest.mark.sweep(0)
def test_the_sample_has_everything(
    kernels: Callable[[str], ModuleType], lower_prim_func: Callable[..., Any]
) -> None:
    """Each operation, scalar type and statement of any example that is built is in one of the sample."""
    contents: dict[str, set[str]] = {}
    for name, example in EXAMPLES.items():
        if name in UNREAD or all((name, one) in REFUSED for one in ARCHITECTURES):
            continue
        function = getattr(kernels(example.file), example.kernel)
        function = getattr(function, "jit_impl", function)
        func = function.get_tir(**read_arguments(example))
        contents[name] = list_contents(lower_prim_func(func, function.out_idx).written)
    built = {key[0] for key in (*SAMPLE, *DISASSEMBLED) if key not in REFUSED}
    missing = set().union(*contents.values())
    missing -= set().union(*(contents[name] for name in built & contents.keys()))
    assert not missing, f"{missing}: a sample is {choose_cases(contents)}"


@each
def test_kernel_builds(one: Built) -> None:
    """What TileLang can lower becomes a cubin with a launch record and a report of what it takes."""
    assert one.build.outcome is Outcome.PASSED, one.build
    expected = [launch.symbol for launch in one.details.launch.launches]
    assert [taken.symbol for taken in one.details.resources] == expected
    for taken in one.details.resources:
        assert taken.registers > 0
        assert sum(taken.mix.values()) == taken.code_bytes // 16
        assert taken.mix.get("other", 0) <= 0.02 * sum(taken.mix.values())
        assert taken.occupancy is None or 0 < taken.occupancy <= 1


@pytest.mark.parametrize(("key", "reason"), REFUSALS.items(), ids=[", ".join(k) for k in REFUSALS])
def test_what_tilelang_cannot_lower_is_refused_with_its_reason(
    key: tuple[str, str], reason: str, built: dict[tuple[str, str], Built]
) -> None:
    """A kernel that the architecture cannot run ends in TileLang's own words."""
    build = built[key].build
    expected = Outcome.COMPILE_ERROR
    assert build.outcome is expected
    assert build.diagnostic is not None
    assert build.diagnostic.message.startswith("TileLang: ")
    assert reason in build.diagnostic.message


@each
def test_launches_are_those_of_the_host_module(one: Built, numbers: Mapping[str, Value]) -> None:
    """For a concrete call the record says what the host module does when its text is run."""
    record = one.details.launch
    call = host_reader.run_host(one.text(HOST_FILE), _arguments(record, numbers))
    sizes = [evaluate_size(size, numbers) for size in record.workspaces]
    expected = [_bytes_of(memory) for memory in call.memories]
    assert sizes == expected
    assert [_describe_map(made, numbers) for made in record.maps] == [
        _as_made(made) for made in call.maps
    ]
    assert len(record.launches) == len(call.launches)
    for launch, (name, given) in zip(record.launches, call.launches, strict=True):
        assert launch.symbol.rpartition("_")[0] == name
        count = len(launch.arguments)
        for argument, value in zip(launch.arguments, given[:count], strict=True):
            assert _is_same(argument, value, call, numbers), (argument, value)
        # Which sizes are passed is decided by what the device function uses; one is not a size.
        own = [evaluate_size(size, numbers) for size in _sizes(launch)]
        assert [size for size in own if size > 1] == [size for size in given[count:] if size > 1]


@each
def test_sizes_are_those_that_tilelang_reads(one: Built, numbers: Mapping[str, Value]) -> None:
    """Grid, block, cluster and shared memory are what TileLang's own wrappers take from the device module."""
    launches = {launch.symbol.rpartition("_")[0]: launch for launch in one.details.launch.launches}
    functions = {str(var.name_hint): function for var, function in one.device.functions.items()}
    assert set(launches) == set(functions)
    for name, function in functions.items():
        attrs, launch = function.attrs, launches[name]
        extents = {str(tag): str(extent) for tag, extent in attrs["thread_extent"].items()}
        for what, own in (("blockIdx", launch.grid), ("threadIdx", launch.block)):
            expected = [
                _evaluate_text(extents.get(f"{what}.{axis}", "1"), numbers) for axis in "xyz"
            ]
            assert [evaluate_size(size, numbers) for size in own] == expected
        cluster = [int(size) for size in attrs.get("cluster_dims", ())]
        assert [evaluate_size(size, numbers) for size in launch.cluster] == cluster
        shared = attrs.get("dyn_shared_memory_buf", 0)
        assert evaluate_size(launch.shared_bytes, numbers) == int(shared)
        assert launch.cooperative == bool(attrs.get("use_cooperative_groups", False))
        assert launch.programmatic == bool(attrs.get("has_cuda_pdl_sync", False))


@each
def test_arguments_are_those_of_the_source(one: Built, request: pytest.FixtureRequest) -> None:
    """The device function of the CUDA source declares the record's arguments, in that order."""
    record, source = one.details.launch, one.text(SOURCE_FILE)
    views = EXAMPLES[request.node.callspec.params["one"][0]].views
    for launch in record.launches:
        declared = re.findall(rf"{launch.symbol}\((.*?)\)(?:;| {{)", source)
        names = [re.split(r"[\s*]+", part.strip())[-1] for part in declared[-1].split(",")]
        assert len(names) == len(launch.arguments)
        for name, argument in zip(names, launch.arguments, strict=True):
            if isinstance(argument, TensorParam):
                shown, position = name, argument.param
            elif isinstance(argument, MapParam):
                shown, descriptor, _ = name.partition("_desc")
                assert descriptor
                position = record.maps[argument.map].param
            else:
                continue
            expected = record.signature.params[position].buffer.name  # type: ignore[union-attr]
            # A view of it has a longer name, and what CUDA calls so, too, is numbered.
            assert re.search(rf"{expected}(_\d+)?$", views.get(shown, shown))


@each
def test_parameters_of_the_cubin_are_the_arguments(one: Built) -> None:
    """Number, offsets and sizes: pointers have 8 bytes, descriptors 128, numbers those of their type."""
    functions = {f.symbol: f for f in read_cubin((one.folder / CUBIN_FILE).read_bytes())}
    for launch in one.details.launch.launches:
        function, expected = functions[launch.symbol], []
        first = end = FIRST_PARAMETER[one.details.arch]
        for argument in launch.arguments:
            size, alignment = _size_of(argument)
            begin = -(-end // alignment) * alignment
            expected.append((begin - first, size))
            end = begin + size
        assert [(parameter.offset, parameter.size) for parameter in function.parameters] == expected
        assert function.parameter_bytes == end - first


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_artifact_is_loaded_and_launched(
    architecture: str, built: dict[tuple[str, str], Built], tmp_path: Path
) -> None:
    """With a stubbed driver library, so that nothing runs: it is told what the record says for the shapes."""
    examples = {
        key[0]: one for key, one in built.items() if key in BUILT and key[1] == architecture
    }
    for name, one in examples.items():
        (tmp_path / f"{name}.json").write_text(one.build.details, encoding="utf-8")
        shutil.copy(one.folder / CUBIN_FILE, tmp_path / f"{name}.cubin")
    numbers = {name: dict(EXAMPLES[name].numbers) for name in examples}
    (tmp_path / "numbers.json").write_text(json.dumps(numbers), encoding="utf-8")
    log = tmp_path / "driver.log"
    env = stubbed(compile_stub(tmp_path), log, {"STUB_CUDA_ARCH": architecture[3:5]})
    command = [sys.executable, str(CLIENT), str(tmp_path), "everything"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == str(len(examples)), done.stdout + done.stderr
    expected = [
        _describe_launch(launch, numbers[name])
        for name in sorted(examples)
        for launch in examples[name].details.launch.launches
    ]
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if "params=" in line]
    told = [line.removeprefix("launch ").partition(" params=") for line in lines]
    found = [(text, [len(one) // 2 for one in params.split(",")]) for text, _, params in told]
    assert found == expected


def _describe_launch(launch: KernelLaunch, numbers: Mapping[str, Value]) -> tuple[str, list[int]]:
    """A launch in the stubbed driver's words, and the sizes of its parameters."""

    def sizes(exprs: Sequence[Expr]) -> str:
        return ",".join(str(evaluate_size(expr, numbers)) for expr in exprs)

    cluster = sizes(launch.cluster) or "1,1,1"
    text = f"{launch.symbol} grid={sizes(launch.grid)} block={sizes(launch.block)}"
    shared = evaluate_size(launch.shared_bytes, numbers)
    words = f"{text} shared={shared} cluster={cluster}"
    return words, [_size_of(argument)[0] for argument in launch.arguments]


_INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z][A-Z0-9_]*).*/\* 0x(?P<word>[0-9a-f]{16}) \*/"
)


@pytest.mark.parametrize("one", DISASSEMBLED, ids=", ".join, indirect=True)
def test_instructions_are_named_as_nvdisasm_names_them(one: Built) -> None:
    """What is counted as one kind has in nvdisasm's listing a name of that kind."""
    tool = Path(str(next(iter(importlib.import_module("nvidia.cu13").__path__)))) / "bin/nvdisasm"
    command = [str(tool), "-hex", "-c", "-ndf", str(one.folder / CUBIN_FILE)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {(int(m["word"], 16) & 0x1FF, m["name"]) for m in _INSTRUCTION.finditer(listing)}
    assert len(found) > 10
    names = {number: name.split() for kind in KINDS.values() for number, name in kind.items()}
    for number, name in found:
        expected = names.get(number)
        if expected is None:  # counted as other: then it is in no kind by any number
            assert name not in {one for known in names.values() for one in known}
        else:
            assert name in expected


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("loop", "a loop around launches is not covered"),
        ("condition", "a condition around launches is not covered"),
    ],
)
def test_what_the_host_decides_is_refused(
    fault: str, expected: str, kernels: Callable[[str], ModuleType]
) -> None:
    """Launches that are no plain sequence cannot be written as data, and are refused by what is around."""
    lowering = importlib.import_module("tileyard.targets.cuda.lowering")
    make_kernel = importlib.import_module("tileyard.frontend.tilelang").make_kernel
    made = make_kernel(kernels("gpu_faults").BODIES[fault](256, 64), with_tir=True)
    with pytest.raises(lowering.LoweringError) as caught:
        lowering.lower(Elaborated(kernel=made.kernel, tir=made.tir), "sm_90a")
    assert caught.value.diagnostic.message == expected


def test_together_the_kernels_show_everything(built: dict[tuple[str, str], Built]) -> None:
    """Both kinds of descriptors, clusters, workspaces, several launches, and numbers of many types occur."""
    records = [one.details.launch for key, one in built.items() if key not in REFUSED]
    launches = [launch for record in records for launch in record.launches]
    expected = {"tiled", "im2col"}
    assert {made.kind for record in records for made in record.maps} == expected
    assert any(launch.cluster for launch in launches)
    assert any(record.workspaces for record in records)
    assert any(len(record.launches) > 1 for record in records)
    dtypes = {
        a.dtype for launch in launches for a in launch.arguments if isinstance(a, ScalarParam)
    }
    assert {"bool", "int32", "int64", "float32", "float16"} <= dtypes
    precisions = [one.details.precisions for key, one in built.items() if key not in REFUSED]
    assert {"float32": "tfloat32"} in precisions
    assert not built["gemm", "sm_90a"].details.precisions  # of halves


# ---- a call with concrete shapes -------------------------------------------------------------


def _arguments(
    record: LaunchRecord, numbers: Mapping[str, Value]
) -> list[host_reader.Tensor | host_reader.Number]:
    given: list[host_reader.Tensor | host_reader.Number] = []
    for position, param in enumerate(record.signature.params):
        if isinstance(param, Scalar):
            number = numbers[param.var.name]
            assert not isinstance(number, str)
            given.append(number)
        else:
            shape = tuple(evaluate_size(extent, numbers) for extent in param.buffer.shape)
            given.append(host_reader.Tensor(position, shape))
    return given


def _sizes(launch: KernelLaunch) -> tuple[Any, ...]:
    return (*launch.cluster, *launch.grid, *launch.block, launch.shared_bytes)


def _describe_map(made: TensorMap, numbers: Mapping[str, Value]) -> tuple[Any, ...]:
    """Our description of a descriptor as the numbers that TVM's runtime takes."""

    def known(sizes: tuple[Any, ...]) -> list[int]:
        return [evaluate_size(size, numbers) for size in sizes]

    form = [made.interleave, made.swizzle, made.l2_promotion, made.oob_fill]
    head = (made.kind, made.dtype, host_reader.Data(made.param), *known(made.dims))
    if made.kind == "tiled":
        return (*head, *known(made.strides), *known(made.box), *known(made.element_strides), *form)
    assert made.pixels is not None
    assert made.channels is not None
    corners = known(made.lower_corner) + known(made.upper_corner)
    box = known((made.pixels, made.channels))
    return (*head, *known(made.strides), *known(made.element_strides), *corners, *box, *form)


def _as_made(made: host_reader.Map) -> tuple[Any, ...]:
    """What the host module made a descriptor from, without the innermost dimension's stride."""
    name, dtype, rank, address, *rest = made.made_from
    dims, strides = rest[:rank], rest[rank : 2 * rank]
    return (name.rpartition("_")[2], dtype, address, *dims, *strides[1:], *rest[2 * rank :])


def _is_same(
    argument: Argument, value: Any, call: host_reader.Call, numbers: Mapping[str, Value]
) -> bool:
    if isinstance(argument, TensorParam):
        return bool(value == host_reader.Data(argument.param))
    if isinstance(argument, MapParam):
        return value is call.maps[argument.map]
    if isinstance(argument, WorkspaceParam):
        return value is call.memories[argument.workspace]
    if isinstance(argument.value, Var):
        return bool(value == numbers[argument.value.name])
    assert all(find_dtype(part.dtype).is_integer for part in walk_expr(argument.value))
    return bool(value == evaluate_size(argument.value, numbers))


def _size_of(argument: Argument) -> tuple[int, int]:
    """Bytes and alignment of an argument."""
    if isinstance(argument, MapParam):
        return 128, 64
    size = find_dtype(argument.dtype).bits // 8 if isinstance(argument, ScalarParam) else 8
    return size, size


def _bytes_of(memory: host_reader.Memory) -> int:
    size = find_dtype(memory.dtype).bits // 8
    for extent in memory.shape:
        size *= extent
    return size


def _evaluate_text(text: str, numbers: Mapping[str, Value]) -> int:
    """TVM's text of a size: the arithmetic of Python."""
    return int(eval(text, {}, dict(numbers)))
