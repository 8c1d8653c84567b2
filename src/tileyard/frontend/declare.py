"""The ``@tileyard.kernel`` declaration: what a user declares about a kernel in addition to its
code. Importing this module imports neither TileLang nor torch nor NumPy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from tileyard.base.errors import UsageError
from tileyard.base.model import Record, TimingPolicy, Tolerance, Value
from tileyard.base.wording import show_value
from tileyard.frontend.blame import name_place

P = ParamSpec("P")
R = TypeVar("R")

Rule = str | Callable[..., object]
"""A rule on configs: a constraint as text, or a function."""
WhereSource = Rule | Sequence[Rule]
WorkSource = str | Callable[..., float]


@dataclass(frozen=True)
class When:
    """The ``values`` of a parameter that only counts where a ``condition`` holds: see ``when``."""

    condition: str
    values: Sequence[object]


def when(condition: str, values: Sequence[object]) -> When:
    """The values of a parameter of a space that only counts where a condition on other parameters or
    arguments holds, as in ``space={"use_tma": [False, True], "stages": when("use_tma", [2, 3, 4])}``.

    The condition is a constraint as in ``where`` of ``tileyard.kernel``. Elsewhere the parameter has its
    first value, so that no two configs differ only in what does not count, and constraints that name it
    do not apply.
    """
    if not isinstance(condition, str):
        raise UsageError(
            f"tileyard.when: the condition must be a text, not {show_value(condition)}"
        )
    return When(condition, values)


def powers_of_two(first: int, last: int) -> tuple[int, ...]:
    """The powers of two from ``first`` to ``last``, both powers of two: (16, 32, 64) from 16 to 64."""
    for number in (first, last):
        if type(number) is not int or number < 1 or number & (number - 1):
            raise UsageError(
                f"powers of two from {first} to {last}: {number} is not a power of two"
            )
    if first > last:
        raise UsageError(f"powers of two from {first} to {last}: there is none")
    return tuple(1 << bits for bits in range(first.bit_length() - 1, last.bit_length()))


Axes = Mapping[str, Sequence[object] | When]
Configs = Sequence[Mapping[str, object]]
SpaceSource = Axes | Configs | Callable[..., Axes | Configs]

PIPELINE = "pipeline"
"""The key of a config, or of a side's options, for a kernel's pipeline: no parameter of the kernel."""

_NAMES = ("__module__", "__qualname__", "__doc__")


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelDeclaration(Generic[P, R]):
    """A kernel with its declaration, fields as given to ``kernel``; a call does what ``function`` does."""

    function: Callable[P, R]
    space: SpaceSource | None = None
    where: WhereSource | None = None
    shapes: Mapping[str, Mapping[str, Value]]
    reference: Callable[..., object] | None = None
    inputs: Callable[..., object] | None = None
    flops: WorkSource | None = None
    tolerance: Tolerance | None = None
    pass_configs: Mapping[str, Value]

    def __post_init__(self) -> None:
        inner = user_function(self.function)
        for name in _NAMES:
            object.__setattr__(self, name, getattr(inner, name, None))
        object.__setattr__(self, "__wrapped__", self.function)

    @property
    def __name__(self) -> str:
        return str(getattr(user_function(self.function), "__name__", "kernel"))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the decorated function."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tileyard.kernel {self.__name__}>"


@overload
def kernel(
    function: Callable[P, R],
    /,
    *,
    space: SpaceSource | None = None,
    where: WhereSource | None = None,
    shapes: Mapping[str, Mapping[str, Value]] | None = None,
    reference: Callable[..., object] | None = None,
    inputs: Callable[..., object] | None = None,
    flops: WorkSource | None = None,
    tolerance: Tolerance | tuple[float, float] | None = None,
    pass_configs: Mapping[str, Value] | None = None,
) -> KernelDeclaration[P, R]: ...


@overload
def kernel(
    *,
    space: SpaceSource | None = None,
    where: WhereSource | None = None,
    shapes: Mapping[str, Mapping[str, Value]] | None = None,
    reference: Callable[..., object] | None = None,
    inputs: Callable[..., object] | None = None,
    flops: WorkSource | None = None,
    tolerance: Tolerance | tuple[float, float] | None = None,
    pass_configs: Mapping[str, Value] | None = None,
) -> Callable[[Callable[P, R]], KernelDeclaration[P, R]]: ...


def kernel(  # noqa: PLR0913 - the fields of a declaration, by keyword only
    function: Callable[P, R] | None = None,
    /,
    *,
    space: SpaceSource | None = None,
    where: WhereSource | None = None,
    shapes: Mapping[str, Mapping[str, Value]] | None = None,
    reference: Callable[..., object] | None = None,
    inputs: Callable[..., object] | None = None,
    flops: WorkSource | None = None,
    tolerance: Tolerance | tuple[float, float] | None = None,
    pass_configs: Mapping[str, Value] | None = None,
) -> KernelDeclaration[P, R] | Callable[[Callable[P, R]], KernelDeclaration[P, R]]:
    """Declare a function that returns a TileLang ``PrimFunc`` as a kernel to be tuned.

    The function's parameters are the kernel's *arguments* (sizes, dtypes, flags) and its *config*
    (the searched values: tile sizes, stages). Both are plain values: bool, int, float or str; a dtype
    is its name, such as ``"float16"``. The tensors are the parameters of the PrimFunc that the
    function returns. Those that the PrimFunc reads are its inputs, those that it only writes its
    outputs; a tensor that is read and written is both. The decorated function can be called as
    before. TileLang reads its source, so it must be in a file or a notebook cell.

    An existing function is declared by a call: ``tileyard.kernel(function, reference=f)``,
    also one made by ``tilelang.jit`` or ``tilelang.autotune``, or an earlier declaration, of which
    the given fields are replaced.

    Example::

        @tileyard.kernel(
            space={"block_M": [64, 128, 256], "block_N": [64, 128], "block_K": [32, 64]},
            where="block_M * block_N <= 128 * 128",
            shapes={"large": {"M": 4096, "N": 4096, "K": 4096}, "small": {"M": 256, "N": 256, "K": 256}},
            reference=lambda A, B: A @ B,
            flops="2 * M * N * K",
        )
        def gemm(M, N, K, block_M=128, block_N=128, block_K=32):
            @T.prim_func
            def main(A: T.Tensor((M, K), "float32"), ...):
                ...
            return main

    *By name.* ``space`` (if it is callable), ``where``, ``inputs`` and ``flops`` are called
    with keywords: each gets the arguments (and ``where`` the config too) that its parameters name,
    or all of them through ``**kwargs``. Arguments that are not given have their defaults. It is an
    error to ask for something that does not exist.

    Args:
        space: The configs to search. A mapping from parameter to its possible values, which are
            multiplied out; or a list of configs, each a mapping from parameter to value; or a
            callable that receives the arguments by name and returns either. None: nothing to search.
            Values are a list, a ``range``, ``powers_of_two``, or those of a parameter that counts only
            ``when`` a condition holds.
        where: The rules for configs: a constraint as text, a callable, or a list of these. A config is
            used only if all accept it, and refused if it was given by hand. A constraint such as
            ``"M % block_M == 0 and (not use_tma or stages > 1)"`` has numbers, texts, parameters and
            arguments, ``+ - * / // %``, comparisons, ``and``, ``or``, ``not``, ``in (..)``, ``min``,
            ``max`` and ``abs``; it rejects a config for which it is undefined, as where it divides by
            zero. A space is solved for its constraints, so that even a huge one is entered at a valid
            config. A callable is called by name, and accepts by a true value.
        shapes: Named sets of arguments; the first one is the default. A set may
            leave out arguments that have a default.
        reference: Computes the expected outputs. Called with copies of the kernel's input tensors in
            parameter order; further parameters get a value by name: an output tensor's name gets that
            output as a writable array, an argument's name (``causal``) its value. Remaining parameters
            get the outputs in order. It returns the outputs in parameter order (one, or a tuple or list)
            or writes them in place and returns None. A tensor that is both input and output may be
            returned with the others or changed in place. The arrays are torch CPU tensors if the
            reference's code uses torch, else NumPy arrays (bfloat16 and float8 through ml_dtypes).
            Outputs must have the shapes of the kernel's; their dtypes may be wider, so computing
            in float32 is fine and recommended: float16 is slow and imprecise on CPUs.
        inputs: Called by name; ``specs`` gives it the input tensors (each with ``name``, ``dtype``
            and ``shape``), ``rng`` a ``numpy.random.Generator`` that always has the same seed. Returns
            the input tensors in parameter order, or a mapping from tensor name to array; tensors that a
            mapping leaves out are made as if there were no ``inputs``. None: random numbers that
            suit each dtype.
        flops: The floating-point operations of one launch, for GFLOP/s: a formula over the arguments as
            text, or a callable, called by name.
        tolerance: ``(rtol, atol)`` or a ``Tolerance``: an output element is right if
            ``|got - want| <= atol * rms(want) + rtol * |want|``; a few huge elements do not count in
            the rms. None: by dtype.
        pass_configs: TileLang's compiler options for GPU targets, option name to value.

    *The pipeline.* Unless the function has a parameter ``pipeline``, that key of ``space`` selects the
    pipelines of passes that are tried for a GPU: ``"tilelang"``, ``"tileyard"``, or one of Tileyard's
    by name.

    Returns:
        A KernelDeclaration, callable like the function.

    Raises:
        UsageError: if an argument has the wrong form.
    """
    callables = {"reference": reference, "inputs": inputs, "flops": flops}

    def declare(function: Callable[P, R]) -> KernelDeclaration[P, R]:
        _check_callable("tileyard.kernel: the decorated object", function)
        own = user_function(function)
        with name_place(own, getattr(own, "__name__", "tileyard.kernel")):
            if shapes is not None:
                _check_shapes(shapes)
            list_rules(where)
            for name, given in callables.items():
                if given is not None:
                    _check_callable(name, given, or_text=name == "flops")
            read = _read_tolerance(tolerance)
        if not isinstance(function, KernelDeclaration):
            function = KernelDeclaration(function=function, shapes={}, pass_configs={})
        fields: dict[str, Any] = {
            **callables,
            "where": where,
            "space": space,
            "shapes": shapes,
            "tolerance": read,
            "pass_configs": pass_configs,
        }
        return replace(
            function, **{name: field for name, field in fields.items() if field is not None}
        )

    return declare if function is None else declare(function)


def list_rules(where: WhereSource | None) -> tuple[Rule, ...]:
    """The rules of ``where``. Raises UsageError for what is no rule."""
    if where is None:
        return ()
    rules = (where,) if isinstance(where, str) or callable(where) else where
    if not isinstance(rules, Sequence) or not all(isinstance(r, str) or callable(r) for r in rules):
        raise UsageError(
            f"where must be a text, a function, or a list of these, not {show_value(where)}"
        )
    return tuple(rules)


class KernelInfo(Record):
    """An author's description of one kernel of a file before anything is elaborated.

    ``required`` parameters have no default; ``tunable`` ones are varied by its own space or configs;
    ``defaults`` holds the plain ones. ``shapes`` are named sets of arguments. ``style`` names how the kernel
    was declared. ``tolerance`` and ``timing`` are the author's, None for the default; a run may take
    ``run_s`` seconds, 0 for the default limit. If it ``is_open``, only the elaborated kernel names all its
    sizes. ``inputs`` are "ours", "drawn" by a function of the kernel's own that takes an ``rng``, or
    "given". ``line`` is the kernel's in ``file``, 0 if unknown.
    """

    name: str
    file: str
    style: Literal["tileyard", "jit", "autotune"]
    parameters: tuple[str, ...]
    required: tuple[str, ...]
    defaults: dict[str, Value] = {}
    tunable: tuple[str, ...] = ()
    shapes: dict[str, dict[str, Value]] = {}
    has_reference: bool = False
    tolerance: Tolerance | None = None
    timing: TimingPolicy | None = None
    run_s: float = 0.0
    inputs: Literal["ours", "drawn", "given"] = "ours"
    is_open: bool = False
    line: int = 0

    def may_take(self, key: str) -> bool:
        """Whether a parameter can have this name, as far as is known before anything is elaborated."""
        return self.is_open or not self.parameters or key in self.parameters


def user_function(decorated: object) -> object:
    """The user's own function inside TileLang's decorators and ``functools.partial``."""
    for name in ("function", "jit_impl", "func", "orig_func"):
        decorated = getattr(decorated, name, decorated)
    return decorated


def shape_arguments(info: KernelInfo, shape: str, where: str = "") -> dict[str, Value]:
    """The arguments of a shape, by default the first; for an unknown one a UsageError that begins
    ``where``.
    """
    if not shape:
        return next(iter(info.shapes.values()), {})
    if shape not in info.shapes:
        known = ", ".join(info.shapes) or "none"
        raise UsageError(f"{where}{info.name} has no shape {shape!r}", f"it has: {known}")
    return info.shapes[shape]


def guess_value(name: str, number: int) -> Value:
    """The value to try for a parameter of which only the name is known: ``number``, unless it is a dtype."""
    if not name.endswith("dtype"):
        return number
    return "float32" if name.startswith("acc") else "float16"


def _check_callable(name: str, given: object, *, or_text: bool = False) -> None:
    if not (callable(given) or (or_text and isinstance(given, str))):
        wanted = "a text or callable" if or_text else "callable"
        raise UsageError(f"{name} must be {wanted}, not {type(given).__name__}")


def _check_shapes(shapes: object) -> None:
    if not isinstance(shapes, Mapping) or not all(
        isinstance(name, str) and isinstance(arguments, Mapping)
        for name, arguments in shapes.items()
    ):
        raise UsageError(
            "shapes must map names to arguments",
            hint='for example {"small": {"M": 256, "N": 256}}',
        )


def _read_tolerance(given: Tolerance | tuple[float, float] | None) -> Tolerance | None:
    if given is None or isinstance(given, Tolerance):
        return given
    try:
        rtol, atol = map(float, given)
    except (TypeError, ValueError):
        raise UsageError(f"tolerance must be (rtol, atol), not {show_value(given)}") from None
    return Tolerance(rtol=rtol, atol=atol)
