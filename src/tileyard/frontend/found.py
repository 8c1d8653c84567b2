"""A user's kernel in one view for all styles: parameters, space, elaboration, and lowering of a config."""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import (
    InvalidProgramError,
    RejectedError,
    UnsupportedError,
    UsageError,
    UserCodeError,
)
from tileyard.base.model import Rule, TensorSpec, Value, sequence_of
from tileyard.base.wording import count_of, name_line
from tileyard.frontend.blame import blame_user, call_by_name, find_place, name_place, parameters_of
from tileyard.frontend.constraints import (
    Constraint,
    evaluate,
    evaluate_formula,
    is_true,
    limit_to_active,
    read_constraint,
)
from tileyard.frontend.declare import KernelInfo, list_rules
from tileyard.frontend.no_device import assume_target
from tileyard.frontend.parameters import (
    PASS_CONFIGS,
    Arguments,
    Expansion,
    Parameters,
    option_name,
    to_plain,
)
from tileyard.frontend.recipes import Recipe
from tileyard.ir.dtypes import DTYPES, find_dtype
from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.specs import scalar_params

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import MadeKernel

INPUT_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Elaboration:
    """A PrimFunc, with the options to compile it with."""

    func: Any
    pass_options: dict[str, Value]
    flags: tuple[str, ...]


class Found:
    """One kernel. Arguments and configs are plain values, checked before the user's code sees them. Methods
    raise UsageError for invalid values, and UserCodeError for anything that the user's code raises.
    """

    def __init__(self, name: str, recipe: Recipe) -> None:
        self.name = name
        self.recipe = recipe
        self.parameters = Parameters(name, recipe)
        self._expansions: dict[str, Expansion] = {}

    @cached_property
    def rules(self) -> "tuple[Constraint | Callable[..., object], ...]":
        """The kernel's ``where``: constraints and functions. Raises UsageError for what cannot be read."""
        return tuple(
            self._read_constraint(rule) if isinstance(rule, str) else rule
            for rule in list_rules(self.recipe.where)
        )

    @property
    def asks_where(self) -> bool:
        """Whether a function decides about configs, so that only this process can."""
        return any(not isinstance(rule, Constraint) for rule in self.rules)

    def describe(self) -> KernelInfo:
        """The description of the kernel before anything is elaborated."""
        return KernelInfo(
            name=self.name,
            file=self.recipe.file,
            style=self.recipe.style,
            parameters=self.parameters.names,
            required=self.parameters.required,
            defaults=self.parameters.defaults,
            tunable=self._tunable(),
            shapes={name: self._plain_shape(name) for name in self.recipe.shapes},
            has_reference=self.recipe.reference is not None,
            tolerance=self.recipe.tolerance,
            timing=self.recipe.timing,
            run_s=self.recipe.run_s,
            inputs=self._tell_inputs(),
            is_open=self.recipe.runtime.is_open,
            line=find_place(self.recipe.function)[1],
        )

    def expand(self, arguments: Arguments) -> Expansion:
        """The space for these arguments."""
        source = self.recipe.space
        key = canonical_json(arguments) if callable(source) else ""
        if key not in self._expansions:
            given = self._call_space(source, arguments) if callable(source) else source
            self._expansions[key] = self.parameters.read_space(given)
        return self._expansions[key]

    def accepts(self, arguments: Arguments, config: Arguments) -> bool:
        """Whether ``where`` accepts a config."""
        return self._find_refusing(arguments, config) is None

    def require(self, arguments: Arguments, config: Arguments) -> None:
        """Raise RejectedError unless ``where`` accepts a config."""
        if not self.accepts(arguments, config):
            raise self.describe_refusal(arguments, config)

    def describe_refusal(self, arguments: Arguments, config: Arguments) -> RejectedError:
        """The error for a config that ``where`` rejects: the config, the arguments and the rule's line."""
        varied = {*config, *self.expand(arguments).names}
        refusing = self._find_refusing(arguments, config)
        named = _asked_by(refusing) or ()
        values = {**self.parameters.defaults, **arguments, **config}
        chosen = [f"{key}={value}" for key, value in values.items() if key in varied]
        given = [
            f"{key}={value}"
            for key, value in values.items()
            if key not in varied and (key in arguments or key in named)
        ]
        file, line = self._place_of(refusing)
        subject = " for ".join(" ".join(part) for part in (chosen, given) if part)
        rule = f"where of {self.name}"
        rule += f", {refusing.text!r}," if isinstance(refusing, Constraint) else ""
        summary = f"{rule} rejects {subject or 'its only config'}"
        return RejectedError(
            message=f"{name_line(file, line)}: {summary}" if file else summary,
            hint="choose a config that it accepts, or loosen the rule",
            summary=summary,
            file=file,
            line=line,
        )

    def find_rule(self, program: Program, numbers: Arguments) -> Rule | None:
        """The part of ``where`` on these dimensions and scalars of a Program; None if there is none."""
        asked = [_asked_by(rule) for rule in self.rules]
        named = {
            key: value
            for key, value in numbers.items()
            if any(one is None or key in one for one in asked)
        }
        if not named:
            return None
        file, line = self._place_of(self.rules[0])
        return Rule(
            text=f"where of {self.name} ({name_line(file, line)})"
            if file
            else f"where of {self.name}",
            numbers=named,
            signature=print_program(
                Program(self.name, program.params, program.dims, (), (), (), ())
            ),
        )

    def complete(self, arguments: Arguments) -> dict[str, object]:
        """The arguments in the form of the user's code, with defaults for those not given."""
        return {**self.parameters.default_values, **self.parameters.restore(arguments)}

    def elaborate(self, arguments: Arguments, config: Arguments) -> Elaboration:
        """Run the kernel's function: one PrimFunc for one config."""
        given = {**self.parameters.restore(arguments), **self._restore_config(arguments, config)}
        missing = [key for key in self.parameters.required if key not in given]
        if missing:
            raise UsageError(f"{self.name} needs a value for {', '.join(missing)}")
        self.require(arguments, config)
        options = dict(self.recipe.pass_configs)
        chosen = given.get(PASS_CONFIGS)
        if PASS_CONFIGS not in self.parameters.own and isinstance(chosen, Mapping):
            options |= chosen
        passed = {key: value for key, value in given.items() if key in self.parameters.own}
        try:
            with assume_target(), blame_user():
                func: Any = self.recipe.build(**passed)
        except UserCodeError as error:
            self._suspect({**arguments, **config}, error)
            raise
        if type(func).__name__ != "PrimFunc":
            message = f"{self.name} returned {type(func).__name__}, not a TileLang PrimFunc"
            raise UserCodeError(message=message, summary=message)
        attrs: dict[str, Any] = dict(func.attrs.items()) if func.attrs else {}
        marked = attrs.get("tilelang_pass_configs")
        flags = attrs.get("tilelang_compile_flags")
        return Elaboration(
            func=func,
            pass_options=self._plain_options({**dict(marked or {}), **options}),
            flags=(*map(str, flags or ()), *self.recipe.compile_flags),
        )

    def count_flops(self, arguments: Arguments) -> float:
        """The work of one launch as its author states it; 0 if it is not stated."""
        flops = self.recipe.flops
        if flops is None:
            return 0.0
        if isinstance(flops, str):
            with name_place(self.recipe.function, self.name):
                return evaluate_formula("flops", flops, {**self.parameters.defaults, **arguments})
        what = f"flops of {self.name}"
        with blame_user(what):
            answer: Any = call_by_name(flops, self.complete(arguments), what)
            return float(answer)

    def supply_inputs(
        self, arguments: Arguments, specs: Sequence[TensorSpec], seed: int = INPUT_SEED
    ) -> object:
        """The result of the user's own ``inputs`` or ``supply_prog``: a mapping from tensor name to
        array, or arrays for the ``in`` and ``inout`` tensors of ``specs``; None if there is none.
        """
        if self.recipe.inputs is not None:
            values = self.complete(arguments)
            values["specs"] = tuple(spec for spec in specs if spec.role != "out")
            from numpy.random import default_rng

            values["rng"] = default_rng(seed)
            return call_by_name(self.recipe.inputs, values, f"inputs of {self.name}")
        if self.recipe.supply is not None:
            return self._call_supply(self.recipe.supply, specs)
        return None

    # ---- inside -----------------------------------------------------------------------------

    def _find_refusing(
        self, arguments: Arguments, config: Arguments
    ) -> "Constraint | Callable[..., object] | None":
        """The first rule that does not accept a config; None if all do."""
        values = {**self.complete(arguments), **self._restore_config(arguments, config)}
        plain = {**self.parameters.defaults, **arguments, **config}
        what = f"where of {self.name}"
        for rule in self.rules:
            if isinstance(rule, Constraint):
                self._require_names(rule, plain)
                expr = limit_to_active(rule, self._read_conditions(arguments))
                accepted: object = is_true(evaluate(expr, plain))
            else:
                with blame_user(what):
                    accepted = call_by_name(rule, values, what)
            if not accepted:
                return rule
        return None

    def _read_conditions(self, arguments: Arguments) -> dict[str, Constraint]:
        texts = self.expand(arguments).conditions
        return {key: self._read_constraint(text) for key, text in texts.items()}

    def _read_constraint(self, text: str) -> Constraint:
        with name_place(self.recipe.function, self.name):
            return read_constraint(text)

    def _place_of(self, rule: object) -> tuple[str, int]:
        """The place of a function; for a constraint the kernel's."""
        return find_place(rule if callable(rule) else self.recipe.function)

    def _require_names(self, rule: Constraint, known: Arguments) -> None:
        unknown = [name for name in rule.names if name not in known]
        if unknown:
            raise UsageError(
                f"where of {self.name}, {rule.text!r}, asks for {unknown[0]}, which the kernel does not have",
                hint=f"it may ask for {', '.join(known)}",
            )

    def _tell_inputs(self) -> Literal["ours", "drawn", "given"]:
        if self.recipe.inputs is None:
            return "ours" if self.recipe.supply is None else "given"
        parameters = parameters_of(self.recipe.inputs)
        takes = parameters is None or any(
            one.name == "rng" or one.kind is one.VAR_KEYWORD for one in parameters
        )
        return "drawn" if takes else "given"

    def _plain_shape(self, shape: str) -> dict[str, Value]:
        arguments = self.recipe.shapes[shape]
        unknown = [key for key in arguments if key not in self.parameters.names]
        if unknown:
            raise UsageError(
                f"shape {shape!r} of {self.name} names {unknown[0]!r}, which is not a parameter",
                hint=self.parameters.describe(),
            )
        return {key: to_plain(value) for key, value in arguments.items()}

    def _tunable(self) -> tuple[str, ...]:
        """The parameters that the space varies; none if it needs arguments that are not given yet."""
        first = next(iter(self.recipe.shapes), None)
        try:
            return self.expand({} if first is None else self._plain_shape(first)).names
        except (UsageError, UserCodeError):
            if callable(self.recipe.space):
                return ()
            raise

    def _call_space(self, source: Callable[..., object], arguments: Arguments) -> object:
        what = f"the space of {self.name}"
        given = self.parameters.restore(arguments)
        values = {**self.parameters.default_values, **given}
        asked = {p.name for p in parameters_of(source) or () if p.default is p.empty}
        if self.recipe.is_space_tilelangs and not asked <= values.keys():
            # TileLang calls it with the arguments of the call, whatever its parameters are named.
            with blame_user(what):
                return source(*(given[key] for key in self.parameters.own if key in given))
        return call_by_name(source, values, what)

    def _restore_config(self, arguments: Arguments, config: Arguments) -> dict[str, object]:
        if config:
            self.expand(arguments)
        return self.parameters.restore_config(config)

    def _suspect(self, given: Arguments, error: UserCodeError) -> None:
        """Blame a string or a fraction for a parameter that is not known to take one; else return."""
        for key, value in given.items():
            if self.parameters.is_untyped(key, value) and value not in DTYPES:
                # TVM's internal errors are of no use to the user.
                why = "" if "InternalError" in error.summary else f": {error.summary}"
                raise UsageError(
                    f"{self.name} cannot take {key}={value!r}{why}",
                    "it takes whole numbers, unless a default, an annotation or the space has other values",
                )

    def _plain_options(self, options: Mapping[Any, object]) -> dict[str, Value]:
        try:
            return {option_name(key): to_plain(value) for key, value in options.items()}
        except UsageError as error:
            raise UsageError(f"pass_configs of {self.name}: {error.message}") from None

    def _call_supply(self, supply: Callable[..., object], specs: Sequence[TensorSpec]) -> object:
        """Call TileLang's ``supply_prog``, which returns every tensor that the kernel is called
        with. Outputs are dropped; those that the kernel allocates itself are not among them.
        """
        tilelang = sys.modules["tilelang.engine.param"]
        dtype = sys.modules["tilelang.language"].dtype
        tensors = self.recipe.tensors
        allocates = self.recipe.out_idx is not None
        passed = [
            spec
            for spec in specs
            if spec.role != "out" or (not allocates and (not tensors or spec.name in tensors))
        ]
        what = f"supply_prog of {self.name}"
        with blame_user(what):
            params = [tilelang.KernelParam(dtype(s.dtype), list(s.shape)) for s in passed]
            given: Any = supply(params)
            arrays = list(given)
        if len(arrays) != len(passed):
            raise UsageError(
                f"{what} gives {count_of(len(arrays), 'tensor')}, the kernel takes {len(passed)}"
            )
        return [array for array, spec in zip(arrays, passed, strict=True) if spec.role != "out"]


def _asked_by(rule: Constraint | Callable[..., object] | None) -> frozenset[str] | None:
    if rule is None:
        return frozenset()
    if isinstance(rule, Constraint):
        return frozenset(rule.names)
    parameters = parameters_of(rule)
    if parameters is None or any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return frozenset(one.name for one in parameters)


TILELANGS = "tilelang:"
"""Prefix of the name of TileLang's own pipeline for an architecture."""

PROBES = 256
"""Number of points of a space that are passed to ``where`` in search of one that shows the kernel's work."""


def lower_config(
    found: Found,
    arguments: Arguments,
    config: Arguments,
    *,
    with_tir: bool = False,
    pipeline: str = "",
) -> "MadeKernel":
    """Elaborate and lower one config; with a ``pipeline``, after its passes. Raises UsageError,
    RejectedError, UserCodeError, also for an access certainly outside its tile, UnsupportedError and
    InvalidProgramError; ``with_tir`` the last two become the Kernel's refusal if its parameters are covered.
    """
    elaboration = found.elaborate(arguments, config)
    # Importing these takes seconds, and the user's own code has usually imported most of it already.
    from tileyard.frontend.bounds import require_inside

    require_inside(elaboration.func, arguments, is_unguarded=with_tir)
    made = _lower(found, elaboration, with_tir=with_tir, pipeline=pipeline)
    return _bind(found, elaboration, made, arguments)


def lower_for_check(
    found: Found, arguments: Arguments, config: Arguments, *, pipeline: str = ""
) -> "MadeKernel":
    """As ``lower_config``, for a caller that runs the Program and so reports accesses outside tiles."""
    elaboration = found.elaborate(arguments, config)
    made = _lower(found, elaboration, pipeline=pipeline)
    return _bind(found, elaboration, made, arguments)


def lower_open(
    found: Found, arguments: Arguments, config: Arguments, *, pipeline: str = ""
) -> "MadeKernel":
    """As ``lower_for_check``, with its dimensions and scalar parameters left open. A ``pipeline``
    is one of Tileyard's, or TileLang's own for a GPU, as ``tilelang:sm_90a``.
    """
    return _lower(found, found.elaborate(arguments, config), pipeline=pipeline)


def _lower(
    found: Found, elaboration: Elaboration, *, with_tir: bool = False, pipeline: str = ""
) -> "MadeKernel":
    from tileyard.frontend.tilelang import NO_THREAD_SYNC, make_kernel
    from tileyard.frontend.tir_queries import for_target

    with blame_user(f"target of {found.name}"):
        func = for_target(elaboration.func, found.recipe.target)
    options, source = elaboration.pass_options, ""
    is_tilelangs, architecture = pipeline.startswith(TILELANGS), pipeline.removeprefix(TILELANGS)
    if is_tilelangs:
        from tileyard.frontend.pipelined import plan

        func = plan(func, architecture, options)
    try:
        if pipeline and not is_tilelangs:
            from tileyard.frontend.written_again import write_again

            again = write_again(func, pipeline, found.recipe.out_idx, found.name, options)
            func, options, source = again.func, again.options, again.written.source
        made = make_kernel(
            func,
            found.recipe.out_idx,
            found.name,
            with_tir=with_tir,
            has_thread_sync=not options.get(NO_THREAD_SYNC),
        )
    except RecursionError:
        raise UnsupportedError(f"{found.name} has expressions nested too deeply") from None
    kernel = msgspec.structs.replace(
        made.kernel,
        pass_options=options,
        flags=elaboration.flags,
        pipeline="" if is_tilelangs else pipeline,
    )
    return replace(made, kernel=kernel, source=source)


def _bind(
    found: Found, elaboration: Elaboration, made: "MadeKernel", arguments: Arguments
) -> "MadeKernel":
    """The kernel with its numbers; a size that only strides contain may be given, and the arrays decide."""
    buffers = dict(elaboration.func.buffer_map.items()).values()
    strides = [str(getattr(one, "name", "")) for buffer in buffers for one in buffer.strides]
    numbers = bind_numbers(found, made.signature, arguments, strides)
    return replace(made, numbers=numbers, rule=found.find_rule(made.signature, numbers))


def bind_numbers(
    found: Found, program: Program, arguments: Arguments, spare: Sequence[str] = ()
) -> dict[str, Value]:
    """A Program's dimensions and scalars, from the arguments by name; ``spare`` ones need not be in it."""
    wanted = {var.name: var.dtype for var in (*program.dims, *scalar_params(program))}
    known = {*found.parameters.own, *wanted, *spare}
    unknown = [name for name in arguments if name not in known]
    if unknown:
        raise UsageError(
            f"{found.name} has no argument {unknown[0]!r}", hint=found.parameters.describe()
        )
    numbers: dict[str, Value] = {}
    for name, dtype in wanted.items():
        value = arguments.get(name)
        if value is None:
            raise UsageError(
                f"{found.name} needs a value for {name}, which its tensors or its call depend on"
            )
        kind = find_dtype(dtype)
        fits = type(value) in (bool, int) or (kind.is_float and isinstance(value, float))
        if not fits or (type(value) is bool) != (kind.kind == "bool"):
            raise UsageError(f"{found.name} takes {name} as {dtype}, not {value!r}")
        numbers[name] = value
    return numbers


def probe(found: Found, arguments: Arguments, expansion: Expansion) -> "MadeKernel | None":
    """The lowering of some config of a space; None if none can be made with the known arguments."""
    if not {*arguments, *expansion.names}.issuperset(found.parameters.required):
        return None
    try:
        for config in itertools.islice(_points(expansion), PROBES):
            if found.accepts(arguments, config):
                return lower_config(found, arguments, config)
    except (UserCodeError, UnsupportedError, InvalidProgramError):
        # An error in this config is reported when it is tried itself.
        return None
    return None


def _points(expansion: Expansion) -> Iterator[dict[str, Value]]:
    if expansion.configs:
        return iter(expansion.configs)
    axes = {key: sequence_of(values)[:PROBES] for key, values in expansion.axes.items()}
    points = itertools.product(*axes.values())
    return (dict(zip(axes, values, strict=True)) for values in points)
