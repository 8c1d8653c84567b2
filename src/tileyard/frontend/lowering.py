"""From a kernel, its arguments and one config to a Program whose sizes are numbers."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tileyard.errors import InvalidProgramError, UnsupportedError, UsageError, UserCodeError
from tileyard.frontend.blame import blame_user
from tileyard.frontend.found import Found
from tileyard.frontend.parameters import Arguments, Expansion
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Program
from tileyard.ir.specs import scalar_params
from tileyard.model import Kernel, SourceLine, Value

PROBES = 256
"""How many points of a space are put to ``where`` in search of one that shows the kernel's work."""


@dataclass(frozen=True, kw_only=True)
class LoweredConfig:
    """A Kernel with its source lines; ``numbers`` are its dimensions and scalars by name.

    ``signature`` is its Program, or its parameters where it has none. ``tir`` is TVM's JSON, empty
    where nobody asked for it.
    """

    kernel: Kernel
    signature: Program
    lines: dict[int, SourceLine]
    numbers: dict[str, Value]
    tir: str

    @property
    def integers(self) -> dict[str, int]:
        """The numbers that a shape can depend on."""
        return {name: value for name, value in self.numbers.items() if type(value) is int}


def lower_config(
    found: Found, arguments: Arguments, config: Arguments, *, with_tir: bool = False
) -> LoweredConfig:
    """Elaborate and lower one config.

    Raises UsageError and UserCodeError; UnsupportedError and InvalidProgramError too, except that
    with ``with_tir`` they become the Kernel's refusal where its parameters are covered.
    """
    elaboration = found.elaborate(arguments, config)
    # Importing these takes seconds, and the user's own code has mostly paid for it already.
    from tileyard.frontend.targets import for_target
    from tileyard.frontend.tilelang import make_kernel

    with blame_user(f"target of {found.name}"):
        func = for_target(elaboration.func, found.recipe.target)
    made = make_kernel(
        func,
        elaboration.out_idx,
        found.name,
        with_tir=with_tir,
    )
    kernel = msgspec.structs.replace(
        made.kernel, pass_options=elaboration.pass_options, flags=elaboration.flags
    )
    return LoweredConfig(
        kernel=kernel,
        signature=made.signature,
        lines=made.lines,
        numbers=_bind_numbers(found, made.signature, arguments),
        tir=made.tir,
    )


def _bind_numbers(found: Found, program: Program, arguments: Arguments) -> dict[str, Value]:
    """The dimensions and scalar parameters of a Program by name, taken from the arguments."""
    wanted = {var.name: var.dtype for var in (*program.dims, *scalar_params(program))}
    own = found.parameters.own
    unknown = [name for name in arguments if name not in own and name not in wanted]
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


def probe(found: Found, arguments: Arguments, expansion: Expansion) -> LoweredConfig | None:
    """What some config of a space lowers to; None where none can be made before more is known."""
    known = {*arguments, *expansion.names}
    if not known.issuperset(found.parameters.required):
        return None
    try:
        for config in itertools.islice(_points(expansion), PROBES):
            if found.accepts(arguments, config):
                return lower_config(found, arguments, config)
    except (UserCodeError, UnsupportedError, InvalidProgramError):
        # Whatever is wrong with this config is told when its own turn comes.
        return None
    return None


def _points(expansion: Expansion) -> Iterator[dict[str, Value]]:
    if expansion.configs:
        yield from expansion.configs
    else:
        for values in itertools.product(*expansion.axes.values()):
            yield dict(zip(expansion.axes, values, strict=True))
