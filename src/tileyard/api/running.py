"""Runs verbs from Python: settings, kernels in this process, and progress."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.events import Event
from tileyard.base.settings import Settings, read_settings
from tileyard.base.wording import show_value
from tileyard.frontend.declare import kernel as declare_kernel
from tileyard.frontend.discover import find_kernels, import_file
from tileyard.service.client import AnswerQuestion, RunClient
from tileyard.service.verbs import ResultT, Verb
from tileyard.show.carrying import Carry, ignore, run_shown
from tileyard.show.console import Console
from tileyard.show.kernel_options import parse_kernel
from tileyard.show.progress import Layout
from tileyard.verbs.compile.options.compile import StartCompile
from tileyard.verbs.tune.options.tune import StartTune
from tileyard.verbs.tune.plan.space import choose_kernel
from tileyard.workers.author import Author

P = ParamSpec("P")
StartT = TypeVar("StartT", StartTune, StartCompile)


def settings_for(home: str | os.PathLike[str] | None) -> Settings:
    """Settings from the environment, with ``home``, if given, as the data directory."""
    named = {} if home is None else {"TILEYARD_HOME": str(Path(home).absolute())}
    return read_settings({**os.environ, **named}, Path.cwd())


def console_for(progress: bool | None) -> Console | None:
    """The console that shows a run; None if it is not shown, by default outside a terminal and a notebook."""
    console = Console(stderr=True)
    usual = console.is_jupyter or sys.stderr.isatty()
    return console if (usual if progress is None else progress) else None


def printed_on(console: Console | None) -> Console | None:
    """The console on which a result is printed: none in a notebook, which displays the returned value."""
    return None if console is None or console.is_jupyter else console


def show(
    console: Console | None,
    view: Callable[Concatenate[Console, P], None],
    *args: P.args,
    **kwargs: P.kwargs,
) -> None:
    """Print a result on the console of its run; in a notebook as one output."""
    if console is not None:
        with console:
            view(console, *args, **kwargs)


def carry_on(console: Console | None, answer: AnswerQuestion | None = None) -> Carry:
    """A function that runs verbs; ``answer`` is the author of a kernel in this process."""

    def carry(
        verb: Verb[ResultT],
        settings: Settings,
        layout: Layout,
        hear: Callable[[Event], None] = ignore,
    ) -> ResultT:
        client = RunClient(verb, settings, answer)
        return client.run(hear) if console is None else run_shown(client, console, layout, hear)

    return carry


@dataclass(frozen=True, kw_only=True)
class FoundKernel:
    """A kernel by name: from a file that a separate process imports, or of the ``author`` in this process."""

    name: str
    file: str = ""
    author: Author | None = None

    @property
    def answer(self) -> AnswerQuestion | None:
        """The function that answers questions in this process, if any."""
        return None if self.author is None else self.author.answer

    def place(self, start: StartT) -> StartT:
        """``start`` with this kernel as its request's."""
        request = replace(start.request, kernel=self.name)
        return replace(start, file=self.file, request=request)


def find_kernel(kernel: object, declared: Mapping[str, object], settings: Settings) -> FoundKernel:
    """A kernel, or ``"file.py::name"``, with these declared fields; None keeps its own. The file is
    imported here if a field is given. Raises UsageError and KernelFileError.
    """
    held = kernel
    if isinstance(kernel, str):
        file, name = parse_kernel(kernel)
        if all(value is None for value in declared.values()):
            return FoundKernel(name=name, file=str(file))
        module = import_file(file)
        kernels = [found.describe() for found in find_kernels(module).values()]
        held = vars(module)[choose_kernel(kernels, name).name]
    if not callable(held):
        is_func = type(held).__name__ == "PrimFunc"
        hint = "tileyard.compile takes one" if is_func else "@tileyard.kernel declares a function"
        raise UsageError(f"{show_value(held)} is not a kernel", hint)
    made = declare_kernel(held, **declared)  # type: ignore[call-overload]  # checked there
    author = Author.of_kernel(made, ObjectStore(settings.home / "objects"))
    return FoundKernel(name=next(iter(author.kernels)), author=author)
