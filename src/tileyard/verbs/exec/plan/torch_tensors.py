"""Makes tensors that a script puts on ``"cuda"`` in the host's memory. torch's functions are replaced
process-wide, as a mode applies to one thread. Moves between host and device copy, as on a GPU, except of
tensors that the script put on the device. All tensors claim to be there, since of a computed one it is not
known. ``torch.compile`` leaves functions unchanged: its output would be for a GPU.
"""

import functools
import importlib
import math
import warnings
import weakref
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

from tileyard.verbs.exec.plan.tally import Tally

HOST = "cpu"
GPU = "cuda"
_METHODS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
_ALIKE = (
    *("normal", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
    "randint_like",
)
_SHARING = ("as_tensor", "asarray")
"""Functions that may share the memory of their first argument, though never across host and device."""
_TO_PARAMETERS = ("dtype", "non_blocking", "copy")
"""The parameters after the device in ``Tensor.to``."""
_FLASH = "_scaled_dot_product_flash_attention_for_cpu"
OPERATIONS = {
    "mm": "mm",
    "bmm": "bmm",
    "addmm": "addmm",
    "baddbmm": "baddbmm",
    "addmv": "addmv",
    "convolution": "convolution",
    "convolution_backward": "convolution_backward",
    _FLASH: "scaled_dot_product_attention",
    f"{_FLASH}_backward": "scaled_dot_product_attention",
}
"""torch's operations, each with the name under which it is counted."""
_FIRST_ONLY = frozenset({_FLASH})
"""Operations of which only the first result has the type of the operands."""
_IN_PARTS = frozenset({"mm", "bmm"})
_PART = 1 << 26
"""Number of elements of a product computed at once."""
_BATCHED = 3
_DIVISIONS = ("__truediv__", "div", "divide", "true_divide")
_IN_PLACE = ("__itruediv__", "div_", "divide_", "true_divide_")


def keep_tensors_on_host(torch: ModuleType) -> None:
    """Make all of torch's functions that take a device use the CPU if a GPU is named."""
    places = Places(torch)
    # The functions that take a device, by torch's own list; read while it is what torch compares with.
    constructors = frozenset(vars(_device_module(torch))["_device_constructors"]())
    for space in (torch, torch.fft, torch.nested):
        for name in _names_of(space, constructors):
            setattr(space, name, places.translating(getattr(space, name)))
    for name in _SHARING:
        setattr(torch, name, places.copying(getattr(torch, name).__wrapped__))
    for name in _ALIKE:
        setattr(torch, name, places.translating(getattr(torch, name)))
    for name in _METHODS:
        setattr(torch.Tensor, name, places.translating(getattr(torch.Tensor, name)))
    _replace_methods(torch, places)
    _replace_classes(torch, places)


class Places:
    """Decides which devices a script's values refer to."""

    def __init__(self, torch: ModuleType) -> None:
        self._device = torch.device
        self.host = torch.device(HOST)
        self._put: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def put(self, tensor: Any) -> object:  # noqa: ANN401 (torch's)
        """``tensor``, recorded from now on as one that the script put on the device."""
        self._put[id(tensor)] = tensor
        return tensor

    def is_put(self, tensor: object) -> bool:
        """Whether the script itself put ``tensor`` on the device; this is not known of results."""
        return self._put.get(id(tensor)) is tensor

    def is_gpu(self, value: object) -> bool:
        """Whether ``value`` names a GPU: ``"cuda:0"``, a torch.device, or a number."""
        if isinstance(value, self._device):
            return bool(value.type == "cuda")
        if isinstance(value, str):
            return value.partition(":")[0] == "cuda"
        return isinstance(value, int) and not isinstance(value, bool)

    def names_device(self, value: object) -> bool:
        """Whether ``value`` can only refer to a device."""
        if isinstance(value, self._device):
            return True
        return isinstance(value, str) and value.partition(":")[0] in ("cuda", "cpu")

    def translate(self, value: object) -> object:
        """``value``, or the host if it names a GPU."""
        return self.host if self.is_gpu(value) else value

    def translating(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` with its ``device`` on the host, in memory that is not pinned."""

        @functools.wraps(function)
        def translated(*args: object, **kwargs: object) -> object:
            device = kwargs.get("device")
            if "device" in kwargs:
                kwargs["device"] = self.translate(device)
            kwargs.pop("pin_memory", None)
            made = function(*args, **kwargs)
            return self.put(made) if self.is_gpu(device) else made

        return translated

    def copying(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Like ``translating``, for a function that may share memory with its argument."""

        @functools.wraps(function)
        def copied(data: object, *args: object, **kwargs: object) -> object:
            device = kwargs.get("device")
            if not self.is_gpu(device):
                return function(data, *args, **kwargs)
            made = function(data, *args, **{**kwargs, "device": self.host})
            return self.put(made if self.is_put(data) else made.clone())

        return copied


def _device_module(torch: ModuleType) -> ModuleType:
    """The only module in which torch keeps default devices."""
    return importlib.import_module(f"{torch.__name__}.utils._device")


def _names_of(space: ModuleType, wanted: frozenset[object]) -> Iterable[str]:
    for name, value in list(vars(space).items()):
        try:
            if callable(value) and value in wanted:
                yield name
        except TypeError:  # an unhashable value is not one of them
            continue


def _replace_methods(torch: ModuleType, places: Places) -> None:
    tensor = torch.Tensor
    to, cpu = tensor.to, tensor.cpu

    def moved(self: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401 (torch's)
        if args and (type(args[0]) is int or places.names_device(args[0])):
            args, kwargs["device"] = args[1:], args[0]
        for name, value in zip(_TO_PARAMETERS, args if "device" in kwargs else (), strict=False):
            kwargs[name], args = value, args[1:]
        device = kwargs.get("device")
        if device is None:
            return to(self, *args, **kwargs)
        is_there = places.is_gpu(device) and places.is_put(self)
        kwargs |= {"device": places.translate(device), "copy": kwargs.get("copy") or not is_there}
        result = to(self, *args, **kwargs)
        return places.put(result) if places.is_gpu(device) else result

    def to_device(self: Any, *_: object, **kwargs: Any) -> object:  # noqa: ANN401 (torch's)
        memory_format = kwargs.get("memory_format", torch.preserve_format)
        copy = not places.is_put(self)
        return places.put(to(self, places.host, copy=copy, memory_format=memory_format))

    def to_host(self: Any, memory_format: Any = torch.preserve_format) -> object:  # noqa: ANN401
        return cpu(self).clone(memory_format=memory_format)

    tensor.to = functools.wraps(to)(moved)
    tensor.cuda = functools.wraps(tensor.cuda)(to_device)
    tensor.cpu = functools.wraps(cpu)(to_host)
    _tell_device(torch)
    tensor.get_device = lambda _: 0
    tensor.pin_memory = lambda self, *_, **__: self
    tensor.record_stream = lambda *_, **__: None


def _tell_device(torch: ModuleType) -> None:
    """Make tensors in the host's memory report the device; ``is_cpu`` shows where they are."""
    tensor = torch.Tensor
    where = tensor.device
    device = torch.device(GPU, 0)

    def told(self: object) -> object:
        found = where.__get__(self)
        return device if found.type == HOST else found

    def export_device(self: Any) -> object:  # noqa: ANN401 (torch's)
        return (1, 0) if self.is_cpu else name_device(self)  # DLPack's number of a CPU

    name_device = tensor.__dlpack_device__
    tensor.device = property(told)
    tensor.is_cuda = property(lambda self: self.device.type == GPU)
    tensor.__dlpack_device__ = functools.wraps(name_device)(export_device)


def _replace_classes(torch: ModuleType, places: Places) -> None:
    generator: Any = torch.Generator

    def made(cls: type, device: object = HOST) -> object:
        return generator.__new__(cls, device=places.translate(device))

    members = {"__new__": made, "__doc__": generator.__doc__}
    context = _device_module(torch).DeviceContext  # what `with torch.device(...)` enters
    begin = context.__init__

    def begin_on_host(self: object, device: object) -> None:
        begin(self, places.translate(device))

    context.__init__ = begin_on_host
    load = torch.load

    @functools.wraps(load)
    def load_on_host(file: object, _: object = None, **kwargs: Any) -> object:  # noqa: ANN401 (torch's)
        return load(file, **(kwargs | {"map_location": places.host}))

    @functools.wraps(torch.compile)
    def left_alone(model: Any = None, **_: object) -> object:  # noqa: ANN401 (torch's)
        return model if model is not None else lambda model: model

    vars(torch)["compile"] = left_alone
    vars(torch).update(Generator=type("Generator", (generator,), members), load=load_on_host)


def cast_on_host(torch: ModuleType) -> None:
    """Make each ``torch.autocast`` of a GPU also one of the CPU, while it lasts."""
    kind: Any = importlib.import_module(f"{torch.__name__}.amp.autocast_mode").autocast
    enter, leave = kind.__enter__, kind.__exit__

    @functools.wraps(enter)
    def enter_both(self: Any) -> object:  # noqa: ANN401 (torch's)
        entered = enter(self)
        if self.device == GPU:
            both = kind(
                HOST,
                dtype=self.fast_dtype,
                enabled=self._enabled,
                cache_enabled=self._cache_enabled,
            )
            vars(self).setdefault("_on_host", []).append(both)
            enter(both)
        return entered

    @functools.wraps(leave)
    def leave_both(self: Any, *ended: Any) -> object:  # noqa: ANN401 (torch's)
        if self.device == GPU:
            leave(vars(self)["_on_host"].pop(), *ended)
        return leave(self, *ended)

    kind.__enter__, kind.__exit__ = enter_both, leave_both


def promote_half(torch: ModuleType, tally: Tally) -> None:
    """Compute these in f32 from here on."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns whenever a kernel of its own is replaced
        for operation in OPERATIONS:
            promoted = _promoted(torch, operation, tally)
            library.impl(operation, promoted, "CPU", with_keyset=True, allow_override=True)
    vars(torch)["_tileyard_promoted"] = library  # it removes its kernels when it is deleted


def _promoted(torch: ModuleType, operation: str, tally: Tally) -> Callable[..., object]:
    original = torch.library.get_kernel(f"aten::{operation}", "CPU").call_boxed
    name = OPERATIONS[operation]
    half = (torch.float16, torch.bfloat16)

    def widen(value: Any) -> object:  # noqa: ANN401 (torch's)
        is_half = isinstance(value, torch.Tensor) and value.dtype in half
        return value.to(torch.float32) if is_half else value

    def compute(keyset: object, *args: object, **kwargs: object) -> object:
        """The operation's results, in the type of its operands."""
        given = (*args, *kwargs.values())
        kinds = [value.dtype for value in given if isinstance(value, torch.Tensor)]
        kind = next((kind for kind in kinds if kind in half), None)
        if kind is None:
            return original(keyset, *args, **kwargs)
        tally.note_promotion(name)
        if name in _IN_PARTS and not kwargs:
            return multiply(keyset, *args)
        widened = {key: widen(value) for key, value in kwargs.items()}
        results = original(keyset, *map(widen, args), **widened)
        if not isinstance(results, tuple):
            return results.to(kind)
        if operation in _FIRST_ONLY:
            return (results[0].to(kind), *results[1:])
        return tuple(
            result.to(kind) if isinstance(result, torch.Tensor) else result for result in results
        )

    def multiply(keyset: object, a: Any, b: Any) -> object:  # noqa: ANN401 (torch's)
        """A product in parts along its first dimension, so that only a small part is in f32 at once."""
        shape = (*a.shape[:-1], b.shape[-1])
        result = a.new_empty(shape)
        row = max(math.prod(shape[1:]), math.prod(a.shape[1:]), 1)
        step = max(_PART // row, 1)
        whole = widen(b) if b.dim() < _BATCHED else None
        for start in range(0, shape[0], step):
            part = slice(start, start + step)
            other = whole if whole is not None else widen(b[part])
            result[part] = original(keyset, widen(a[part]), other)
        return result

    return compute


def divide_as_gpus_do(torch: ModuleType) -> None:
    """Replace torch's true divisions if the divisor is a number."""
    tensor: Any = torch.Tensor
    divided = functools.partial(_divided, torch)
    for name in (*_DIVISIONS, *_IN_PLACE):
        multiply = tensor.mul_ if name in _IN_PLACE else tensor.mul
        setattr(tensor, name, divided(getattr(tensor, name), multiply))
    for name in _DIVISIONS[1:]:
        setattr(torch, name, divided(getattr(torch, name), tensor.mul))


def reciprocal(number: float, *, is_double: bool) -> float:
    """``1 / number`` as on a GPU: both rounded to f32, or to f64 if ``is_double``."""
    kind = np.float64 if is_double else np.float32
    with np.errstate(all="ignore"):
        divisor = float(kind(number))
        return float(kind(1.0 / divisor)) if divisor else math.copysign(math.inf, divisor)


def _divided(
    torch: ModuleType, divide: Callable[..., Any], multiply: Callable[..., Any]
) -> Callable[..., Any]:
    """``divide``, replaced by ``multiply`` if a tensor of floats is divided by a number."""
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

    @functools.wraps(divide)
    def divided(given: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401 (torch's)
        if (
            len(args) == 1
            and not kwargs
            and type(args[0]) in (int, float)
            and isinstance(given, torch.Tensor)
            and given.dtype in kinds
        ):
            is_double = given.dtype == torch.float64
            return multiply(given, reciprocal(args[0], is_double=is_double))
        return divide(given, *args, **kwargs)

    return divided
