"""Calls a user's reference by the conventions of ``tileyard.kernel``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tileyard.base.errors import UsageError, UserCodeError
from tileyard.base.model import TensorSpec
from tileyard.base.wording import count_of
from tileyard.frontend.blame import blame_user, parameters_of
from tileyard.ir.dtypes import DTYPES, find_dtype
from tileyard.targets.base import Array
from tileyard.workers.tensors import has_torch, to_numpy, to_torch

Give = Callable[[Array], Any]
"""Makes of a NumPy array what a reference is called with."""
Used = TypeVar("Used")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A reference bound to one kernel's tensors; ``what`` is its name in messages. ``arguments``
    are the kernel's, as the user's code has them, ``by_name`` those of parameters that get one;
    ``outputs``: the tensors it takes, by name in order.
    """

    what: str
    function: Callable[..., object]
    specs: tuple[TensorSpec, ...]
    by_name: Mapping[str, object]
    outputs: Mapping[str, str]
    takes_more: bool

    def run(self, inputs: Sequence[Array], *, prefers_torch: bool) -> list[Array]:
        """The ``out`` and ``inout`` tensors in calling order, from fresh copies of ``inputs``, as NumPy or
        torch; the other kind is tried after a TypeError or AttributeError. Raises UserCodeError.
        """

        def collect(give: Give) -> list[Array]:
            _, result, arrays = self._call(inputs, give)
            return self._collect(result, arrays)

        return _try(collect, prefers_torch=prefers_torch)

    def bind(self, inputs: Sequence[Array], *, prefers_torch: bool) -> Callable[[], object]:
        """A call to be timed, on the same copies of ``inputs``, once it succeeded. Raises UserCodeError."""
        return _try(lambda give: self._call(inputs, give)[0], prefers_torch=prefers_torch)

    def _call(
        self, inputs: Sequence[Array], give: Give
    ) -> tuple[Callable[[], object], object, dict[str, Any]]:
        """The call, made once; its result; and all arrays by their names."""
        names = [spec.name for spec in self.specs if spec.role != "out"]
        given = {name: give(np.array(a)) for name, a in zip(names, inputs, strict=True)}
        outs = {
            spec.name: give(np.zeros(spec.shape, find_dtype(spec.dtype).numpy))
            for spec in self.specs
            if spec.role == "out"
        }
        written = {parameter: outs[name] for name, parameter in self.outputs.items()}
        call = partial(self.function, *given.values(), **self.by_name, **written)
        with blame_user(self.what):
            result = call()
        if result is None and self.takes_more and not written:
            given = {name: give(np.array(a)) for name, a in zip(names, inputs, strict=True)}
            call = partial(self.function, *given.values(), *outs.values(), **self.by_name)
            with blame_user(self.what):
                result = call()
        elif result is None and outs and len(written) < len(outs):
            raise UserCodeError(
                f"{self.what} returned nothing and takes no array for "
                f"{', '.join(outs.keys() - self.outputs.keys())}"
            )
        return call, result, {**given, **outs}

    def _collect(self, result: object, arrays: Mapping[str, Any]) -> list[Array]:
        written = [spec for spec in self.specs if spec.role != "in"]
        final = {spec.name: arrays[spec.name] for spec in written}
        if result is not None:
            returned = list(result) if isinstance(result, (tuple, list)) else [result]
            only_out = [spec for spec in written if spec.role == "out"]
            meant = written if len(returned) == len(written) else only_out
            if len(returned) != len(meant):
                names = ", ".join(final)
                raise UserCodeError(
                    f"{self.what} returned {count_of(len(returned), 'output')}, "
                    f"the kernel has {len(written)} ({names})"
                )
            final |= {spec.name: value for spec, value in zip(meant, returned, strict=True)}
        return [self._check(spec, final[spec.name]) for spec in written]

    def _check(self, spec: TensorSpec, value: object) -> Array:
        with blame_user(self.what):
            array = to_numpy(value)
        if array.shape != spec.shape:
            raise UserCodeError(
                f"{self.what} gives {spec.name} the shape {array.shape}, the kernel {spec.shape}"
            )
        if array.dtype.kind not in "biuf" and array.dtype.name not in DTYPES:
            raise UserCodeError(f"{self.what} gives {spec.name} the dtype {array.dtype}")
        if array.dtype.kind in "iu" and "float" in spec.dtype:
            raise UserCodeError(
                f"{self.what} gives {spec.name} the dtype {array.dtype}, the kernel {spec.dtype}"
            )
        return array


def _try(use: Callable[[Give], Used], *, prefers_torch: bool) -> Used:
    """The result with NumPy arrays or torch tensors, whichever the reference takes."""
    if prefers_torch:
        return use(to_torch)
    try:
        return use(np.asarray)
    except UserCodeError as error:
        if not isinstance(error.__cause__, (TypeError, AttributeError)) or not has_torch():
            raise
        try:
            return use(to_torch)
        except UserCodeError as other:
            error.message += f" (and with torch tensors: {other.summary})"
            raise error from error.__cause__


def bind_reference(
    function: Callable[..., object],
    what: str,
    specs: Sequence[TensorSpec],
    arguments: Mapping[str, object],
) -> Reference:
    """Decide what each parameter of a reference gets. Raises UsageError if that is impossible."""
    names = [spec.name for spec in specs if spec.role != "out"]
    outs = [spec.name for spec in specs if spec.role == "out"]
    parameters = parameters_of(function)
    takes_more = parameters is None or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    positional = [p for p in parameters or () if p.kind in _POSITIONAL]
    if len(positional) < len(names) and not takes_more:
        raise UsageError(
            f"{what} takes {count_of(len(positional), 'tensor')}, the kernel reads {len(names)} "
            f"({', '.join(names)})"
        )
    further = [
        *positional[len(names) :],
        *(p for p in parameters or () if p.kind is inspect.Parameter.KEYWORD_ONLY),
    ]
    by_name: dict[str, object] = {}
    outputs = {p.name: p.name for p in further if p.name in outs}
    for parameter in further:
        name = parameter.name
        if name in outputs:
            continue
        if name in arguments:
            by_name[name] = arguments[name]
        elif parameter.default is parameter.empty:
            left = next((out for out in outs if out not in outputs), None)
            if left is None:
                raise UsageError(f"{what} asks for {name}, which the kernel does not have")
            outputs[left] = name
    return Reference(
        what=what,
        function=function,
        specs=tuple(specs),
        by_name=by_name,
        outputs=outputs,
        takes_more=takes_more,
    )


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
