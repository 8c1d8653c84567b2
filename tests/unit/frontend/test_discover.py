"""Finding kernels in files, and what is known of them before they are elaborated."""

# ruff: noqa: ANN401, N803 - any value may stand in a declaration, and sizes are M, N and K

import enum
import functools
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tileyard
from tileyard.base.errors import KernelFileError, RejectedError, UsageError, UserCodeError
from tileyard.base.model import Span, Tolerance
from tileyard.frontend.discover import find_declared, find_kernel, find_kernels, import_file
from tileyard.frontend.found import Found

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes a Python file; what is imported from its folder is forgotten afterwards."""
    modules, path = dict(sys.modules), list(sys.path)

    def make(source: str, name: str = "my_kernels.py") -> Path:
        file = tmp_path / name
        file.write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        return file

    yield make
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def _declare(function: Callable[..., Any] | None = None, **fields: Any) -> Found:
    def gemm(M: int, N: int, block: int = 64, dtype: str = "float16", causal: bool = False) -> None:
        pass

    return find_declared(tileyard.kernel(**fields)(function or gemm))


# ---- importing ------------------------------------------------------------------------------


def test_a_file_is_run_as_a_module_whose_source_can_be_read(write: Write) -> None:
    """The file is not ``__main__``, sees its own folder first, and ``inspect`` finds its source."""
    write("VALUE = 7", "beside.py")
    file = write("""
        import sys
        from beside import VALUE
        arguments = list(sys.argv)
        def f(): return VALUE
        if __name__ == "__main__":
            raise SystemExit(1)
    """)
    module = import_file(file)
    assert module.__name__ == "my_kernels"
    assert module.arguments == [str(file)]
    assert module.f() == 7
    assert "return VALUE" in inspect.getsource(module.f)


def test_a_file_named_like_another_module_takes_another_name(write: Write) -> None:
    """A kernel file called json.py does not become the json module."""
    import json

    module = import_file(write("mine = 1", "json.py"))
    assert module.mine == 1
    assert sys.modules["json"] is json
    assert sys.modules[module.__name__] is module


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import json\nimport nowhere_to_be_found\n", "my_kernels.py:2: ModuleNotFoundError"),
        ("def f():\n    return 1 / 0\n\nf()\n", "my_kernels.py:2: ZeroDivisionError"),
        ("x = (1,\n", "my_kernels.py:1: SyntaxError: '(' was never closed: x = (1,"),
        ("import sys\nsys.exit(3)\n", "my_kernels.py:2: it ended the process with status 3"),
        ("import json\njson.loads('{')\n", "my_kernels.py:2: JSONDecodeError"),
        ("raise RuntimeError('no CUDA here')", "my_kernels.py:1: RuntimeError: no CUDA here"),
    ],
)
def test_a_file_that_raises_is_one_line_with_its_place(
    write: Write, source: str, expected: str
) -> None:
    """Whatever a file raises names the user's own line, not the library's."""
    file = write(source)
    before = list(sys.path)
    with pytest.raises(KernelFileError) as caught:
        import_file(file)
    assert expected in caught.value.message
    assert "\n" not in caught.value.message
    assert "my_kernels" in caught.value.trace
    assert sys.path == before
    assert "my_kernels" not in sys.modules


def test_files_that_are_no_kernel_files_are_refused(tmp_path: Path) -> None:
    """A missing file, a directory and a file of another kind are told apart."""
    other = tmp_path / "kernel.txt"
    other.write_text("")
    for path, expected in (
        (tmp_path / "missing.py", "does not exist"),
        (tmp_path, "is a directory"),
        (other, "no Python file"),
    ):
        with pytest.raises(KernelFileError, match=expected):
            import_file(path)


# ---- finding --------------------------------------------------------------------------------

LIBRARY = """
    import tileyard
    @tileyard.kernel
    def shared(M): pass
    def make():
        @tileyard.kernel
        def made(M): pass
        return made
"""


def _names(module: ModuleType) -> list[str]:
    return list(find_kernels(module))


def test_a_module_has_the_kernels_it_defines_or_makes(write: Write) -> None:
    """Imported kernels do not count beside own ones; aliases and other objects never do."""
    write(LIBRARY, "library.py")
    module = import_file(
        write("""
            import tileyard
            from library import shared, make
            number = 3
            @tileyard.kernel
            def own(M): pass
            alias = own
            product = make()
        """)
    )
    expected = ["own", "product"]
    assert _names(module) == expected


def test_a_module_without_kernels_of_its_own_has_the_imported_ones(write: Write) -> None:
    """A file that only collects kernels from elsewhere offers them."""
    write(LIBRARY, "library.py")
    expected = ["shared"]
    assert _names(import_file(write("from library import shared"))) == expected


def test_a_module_may_export_imported_kernels(write: Write) -> None:
    """What ``__all__`` lists counts, wherever it was defined."""
    write(LIBRARY, "library.py")
    module = import_file(
        write("""
            import tileyard
            from library import shared
            __all__ = ["own", "shared"]
            @tileyard.kernel
            def own(M): pass
        """)
    )
    expected = {"own", "shared"}
    assert set(_names(module)) == expected


def test_a_kernel_that_is_not_there_lists_those_that_are(write: Write) -> None:
    """Asking for an unknown name says which names there are."""
    kernels = find_kernels(import_file(write(LIBRARY)))
    assert find_kernel(kernels, "shared").name == "shared"
    with pytest.raises(KernelFileError, match="there are: shared"):
        find_kernel(kernels, "nothing")
    with pytest.raises(KernelFileError, match="declare one"):
        find_kernel({}, "nothing")


def test_only_kernels_can_be_held() -> None:
    """An ordinary function is refused with a hint."""
    with pytest.raises(UsageError, match="not a kernel"):
        find_declared(len)


# ---- parameters and spaces --------------------------------------------------------------------


def test_a_declaration_is_described_by_its_signature() -> None:
    """Parameters, defaults, shapes and what varies follow from the declaration."""
    found = _declare(
        space={"block": [64, 128]},
        shapes={"large": {"M": 4, "N": 4}},
        reference=np.matmul,
        tolerance=(1e-3, 1e-3),
    )
    info = found.describe()
    assert info.name == "gemm"
    assert info.style == "tileyard"
    assert info.file == __file__
    assert info.parameters == ("M", "N", "block", "dtype", "causal")
    assert info.required == ("M", "N")
    assert info.defaults == {"block": 64, "dtype": "float16", "causal": False}
    assert info.tunable == ("block",)
    assert info.shapes == {"large": {"M": 4, "N": 4}}
    assert info.has_reference
    assert info.tolerance == Tolerance(rtol=1e-3, atol=1e-3)


def test_defaults_that_are_not_plain_stay_with_the_function() -> None:
    """A default such as None or an object is not required and not listed."""

    def f(a: Any = None, b: Any = object, c: float = 0.5) -> None:
        pass

    info = _declare(f).describe()
    assert info.required == ()
    assert info.defaults == {"c": 0.5}
    assert info.line == f.__code__.co_firstlineno


def test_sizes_that_only_the_source_names_are_parameters() -> None:
    """Dynamic sizes and scalar parameters of the PrimFunc can be given, and have no default."""

    def f(N: int, T: Any = None) -> Any:
        m = T.dynamic("m")
        p, q = T.dynamic("p, q")

        @T.prim_func
        def main(  # type: ignore[valid-type]
            A: T.Tensor((m, N), "float32"), s: T.float32, B: T.Tensor((p, q))
        ) -> None:
            pass

        return main

    info = _declare(f).describe()
    expected = {"N", "T", "m", "p", "q", "s"}
    assert set(info.parameters) == expected
    assert info.required == ("N",)


@pytest.mark.parametrize(
    ("space", "axes", "configs"),
    [
        (None, {}, ()),
        ({"block": [1, 2, 2]}, {"block": (1, 2)}, ()),
        ({"block": range(2), "dtype": ("a",)}, {"block": (0, 1), "dtype": ("a",)}, ()),
        ({"block": np.array([1, 2])}, {"block": (1, 2)}, ()),
        (
            [{"block": 1}, {"block": 2, "dtype": "b"}],
            {},
            ({"block": 1}, {"block": 2, "dtype": "b"}),
        ),
        (lambda M: {"block": [M, 2 * M]}, {"block": (8, 16)}, ()),
        (lambda **kw: [{"block": kw["M"] + kw["block"]}], {}, ({"block": 72},)),
        (lambda dtype: {"dtype": [dtype]}, {"dtype": ("float16",)}, ()),
    ],
)
def test_spaces_have_three_forms(space: Any, axes: Any, configs: Any) -> None:
    """Axes, lists of configs, and callables that get arguments and defaults by name."""
    expansion = _declare(space=space).expand({"M": 8, "N": 8})
    assert expansion.axes == axes
    assert expansion.configs == configs


class Policy(enum.IntEnum):
    """A choice as TileLang has them."""

    SQUARE = 0
    FULL_ROW = 1


def test_exotic_values_travel_as_text_and_come_back() -> None:
    """Members of enums, tuples and None are plain in configs and themselves in the user's code."""
    seen: list[Any] = []

    def f(M: int, policy: Any = None, tile: Any = None) -> None:
        pass

    found = _declare(
        f,
        space={"policy": [None, Policy.SQUARE, Policy.FULL_ROW], "tile": [(1, 2), (3, 4)]},
        where=lambda policy, tile: [*seen, seen.append((policy, tile))],
    )
    expansion = found.expand({})
    assert expansion.axes == {
        "policy": ("None", "SQUARE", "FULL_ROW"),
        "tile": ("[1,2]", "[3,4]"),
    }
    fresh = _declare(f, space=found.recipe.space, where=found.recipe.where)
    fresh.accepts({"M": 1}, {"policy": "FULL_ROW", "tile": "[3,4]"})
    fresh.accepts({"M": 1}, {"policy": "None", "tile": "[5,6]"})
    expected = [(Policy.FULL_ROW, (3, 4)), (None, (5, 6))]
    assert seen == expected
    assert type(seen[0][0]) is Policy


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"blok": [1]}, "no parameter of its space, 'blok'"),
        ({"block": 64}, "not a list of values"),
        ({"block": "64"}, "not a list of values"),
        ({"block": []}, "no value"),
        ({"block": [object()]}, "cannot be a value"),
        ([3], "not a mapping"),
        ([{"blok": 3}], "'blok'"),
        (7, "neither a mapping nor a list"),
        (lambda wide: {}, "asks for wide"),
        (lambda M: 3, "neither a mapping nor a list"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(space: Any, message: str) -> None:
    """A wrong space is one line that says what is wrong with it."""
    with pytest.raises(UsageError, match=message):
        _declare(space=space).expand({"M": 1, "N": 1})


def test_a_callable_space_is_not_asked_before_its_arguments_are_known() -> None:
    """Describing a kernel does not fail because nobody has given M yet."""
    found = _declare(space=lambda M: {"block": [M // 2]})
    assert found.describe().tunable == ()
    with_shape = _declare(space=lambda M: {"block": [M // 2]}, shapes={"one": {"M": 8, "N": 8}})
    assert with_shape.describe().tunable == ("block",)


# ---- where, and values of the wrong type ----------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, True),
        (lambda block: block < 100, True),
        (lambda block, M: block < M, False),
        (lambda **kw: kw["dtype"] == "float16" and kw["causal"] is False, True),
        (lambda: False, False),
        (lambda block, /: np.bool_(block > 100), False),
    ],
)
def test_where_gets_what_it_names(where: Any, expected: bool) -> None:
    """Configs, arguments and defaults reach ``where`` by name."""
    found = _declare(space={"block": [64]}, where=where)
    assert found.accepts({"M": 8, "N": 8}, {"block": 64}) is expected


@pytest.mark.parametrize(
    ("arguments", "config", "says"),
    [
        ({"M": 4000, "N": 8}, {"block": 256}, "block=256 for M=4000 N=8"),
        ({"M": 100, "N": 8}, {}, "block=64 for M=100 N=8"),
        ({"M": 100, "N": 8, "block": 8}, {}, "block=8 for M=100 N=8"),
    ],
)
def test_what_where_rejects_is_not_elaborated(
    arguments: dict[str, Any], config: dict[str, Any], says: str
) -> None:
    """Given, by default or as argument: one line names the config, the shape and the rule's line."""

    class Divides:
        def __call__(self, M: int, block: int) -> bool:
            return M % block == 0

    def divides(M: int, block: int) -> bool:
        return M % block == 0

    rules: list[Callable[..., object]] = [
        divides,
        Divides(),
        functools.partial(divides),
        lambda **kw: divides(kw["M"], kw["block"]),
    ]
    for where in rules:
        found = _declare(space={"block": [64, 256]}, where=where)
        with pytest.raises(
            RejectedError, match=rf"^\S*test_discover.py:\d+: where of gemm .*{says}"
        ):
            found.elaborate(arguments, config)
    with pytest.raises(UserCodeError, match="gemm returned NoneType"):  # so it was called
        found.elaborate({"M": 512, "N": 8}, {"block": 256})


def test_the_pipeline_of_a_config_reaches_where_and_not_the_function() -> None:
    """The key ``pipeline`` of a space is not a parameter, unless the function has one of that name. Another
    one cannot be asked for beside it.
    """
    space = {"block": [64], "pipeline": ["tilelang", "tileyard"]}
    found = _declare(space=space, where=lambda block, pipeline: pipeline == "tileyard")
    config = {"block": 64, "pipeline": "tileyard"}
    assert found.accepts({"M": 8, "N": 8}, config)
    assert not found.accepts({"M": 8, "N": 8}, {**config, "pipeline": "tilelang"})
    assert found.parameters.pipeline_of(config) == "tileyard"
    with pytest.raises(UsageError, match="pipeline=tileyard is in its config, and sm_80 asked for"):
        found.parameters.pipeline_of(config, "sm_80")
    with pytest.raises(UserCodeError, match="gemm returned NoneType"):  # so it was called
        found.elaborate({"M": 8, "N": 8}, config)

    def deep(pipeline: int = 2) -> None:
        pass

    own = _declare(deep, space={"pipeline": [2, 3]})
    assert own.accepts({}, {"pipeline": 3})
    assert own.parameters.pipeline_of({"pipeline": 3}) == ""


def test_where_that_raises_names_its_line() -> None:
    """An exception in ``where`` says where and what."""
    found = _declare(space={"block": [64]}, where=lambda block: block % 0)
    with pytest.raises(UserCodeError, match=r"test_discover.py:\d+: where of gemm: Zero"):
        found.accepts({"M": 8, "N": 8}, {"block": 64})


def test_constraints_and_functions_decide_together() -> None:
    """Constraints see plain values: arguments, defaults and the config; the one that rejects is named."""
    where = ["M % block == 0", lambda block: block < 100, "dtype == 'float16' or causal"]
    found = _declare(space={"block": [64, 256]}, where=where)
    assert found.asks_where
    assert found.accepts({"M": 128, "N": 8}, {"block": 64})
    with pytest.raises(
        RejectedError,
        match=r"test_discover.py:\d+: where of gemm, 'M % block == 0', rejects block=64 for M=8",
    ):
        found.require({"M": 8, "N": 8}, {"block": 64})
    assert not found.accepts({"M": 512, "N": 8}, {"block": 256})
    assert not found.accepts({"M": 512, "N": 8, "dtype": "float32"}, {"block": 64})
    assert not _declare(where="M > 1").asks_where
    with pytest.raises(
        UsageError, match="'blok < 3', asks for blok, which the kernel does not have"
    ):
        _declare(where="blok < 3").accepts({"M": 8, "N": 8}, {})
    with pytest.raises(UsageError, match=r"test_discover.py:\d+: gemm: constraint 'M <': invalid"):
        _declare(where="M <").accepts({"M": 8, "N": 8}, {})


def test_values_of_a_space_may_count_only_sometimes() -> None:
    """Their condition is part of the space; a constraint that names them does not apply elsewhere."""
    space = {"causal": [False, True], "block": tileyard.when("causal", range(64, 257, 64))}
    found = _declare(space=space, where="block <= M")
    expansion = found.expand({})
    assert expansion.axes == {"causal": (False, True), "block": (64, 128, 192, 256)}
    assert expansion.conditions == {"block": "causal"}
    assert found.accepts({"M": 8, "N": 8}, {"causal": False, "block": 64})
    assert not found.accepts({"M": 8, "N": 8}, {"causal": True, "block": 64})


def test_a_long_range_of_a_space_is_not_listed() -> None:
    """It travels as its ends."""
    found = _declare(space={"block": range(16, 10**9, 16)})
    assert found.expand({}).axes == {"block": Span(first=16, last=10**9 - 16, step=16)}
    assert found.accepts({"M": 8, "N": 8}, {"block": 10**8})


@pytest.mark.parametrize(
    ("arguments", "config", "message"),
    [
        ({"M": 8, "Q": 8}, {}, "gemm has no argument 'Q'"),
        ({"M": 8}, {"blok": 8}, "gemm has no config key 'blok'"),
        ({"M": 8}, {"block": "abc"}, "block='abc' has the wrong type: block takes int"),
        ({"M": 8}, {"block": 1.5}, "block takes int"),
        ({"M": 8}, {"block": True}, "block takes int"),
        ({"M": "8"}, {}, "M takes int"),
        ({"causal": 1}, {}, r"causal takes bool \(true or false\)"),
        ({"dtype": 16}, {}, "dtype takes str"),
    ],
)
def test_wrong_names_and_types_are_refused(
    arguments: Mapping[str, Any], config: Mapping[str, Any], message: str
) -> None:
    """What nobody declared, and values of another type than the declared ones, are one line."""
    with pytest.raises(UsageError, match=message):
        _declare(space={"block": [64]}).accepts(arguments, config)


def test_none_in_a_space_does_not_let_in_texts() -> None:
    """None travels as a text, and is the only text that its parameter takes."""

    def f(stages: Any = None) -> None:
        pass

    found = _declare(f, space={"stages": [None, 2]})
    assert found.accepts({}, {"stages": "None"})
    with pytest.raises(UsageError, match="stages takes int"):
        found.accepts({}, {"stages": "abc"})


def test_an_int_will_do_for_a_float() -> None:
    """A float parameter takes whole numbers too."""

    def f(scale: float = 0.5) -> None:
        pass

    assert _declare(f).accepts({"scale": 2}, {})


def test_flops_are_asked_by_name() -> None:
    """The stated work gets the arguments with their defaults."""
    found = _declare(flops=lambda M, N, block: M * N * block)
    expected = 8 * 8 * 64.0
    assert found.count_flops({"M": 8, "N": 8}) == expected
    assert _declare(flops="M * N * 64").count_flops({"M": 8, "N": 8}) == expected
    assert _declare().count_flops({"M": 8, "N": 8}) == 0.0
    with pytest.raises(
        UsageError, match=r"test_discover.py:\d+: gemm: flops 2\*Z: Z is not a number"
    ):
        _declare(flops="2*Z").count_flops({"M": 8, "N": 8})


def test_a_shape_that_names_no_parameter_is_refused() -> None:
    """A misspelt name in a shape is found when the kernel is described."""
    with pytest.raises(UsageError, match="shape 'big' of gemm names 'm'"):
        _declare(shapes={"big": {"m": 3}}).describe()
