"""Compiled kernels as functions on arrays."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from msgspec.structs import replace

from tileyard.api.shown import ShownBuilds, make_shown
from tileyard.artifacts.manifest import Artifact, find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError, ToolMissingError, UsageError
from tileyard.base.events import Event
from tileyard.base.model import SourceLine, TensorSpec, Trial, Value
from tileyard.base.settings import Settings, read_settings
from tileyard.base.wording import count_of, show_value
from tileyard.devices.registry import parse_device
from tileyard.frontend.declare import KernelDeclaration, list_rules
from tileyard.frontend.declare import kernel as declare_kernel
from tileyard.frontend.discover import find_kernels, import_file
from tileyard.ir.dtypes import array_name
from tileyard.service.choosing import require_fit, settle_target
from tileyard.service.client import AnswerQuestion, RunClient
from tileyard.service.verbs import ResultT, Verb
from tileyard.show.console import Console
from tileyard.show.kernel_options import parse_kernel
from tileyard.show.options import complete, takes
from tileyard.show.progress import Layout
from tileyard.show.session import Carry, ignore, run_shown
from tileyard.show.values import refuse_unused
from tileyard.show.words import format_config
from tileyard.store.choices import Choice
from tileyard.targets.arguments import guard
from tileyard.targets.base import KnowsLines
from tileyard.targets.registry import find_needs, make_target
from tileyard.verbs.compile.options import CompileOptions, StartCompile, start_compile
from tileyard.verbs.tune.options import StartTune
from tileyard.verbs.tune.plan.space import choose_kernel
from tileyard.verbs.tune.result import CompileResult
from tileyard.verbs.tune.view.compiled import print_compiled
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.workers.author import Author
from tileyard.workers.local_builder import LocalBuilder
from tileyard.workers.run_records import find_run

P = ParamSpec("P")
StartT = TypeVar("StartT", StartTune, StartCompile)
OF_FUNCTIONS = ("target", "out_idx", "device", "home")
"""The options that apply to a PrimFunc."""
Shapes = tuple[tuple[tuple[int, ...], str], ...]
"""Shape and dtype of each array that a kernel is called with."""


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
    """A kernel, or ``"file.py::name"``, with these declared fields; None keeps its own, and rules are added
    to its own. The file is imported here if a field is given. Raises UsageError and KernelFileError.
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
    if declared.get("where") and isinstance(held, KernelDeclaration):
        rules = (*list_rules(held.where), *list_rules(declared["where"]))  # type: ignore[arg-type]  # rules
        declared = {**declared, "where": rules}
    made = declare_kernel(held, **declared)  # type: ignore[call-overload]  # checked there
    author = Author.of_kernel(made, ObjectStore(settings.home / "objects"))
    return FoundKernel(name=next(iter(author.kernels)), author=author)


class PrimFunc(Protocol):
    """TVM's PrimFunc, which is untyped, so that TileLang need not be imported."""

    buffer_map: Any


class LoadedKernel:
    """A compiled kernel as a function on arrays, see ``Winner.load``, with its identity."""

    __slots__ = ("_run", "arguments", "config", "name", "target")

    def __init__(
        self,
        run: Callable[..., object],
        name: str,
        target: str,
        arguments: Mapping[str, Value] | None = None,
        config: Mapping[str, Value] | None = None,
    ) -> None:
        self._run = run
        self.name = name
        self.target = target
        self.arguments = dict(arguments or {})
        self.config = dict(config or {})

    def __call__(self, *arguments: object) -> object:
        """Launch the kernel."""
        return self._run(*arguments)

    def __repr__(self) -> str:
        words = (self.name, format_config(self.arguments), format_config(self.config))
        return f"<kernel {' '.join(filter(None, words))}, target {self.target}>"


@overload
def compile(  # noqa: A001 - see below
    kernel: str | Callable[..., object], **options: Unpack[CompileOptions]
) -> CompileResult: ...


@overload
def compile(  # noqa: A001 - see below
    kernel: PrimFunc, **options: Unpack[CompileOptions]
) -> LoadedKernel: ...


@takes(CompileOptions)
def compile(  # noqa: A001 - the field's own word, always used as tileyard.compile
    kernel: object, **options: Unpack[CompileOptions]
) -> LoadedKernel | CompileResult:
    """Build the configs of a kernel without running them; or make one TileLang ``PrimFunc`` a
    function on arrays.

    A kernel is given as in ``tileyard.tune``; the result has the outcome of each config's build.

    A PrimFunc comes from ``@T.prim_func`` or ``jit_function.get_tir(...)``. It becomes a function
    of the tensors in parameter order: NumPy arrays or torch CPU tensors, or arrays on the GPU; see
    ``Winner.load``. Only the options target, out_idx, device and home apply to it.

    Raises UnsupportedError, which names the line, for an operation that is not covered, and
    UsageError if there is no C compiler or no GPU driver, or for anything that is not a kernel.
    """
    given = complete(CompileOptions, options)
    settings = settings_for(given["home"])
    if type(kernel).__name__ == "PrimFunc":
        unused = [name for name in options if name not in OF_FUNCTIONS]
        refuse_unused("on a PrimFunc", dict.fromkeys(unused, True))
        return _compile_function(kernel, given, settings)
    reference = given["reference"]
    start = start_compile(
        "", "", given
    )  # before a file is imported: bad options are refused at once
    declared = {"reference": None if isinstance(reference, str) else reference}
    found = find_kernel(kernel, declared, settings)
    console = console_for(given["progress"])
    result = carry_on(console, found.answer)(
        found.place(start), settings, StudyLayout(tells_ends=False)
    )
    show(printed_on(console), print_compiled, result, settings.home, with_report=False)
    return make_shown(ShownBuilds, result)


def _compile_function(
    prim_func: object, options: CompileOptions, settings: Settings
) -> LoadedKernel:
    # A kernel that is already built needs no TileLang.
    from tileyard.frontend.bounds import require_inside
    from tileyard.frontend.tilelang import make_kernel

    device = options["device"]
    target = settle_target(options["target"], (device,) if device else (), settings)
    builder = make_builder(target, settings)
    require_inside(prim_func, {}, is_unguarded=builder.needs_tir)
    made = make_kernel(prim_func, options["out_idx"], with_tir=builder.needs_tir)
    artifact, _ = builder.build(made)
    run = make_callable(artifact, target, settings, device, made.lines)
    return LoadedKernel(run, artifact.manifest.kernel, target)


def make_builder(target: str, settings: Settings) -> LocalBuilder:
    """The builder for a target in this process. Raises UsageError if its tools are missing."""
    try:
        return LocalBuilder(target, settings)
    except ToolMissingError as error:
        raise UsageError(error.message, error.hint) from None


def find_built(trial: Trial, settings: Settings) -> Artifact:
    """The artifact that a trial ran. Raises DamagedError if it is gone."""
    artifact = find_artifact(trial.keys.build, ObjectStore(settings.home / "objects"))
    if artifact is None:
        raise DamagedError(
            f"the artifact of trial {trial.id} is gone or damaged in {settings.home}",
            "tune again to build it; `tileyard export --binaries` packs it where it was tuned",
        )
    return artifact


def load_trial(trial: Trial, settings: Settings, device: str) -> LoadedKernel:
    """The kernel of a trial as a function. Raises DamagedError if its artifact is gone."""
    artifact = find_built(trial, settings)
    record = find_run(ObjectStore(settings.home / "objects"), trial.keys.run)
    lines, rule = (record.entry.lines, record.entry.rule) if record is not None else ({}, None)
    run = guard(make_callable(artifact, trial.target, settings, device, lines), rule)
    return LoadedKernel(run, trial.kernel, trial.target, trial.arguments, trial.config)


def make_callable(
    artifact: Artifact,
    target: str,
    settings: Settings,
    device: str,
    lines: Mapping[int, SourceLine],
) -> Callable[..., object]:
    """An artifact as a function on arrays, loaded on the device of this name, or the first of its class."""
    name = device or f"{find_needs(target).device_class}:0"
    on = parse_device(name, settings)
    require_fit(target, on)
    loaded = make_target(target, settings.plugins).load(artifact, on)
    if isinstance(loaded, KnowsLines):
        loaded.know_lines(lines)
    return loaded.as_callable()


def infer_arguments(name: str, known: Sequence[Choice], shapes: Shapes) -> dict[str, Value]:
    """The arguments for arrays of these shapes: each the size or dtype that equals it in all known choices,
    or else its common value in all. Raises UsageError naming an argument that is neither.
    """
    examples = [
        (choice.arguments, shapes_like(choice.tensors)[0])
        for choice in known
        if len(shapes_like(choice.tensors)[0]) == len(shapes)
    ]
    if not examples:
        why = "it was tuned for other arrays" if known else "nothing was tuned"
        raise UsageError(
            f"the arguments of {name} for {describe_shapes(shapes)} cannot be inferred, since {why}",
            "tune it, or give arguments=",
        )
    wanted = _facts_of(shapes)
    found: dict[str, Value] = {}
    for argument in examples[0][0]:
        values = [arguments[argument] for arguments, _ in examples]
        facts = [_facts_of(own) for _, own in examples]
        places = [
            place
            for place in wanted
            if all(
                _is_same(one.get(place), value) for one, value in zip(facts, values, strict=True)
            )
        ]
        answers = {wanted[place] for place in places} or set(values)
        if len(answers) != 1:
            raise UsageError(
                f"{argument} of {name} cannot be told from {describe_shapes(shapes)}",
                "give arguments=",
            )
        found[argument] = answers.pop()
    return found


def _is_same(fact: Value | None, value: Value) -> bool:
    """Whether a size or dtype equals this argument: True does not equal a size of 1."""
    return type(fact) is type(value) and fact == value


def _facts_of(shapes: Shapes) -> dict[tuple[int, int], Value]:
    """The size of each dimension by array and dimension, and the dtype of each array as dimension -1."""
    facts: dict[tuple[int, int], Value] = {}
    for number, (shape, dtype) in enumerate(shapes):
        facts |= {(number, dimension): size for dimension, size in enumerate(shape)}
        facts[number, -1] = dtype
    return facts


def find_misfit(name: str, known: Iterable[Choice], shapes: Shapes) -> str:
    """How arrays differ in number or dtype from those of all known choices; empty if only their sizes do."""
    tensors = [choice.tensors for choice in known]
    fitting = [own for each in tensors for own in shapes_like(each) if len(own) == len(shapes)]
    if tensors and not fitting:
        names = [tensor.name for tensor in tensors[0] if tensor.role != "out"]
        takes = f"{count_of(len(names), 'input array')} ({', '.join(names)})"
        return f"{name} takes {takes}, not {count_of(len(shapes), 'array')}"
    for number, (_, dtype) in enumerate(shapes):
        tuned = sorted({own[number][1] for own in fitting})
        if tuned and dtype not in tuned:
            return f"array {number} is {dtype}, but {name} was tuned for {' and '.join(tuned)}"
    return ""


def shapes_like(tensors: Sequence[TensorSpec]) -> tuple[Shapes, Shapes]:
    """The two ways in which a kernel is called: with its inputs alone, and with all its tensors."""
    shapes = [((tuple(one.shape), array_name(one.dtype)), one.role) for one in tensors]
    return (
        tuple(shape for shape, role in shapes if role != "out"),
        tuple(shape for shape, _ in shapes),
    )


def list_shapes(arguments: Sequence[Any]) -> Shapes:
    """The shapes and dtypes of the arrays among the arguments; numbers have none."""
    return tuple(
        (tuple(one.shape), str(one.dtype).removeprefix("torch."))
        for one in arguments
        if hasattr(one, "shape")
    )


def describe_shapes(shapes: Shapes) -> str:
    """The shapes as text for messages: ``float32[4, 512]``."""
    texts = [f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype in shapes]
    return ", ".join(texts) or show_value(())
