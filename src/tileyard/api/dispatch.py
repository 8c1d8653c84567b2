"""Tuned kernels as functions: each shape gets the config that won for it, or a default."""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileyard.api.kernels import (
    Shapes,
    describe_shapes,
    find_misfit,
    infer_arguments,
    list_shapes,
    make_builder,
    make_callable,
    settings_for,
    shapes_like,
)
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError, UsageError
from tileyard.base.model import Value
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.devices.registry import parse_device
from tileyard.frontend.discover import find_declared, find_kernel, find_kernels, import_file
from tileyard.frontend.found import Found, lower_config
from tileyard.frontend.parameters import to_plain
from tileyard.show.kernel_options import parse_kernel
from tileyard.show.values import refuse_unused
from tileyard.store.choices import Choice, list_choices
from tileyard.targets.arguments import guard
from tileyard.targets.registry import find_needs
from tileyard.workers.local_builder import LocalBuilder


class Dispatch:
    """A kernel as a function of its tensors.
    The first call with some shapes and dtypes looks up the config that won on this device, or takes
    ``default``, and loads or builds its kernel, once among threads and processes; later calls find
    it in a dictionary. ``built`` counts kernels built here. A kernel given by name, such as
    ``gemm.py::gemm``, runs the winning binaries: nothing is built, and there is no default.
    """

    def __init__(  # noqa: PLR0913 - by keyword only
        self,
        kernel: Found | str,
        settings: Settings,
        *,
        target: str = "cpu",
        device: str = "",
        silicon: str = "",
        default: Mapping[str, object] | None = None,
        arguments: Callable[..., Mapping[str, object]] | None = None,
    ) -> None:
        if isinstance(kernel, str):
            refuse_unused("on a kernel by its name", {"default": default, "arguments": arguments})
            self._found, (self._file, _, self._name) = None, kernel.rpartition("::")
        else:
            self._found, self._name = kernel, kernel.name
            self._file = kernel.recipe.file.rpartition("/")[2]
        self._settings = settings
        self._target = target
        self._device = device
        self._known_silicon = silicon
        self._default = default
        self._arguments = arguments
        self.built = 0
        self._ready: dict[object, Callable[..., object]] = {}
        self._lock = threading.Lock()
        self._builder: LocalBuilder | None = None

    def __call__(self, *args: Any) -> object:  # noqa: ANN401 - arrays of any library
        """As the compiled kernel: see ``Winner.load``. Raises UsageError if there is no config, not
        even a default, and RejectedError as ``choose``.
        """
        try:
            kernel = self._ready.get(tuple([(a.shape, a.dtype) for a in args]))
        except AttributeError:  # an argument is a number
            kernel = None
        if kernel is None:  # outside the try: its errors have no other behind them
            kernel = self.find(*args)
        return kernel(*args)

    def find(self, *args: Any) -> Callable[..., object]:  # noqa: ANN401 - see above
        """The compiled kernel for these arrays. Raises UsageError as a call does."""
        key = tuple([(a.shape, a.dtype) if hasattr(a, "shape") else None for a in args])
        kernel = self._ready.get(key)
        if kernel is None:
            with self._lock:
                kernel = self._ready.get(key) or self._prepare(args)
                self._ready[key] = kernel
        return kernel

    def choose(self, *args: Any) -> tuple[dict[str, Value], dict[str, Value]]:  # noqa: ANN401 - see above
        """The arguments and config for these arrays. Raises UsageError; RejectedError for ``where``."""
        shapes = list_shapes(args)
        choice = self._find_choice(shapes)
        if choice is not None:
            chosen, config = dict(choice.arguments), dict(choice.config)
        else:
            given = self._arguments(*args) if self._arguments is not None else None
            found = infer_arguments(self._name, self._choices(), shapes) if given is None else given
            chosen = {key: to_plain(value) for key, value in found.items()}
            config = {key: to_plain(value) for key, value in (self._default or {}).items()}
        if self._found is not None:
            self._found.require(chosen, config)
        return chosen, config

    def __repr__(self) -> str:
        ready = count_of(len(self._ready), "shape")
        return f"<tuned kernel {self._name}, target {self._target}: {ready} loaded>"

    def _find_choice(self, shapes: Shapes) -> Choice | None:
        """The winner for these shapes on this silicon; None if they get the default. Raises UsageError."""
        known = self._choices()
        here = [choice for choice in known if choice.silicon == self._silicon]
        fitting = [choice for choice in here if shapes in shapes_like(choice.tensors)]
        files = sorted({choice.file for choice in fitting})
        if len(files) > 1 and not self._file:
            names = " and ".join(f"{file}::{self._name}" for file in files)
            raise UsageError(f"several kernels are called {self._name}: {names}", "name one")
        if not fitting and self._default is None:
            others = sorted({choice.silicon for choice in known} - {self._silicon})
            hint = "tune it for that shape" + (", or give default=" if self._found else "")
            hint += f"; silicon= takes what won on {' or '.join(others)}" if others else ""
            what = f"no config of {self._name} is known for {describe_shapes(shapes)}"
            what += f" on {self._silicon.partition(',')[0]}"
            raise UsageError(find_misfit(self._name, known, shapes) or what, hint)
        return fitting[0] if fitting else None

    def _prepare(self, args: Sequence[Any]) -> Callable[..., object]:
        if self._found is None:
            choice, objects = self._find_choice(list_shapes(args)), self._settings.home / "objects"
            artifact = find_artifact(choice.build, ObjectStore(objects)) if choice else None
            if artifact is None:
                raise DamagedError(
                    f"the binary of {self._name} that won is not in {objects}",
                    "`tileyard export --binaries` packs it where it was tuned",
                )
            run = make_callable(artifact, self._target, self._settings, self._device, {})
            return guard(run, choice.rule if choice else None)
        arguments, config = self.choose(*args)
        if self._builder is None:
            self._builder = make_builder(self._target, self._settings)
        made = lower_config(self._found, arguments, config, with_tir=self._builder.needs_tir)
        artifact, is_built = self._builder.build(made)
        self.built += is_built
        run = make_callable(artifact, self._target, self._settings, self._device, made.lines)
        found = self._found
        return guard(run, made.rule, lambda other: found.require({**arguments, **other}, config))

    @functools.cached_property
    def _silicon(self) -> str:
        if self._known_silicon:
            return self._known_silicon
        name = self._device or f"{find_needs(self._target).device_class}:0"
        return parse_device(name, self._settings).identity

    def _choices(self) -> list[Choice]:
        """The known choices for this kernel and target, without those of its name in another file."""
        return [
            choice
            for choice in list_choices(self._settings.home, self._name)
            if choice.target == self._target and (not self._file or choice.file in ("", self._file))
        ]


def tuned(  # noqa: PLR0913 - options, by keyword only
    kernel: object = None,
    *,
    target: str = "cpu",
    device: str = "",
    silicon: str = "",
    default: Mapping[str, object] | None = None,
    arguments: Callable[..., Mapping[str, object]] | None = None,
    home: str | None = None,
) -> Any:  # noqa: ANN401 - a Dispatch, or a decorator
    """Decorate a kernel: called with tensors, it runs with the config that studies in this data
    directory found for their shapes.

    Args:
        kernel: A kernel as in ``tileyard.tune``, except a file; or the name of a kernel, whose
            winning binaries are run without its source and without TileLang.
        target: The target that it is built for.
        device: The device that it runs on, as in ``tileyard.compile``.
        silicon: Use the winners of this silicon, as named by ``tileyard export``, instead of the
            device's own.
        default: The config for shapes that were never tuned; without it they are refused, and so
            are shapes for which ``where`` rejects it.
        arguments: A function that is called with tensors of shapes that were never tuned, and
            returns the kernel's arguments. Without it they are inferred from the tuned shapes.
        home: The data directory, as in ``tune``.
    """
    if kernel is None:
        return functools.partial(
            tuned,
            target=target,
            device=device,
            silicon=silicon,
            default=default,
            arguments=arguments,
            home=home,
        )
    return Dispatch(
        kernel if isinstance(kernel, str) else find_declared(kernel),
        settings_for(home),
        target=target,
        device=device,
        silicon=silicon,
        default=default,
        arguments=arguments,
    )


def find_held(kernel: object, name: str) -> Found | str:
    """A study's kernel: held by its caller, of a file, which is imported here, or of a bundle."""
    if kernel is None:
        return name
    if not isinstance(kernel, str):
        return find_declared(kernel)
    file, _ = parse_kernel(kernel)
    return find_kernel(find_kernels(import_file(file)), name)
