"""Tuned kernels as functions: each shape gets the config that won for it, or for the nearest tuned shape."""

import functools
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from tileyard.base.errors import DamagedError, TileyardError, UsageError
from tileyard.base.model import Value
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.devices.registry import parse_device
from tileyard.frontend.discover import find_declared, find_kernel, find_kernels, import_file
from tileyard.frontend.found import Found, lower_config
from tileyard.frontend.parameters import to_plain
from tileyard.show.kernel_options import parse_kernel
from tileyard.show.values import refuse_unused
from tileyard.show.words import format_config
from tileyard.store.choices import Choice, list_choices, measure_distance
from tileyard.targets.arguments import guard
from tileyard.targets.registry import find_needs
from tileyard.workers.local_builder import LocalBuilder

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The config for some arguments, and why."""

    arguments: Mapping[str, Value]
    config: Mapping[str, Value]
    why: str
    is_guess: bool = False


class Dispatch:
    """A kernel as a function of its tensors.
    The first call with some shapes and dtypes looks up the config that won on this device, or else for the
    nearest shape, or takes ``default``, and loads or builds its kernel, once among threads and processes;
    later calls find it in a dictionary. ``built`` counts kernels built here. A kernel given by name, such as
    ``gemm.py::gemm``, runs the winning binaries: nothing is built, and other shapes are refused.
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
        nearest: bool = True,
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
        self._nearest = nearest
        self.built = 0
        self._ready: dict[object, Callable[..., object]] = {}
        self._lock = threading.Lock()
        self._builder: LocalBuilder | None = None

    def __call__(self, *args: Any) -> object:  # noqa: ANN401 - arrays of any library
        """As the compiled kernel: see ``Winner.load``. Raises UsageError if there is no config, and
        RejectedError as ``choose``.
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
        decided = self._decide(args)
        return dict(decided.arguments), dict(decided.config)

    def explain(self, *args: Any) -> str:  # noqa: ANN401 - see above
        """The arguments and config for these arrays in one line, and why. Raises as ``choose``."""
        return self._describe(self._decide(args))

    def __repr__(self) -> str:
        ready = count_of(len(self._ready), "shape")
        return f"<tuned kernel {self._name}, target {self._target}: {ready} loaded>"

    def _decide(self, args: Sequence[Any]) -> Decision:
        shapes = list_shapes(args)
        choice = self._find_choice(shapes)
        if choice is None:
            return self._decide_unseen(args, shapes)
        if self._found is not None:
            self._found.require(choice.arguments, choice.config)
        why = "which won for this shape"
        return Decision(arguments=choice.arguments, config=choice.config, why=why)

    def _decide_unseen(self, args: Sequence[Any], shapes: Shapes) -> Decision:
        """The config of the nearest tuned shape of which it is valid for this one; else the default."""
        known = self._choices()
        here = [one for one in known if one.silicon == self._silicon]
        is_near = self._nearest and bool(here) and not find_misfit(self._name, known, shapes)
        if self._found is None or (self._default is None and not is_near):
            raise self._refuse(shapes)
        given = self._arguments(*args) if self._arguments is not None else None
        found = infer_arguments(self._name, known, shapes) if given is None else given
        arguments = {key: to_plain(value) for key, value in found.items()}
        usual = self._found.parameters.defaults
        complete = {**usual, **arguments}
        distances = [
            (measure_distance({**usual, **one.arguments}, complete), place)
            for place, one in enumerate(here if is_near else [])
        ]
        for number, (distance, place) in enumerate(sorted(distances)):
            one = here[place]
            if distance < math.inf and self._is_valid(one, arguments):
                why = f"which won for {format_config(one.arguments)}, the nearest tuned shape"
                why += " whose config is valid" if number else ""
                return Decision(arguments=arguments, config=one.config, why=why, is_guess=True)
        if self._default is None:
            raise self._refuse(shapes)
        config = {key: to_plain(value) for key, value in self._default.items()}
        self._found.require(arguments, config)
        return Decision(arguments=arguments, config=config, why="the default")

    def _is_valid(self, choice: Choice, arguments: Mapping[str, Value]) -> bool:
        """Whether ``where`` accepts a choice's config for other arguments, and their space has it, if its own
        has.
        """
        try:
            if self._found is None or not self._found.accepts(arguments, choice.config):
                return False
            spaces = [self._found.expand(own) for own in (arguments, choice.arguments)]
            is_new, is_old = [space.has(choice.config) for space in spaces]
        except TileyardError:  # the kernel had other parameters then
            return False
        return is_new or not is_old

    def _describe(self, decided: Decision) -> str:
        subject = " ".join(filter(None, (self._name, format_config(decided.arguments))))
        return f"{subject} runs with {format_config(decided.config) or 'its only config'}, {decided.why}"

    def _find_choice(self, shapes: Shapes) -> Choice | None:
        """The winner for these shapes on this silicon, if any. Raises UsageError for several kernels."""
        here = [choice for choice in self._choices() if choice.silicon == self._silicon]
        fitting = [choice for choice in here if shapes in shapes_like(choice.tensors)]
        files = sorted({choice.file for choice in fitting})
        if len(files) > 1 and not self._file:
            names = " and ".join(f"{file}::{self._name}" for file in files)
            raise UsageError(f"several kernels are called {self._name}: {names}", "name one")
        return fitting[0] if fitting else None

    def _refuse(self, shapes: Shapes) -> UsageError:
        known = self._choices()
        others = sorted({choice.silicon for choice in known} - {self._silicon})
        hint = "tune it for that shape" + (", or give default=" if self._found else "")
        hint += f"; silicon= takes what won on {' or '.join(others)}" if others else ""
        what = f"no config of {self._name} is known for {describe_shapes(shapes)}"
        what += f" on {self._silicon.partition(',')[0]}"
        return UsageError(find_misfit(self._name, known, shapes) or what, hint)

    def _prepare(self, args: Sequence[Any]) -> Callable[..., object]:
        if self._found is None:
            shapes, objects = list_shapes(args), self._settings.home / "objects"
            choice = self._find_choice(shapes)
            if choice is None:
                raise self._refuse(shapes)
            artifact = find_artifact(choice.build, ObjectStore(objects))
            if artifact is None:
                raise DamagedError(
                    f"the binary of {self._name} that won is not in {objects}",
                    "`tileyard export --binaries` packs it where it was tuned",
                )
            run = make_callable(artifact, self._target, self._settings, self._device, {})
            return guard(run, choice.rule)
        decided = self._decide(args)
        arguments, config = decided.arguments, decided.config
        if decided.is_guess:
            log.warning("%s", self._describe(decided))
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
    nearest: bool = True,
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
        default: The config for shapes that were never tuned, if no tuned shape's is valid for them; without
            it they are refused, and so are shapes for which ``where`` rejects it.
        arguments: A function that is called with tensors of shapes that were never tuned, and
            returns the kernel's arguments. Without it they are inferred from shapes that were.
        nearest: Shapes that were never tuned get the config of the nearest tuned shape, with a warning in the
            log; without it they get the default, or are refused.
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
            nearest=nearest,
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
        nearest=nearest,
    )


def find_held(kernel: object, name: str) -> Found | str:
    """A study's kernel: held by its caller, of a file, which is imported here, or of a bundle."""
    if kernel is None:
        return name
    if not isinstance(kernel, str):
        return find_declared(kernel)
    file, _ = parse_kernel(kernel)
    return find_kernel(find_kernels(import_file(file)), name)
