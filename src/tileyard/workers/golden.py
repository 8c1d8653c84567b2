"""Makes inputs and reference outputs once for each identity, and finds them again in the object store."""

import contextlib
import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import msgspec
import numpy as np

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.objects import ObjectStore, canonical_json, digest_parts
from tileyard.base.errors import DamagedError, UsageError, UserCodeError
from tileyard.base.model import Digest, GoldenKey, Measurement, Record, TensorSpec
from tileyard.base.wording import count_of
from tileyard.frontend.blame import blame_user, parameters_of
from tileyard.frontend.closure import PACKAGE, examine
from tileyard.frontend.found import Found
from tileyard.frontend.reads import WATCH, would_read_again
from tileyard.ir.dtypes import DTYPES, find_dtype
from tileyard.measure.inputs import input_key, make_input
from tileyard.measure.sampling import CalledLaunch, measure
from tileyard.targets.base import Array
from tileyard.workers.protocol import Golden, MakeGolden

_BITS = {1: "uint8", 2: "int16"}
"""Integers whose arrays both libraries share, by size in bytes."""
_LIBRARY = re.compile(r"(/\S*(?:openblas|libmkl_rt)[^/\s]*\.so[.\d]*)\s*$", re.MULTILINE)
_PAIRS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)
Give = Callable[[Array], Any]
"""Makes of a NumPy array what a reference is called with."""
Used = TypeVar("Used")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
RECORD_KIND = "golden"
RECIPE = "3"
"""The version of the way golden results are made; a change to this module that changes them raises it."""


def has_torch() -> bool:
    """Whether torch can be imported."""
    return importlib.util.find_spec("torch") is not None


def to_torch(array: Array) -> Any:  # noqa: ANN401 - torch is an optional dependency
    """A CPU tensor over the memory of a writable array; raises TypeError if torch lacks the dtype."""
    torch: Any = importlib.import_module("torch")
    if not _is_foreign(array.dtype.name):
        return torch.from_numpy(array)
    dtype = getattr(torch, array.dtype.name, None)
    if dtype is None:
        raise TypeError(f"torch has no dtype {array.dtype.name}")
    return torch.from_numpy(array.view(_BITS[array.dtype.itemsize])).view(dtype)


def to_numpy(value: Any) -> Array:  # noqa: ANN401 - whatever a reference returned
    """Convert a reference's result to an array: a NumPy array, a tensor, a number, nested lists."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    if not _is_foreign(name):
        array: Array = tensor.numpy()
        return array
    torch: Any = importlib.import_module("torch")
    bits = tensor.view(getattr(torch, _BITS[tensor.element_size()])).numpy()
    foreign: Array = bits.view(np.dtype(getattr(ml_dtypes, name)))
    return foreign


@contextlib.contextmanager
def keep_on_cpu() -> Iterator[None]:
    """Within the block, keep tensors on the CPU that this thread has torch make on or move to a GPU."""
    if "torch" not in sys.modules:
        yield
        return
    with _cpu_mode()():
        yield


@functools.cache
def _cpu_mode() -> Any:  # noqa: ANN401 - a class that exists only where torch does
    torch: Any = importlib.import_module("torch")
    overrides: Any = importlib.import_module("torch.overrides")

    def place(value: Any) -> Any:  # noqa: ANN401 - any argument of any function of torch's
        is_gpu = isinstance(value, str) and value.partition(":")[0] == "cuda"
        if is_gpu or (isinstance(value, torch.device) and value.type == "cuda"):
            return torch.device("cpu")
        return value

    def call(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if func is torch.Tensor.cuda:
            return args[0]
        placed = {name: place(value) for name, value in (kwargs or {}).items()}
        return func(*map(place, args), **placed)

    return type("KeepOnCpu", (overrides.TorchFunctionMode,), {"__torch_function__": call})


def _is_foreign(name: str) -> bool:
    """Whether a dtype is one that NumPy knows only through ml_dtypes."""
    return hasattr(ml_dtypes, name)


@contextlib.contextmanager
def cap_threads(threads: int) -> Iterator[None]:
    """Limit NumPy's and torch's operations in the block to ``threads``; not libraries loaded later."""
    with contextlib.ExitStack() as stack:
        if importlib.util.find_spec("threadpoolctl") is not None:
            limits = importlib.import_module("threadpoolctl").threadpool_limits
            stack.enter_context(limits(threads))
        else:
            for get, put in find_controls():
                before = get()
                stack.callback(put, before)
                put(min(threads, before))
        torch = sys.modules.get("torch")
        if torch is not None:
            before = torch.get_num_threads()
            stack.callback(torch.set_num_threads, before)
            torch.set_num_threads(min(threads, before))
        yield


def find_controls() -> Iterator[tuple["ctypes._NamedFuncPointer", "ctypes._NamedFuncPointer"]]:
    """Functions that read and set the number of threads, for every such library in this process."""
    try:
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return
    for file in sorted(set(_LIBRARY.findall(mapped))):
        library = _open(file)
        for get, put in _PAIRS:
            if library is not None and hasattr(library, get) and hasattr(library, put):
                yield getattr(library, get), getattr(library, put)
                break


@functools.cache
def _open(file: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


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


class GoldenRecord(Record):
    """The object store's record of a golden result. With a doubt about what it ``reads`` it is not kept."""

    inputs: tuple[Digest, ...]
    outputs: tuple[Digest, ...]
    reads: Footprint


@dataclass(frozen=True, kw_only=True)
class GoldenMaker:
    """Makes or finds one golden result; ``function``: the reference. Raises UsageError and UserCodeError."""

    found: Found
    function: Callable[..., object] | None
    request: MakeGolden
    objects: ObjectStore

    def make(self) -> Golden:
        """Look the result up by its key; compute it if it is new, has no key, or read what has changed.

        If it read anything, its own content is in its key.
        """
        reference = self._bind()
        rests = self._examine(reference)
        key = None if rests.doubts else GoldenKey(rests.key(f"{RECORD_KIND} {RECIPE}"))
        if key is None and self.request.only_identified:
            return Golden(key=GoldenKey(""), inputs=(), outputs=())
        known = None if key is None or self.request.anew else _find(self.objects, key, rests.code)
        record = known or self._compute(reference, rests.code)
        is_identified = key is not None and not record.reads.doubts
        if key is not None and is_identified and known is None:
            self.objects.put_record(RECORD_KIND, key, msgspec.json.encode(record))
        if key is None or record.reads != Footprint():
            content = (*record.inputs, "to", *record.outputs)
            key = GoldenKey(digest_parts("golden content", key or "", *content))
        return Golden(
            key=key,
            inputs=record.inputs,
            outputs=record.outputs,
            reused=known is not None,
            is_identified=is_identified,
            measurement=self._time(reference),
        )

    def try_out(self) -> list[Array]:
        """The inputs, once the reference has taken them; nothing is kept."""
        reference = self._bind()
        with cap_threads(self.request.threads), keep_on_cpu():
            inputs = self._make_inputs()
            self._run(reference, inputs)
        return inputs

    def open_reference(self) -> Callable[[Sequence[Array]], list[Array]] | None:
        """A function from inputs to the reference's outputs, None without a reference."""
        reference = self._bind()
        return None if reference is None else partial(self._run, reference)

    def _time(self, reference: Reference | None) -> Measurement | None:
        """The time of the reference in this process; None if there is none, or it is not asked for."""
        if reference is None or self.request.timing is None:
            return None
        with cap_threads(self.request.threads), keep_on_cpu():
            call = reference.bind(self._make_inputs(), prefers_torch=self._prefers_torch(reference))
            return measure(CalledLaunch(call), self.request.timing)

    # ---- identity ---------------------------------------------------------------------------

    def _examine(self, reference: Reference | None) -> Footprint:
        """What the result depends on, with a doubt if the user's code has no identity."""
        request, recipe = self.request, self.found.recipe
        given = recipe.inputs or recipe.supply
        rests = Footprint(
            parts={
                "specs": canonical_json(request.specs),
                "draw": canonical_json(request.draw),
                "NumPy": np.__version__,
                "torch": _torch_version(),
                "threads": str(request.threads),
            }
        )
        if given is None:
            rests.put("inputs", input_key(request.specs))
        else:
            rests.add(examine((given, self.found.complete(request.arguments)), "inputs"))
        if reference is not None:
            rests.add(examine((reference.function, dict(reference.by_name)), "reference"))
        return rests

    # ---- content ----------------------------------------------------------------------------

    def _compute(self, reference: Reference | None, code: Iterable[str]) -> GoldenRecord:
        is_edge = self.request.draw.edges is not None
        usual = np.geterr()
        quiet = np.errstate(**dict.fromkeys(usual, "ignore") if is_edge else usual)
        with cap_threads(self.request.threads), keep_on_cpu(), quiet:
            inputs = self._make_inputs()
            outputs = self._run(reference, inputs)
            outputs = self._round(outputs) if is_edge else outputs
        return GoldenRecord(
            inputs=tuple(put_array(self.objects, array) for array in inputs),
            outputs=tuple(put_array(self.objects, array) for array in outputs),
            reads=WATCH.tell(code, self.objects.root),
        )

    def _round(self, outputs: Sequence[Array]) -> list[Array]:
        """Convert floats to the kernel's own dtype, which may overflow when the reference's does not."""
        specs = (spec for spec in self.request.specs if spec.role != "in")
        dtypes = [find_dtype(spec.dtype) for spec in specs]
        return [
            array.astype(dtype.numpy) if dtype.is_float else array
            for array, dtype in zip(outputs, dtypes, strict=bool(outputs))
        ]

    def _make_inputs(self) -> list[Array]:
        specs, draw = self.request.specs, self.request.draw
        wanted = [(index, spec) for index, spec in enumerate(specs) if spec.role != "out"]
        with WATCH.reading():
            given = self.found.supply_inputs(self.request.arguments, specs, draw.seed)
        if given is None:
            return [make_input(index, spec, draw) for index, spec in wanted]
        what = f"inputs of {self.found.name}"
        if isinstance(given, Mapping):
            names = [spec.name for _, spec in wanted]
            unknown = [str(name) for name in given if name not in names]
            if unknown:
                raise UserCodeError(f"{what}: {unknown[0]} is not one of {', '.join(names)}")
            return [
                _fit(spec, given[spec.name], what)
                if spec.name in given
                else make_input(index, spec, draw)
                for index, spec in wanted
            ]
        with blame_user(what):
            is_one = len(wanted) == 1 and hasattr(given, "dtype")
            arrays = [given] if is_one else list(given)  # type: ignore[call-overload]
        if len(arrays) != len(wanted):
            arrays_given, tensors = (
                count_of(len(arrays), "array"),
                count_of(len(wanted), "input tensor"),
            )
            raise UserCodeError(f"{what}: {arrays_given} for {tensors}")
        return [_fit(spec, array, what) for (_, spec), array in zip(wanted, arrays, strict=True)]

    def _bind(self) -> Reference | None:
        if self.function is None:
            return None
        what = f"reference of {self.found.name}"
        arguments = self.found.complete(self.request.arguments)
        return bind_reference(self.function, what, self.request.specs, arguments)

    def _run(self, reference: Reference | None, inputs: Sequence[Array]) -> list[Array]:
        if reference is None:
            return []
        with WATCH.reading():
            return reference.run(inputs, prefers_torch=self._prefers_torch(reference))

    def _prefers_torch(self, reference: Reference) -> bool:
        # TileLang calls a ref_prog with tensors, whatever its code names.
        recipe = self.found.recipe
        is_ref_prog = recipe.style == "autotune" and self.function is recipe.reference
        return is_ref_prog or f"{PACKAGE}torch" in examine(reference.function, "reference").parts


def _fit(spec: TensorSpec, given: object, what: str) -> Array:
    """A user's input in the parameter's dtype. Raises UserCodeError if it does not fit."""
    with blame_user(what):
        array = to_numpy(given)
    if array.shape != spec.shape:
        raise UserCodeError(
            f"{what}: {spec.name} has the shape {array.shape}, the kernel takes {spec.shape}"
        )
    dtype = find_dtype(spec.dtype)
    if array.dtype == dtype.numpy:
        return array
    is_whole = array.dtype.kind in "biu"
    if not dtype.is_float and not is_whole:
        raise UserCodeError(f"{what}: {spec.name} is {array.dtype}, the kernel takes {spec.dtype}")
    with blame_user(what):
        return array.astype(dtype.numpy)


def _find(objects: ObjectStore, key: GoldenKey, code: Iterable[str]) -> GoldenRecord | None:
    """The recorded result, if what it read is unchanged, and all its arrays exist and are undamaged."""
    record = objects.decode_record(RECORD_KIND, key, GoldenRecord)
    if record is None:
        return None
    try:
        for digest in (*record.inputs, *record.outputs):
            objects.path(digest)
    except DamagedError:
        return None
    return record if would_read_again(record.reads, code) else None


@functools.cache
def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
