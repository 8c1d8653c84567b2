"""The author: contains a user's code and answers questions about it, in a worker or in the Python API."""

import contextlib
import gc
import io
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, assert_never

import msgspec

from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.errors import (
    InvalidProgramError,
    KernelFileError,
    TileyardError,
    UnsupportedError,
    UsageError,
    UserCodeError,
)
from tileyard.base.model import Diagnostic, Elaborated, Kernel, Outcome, SourceLine
from tileyard.base.wording import find_similar
from tileyard.frontend.constraints import Constraint
from tileyard.frontend.discover import find_declared, find_kernel, find_kernels, import_file
from tileyard.frontend.found import Found, lower_config, probe
from tileyard.frontend.reads import WATCH, Recorder, find_working_folder
from tileyard.ir.specs import count_gemm_flops, scalar_params, tensor_specs
from tileyard.ir.walk import has_order
from tileyard.processes.wire import Channel
from tileyard.workers.golden import GoldenMaker
from tileyard.workers.protocol import (
    Accepted,
    Answered,
    AuthorReply,
    AuthorRequest,
    CheckConfigs,
    CheckSync,
    CountWork,
    DescribeKernels,
    ElaborateConfig,
    ElaboratedConfig,
    ExpandSpace,
    Failed,
    FileImported,
    FindFailure,
    Kernels,
    LookInside,
    MakeGolden,
    ShowPasses,
    Space,
    Spent,
    TraceBlock,
    WorkCounted,
)

if TYPE_CHECKING:
    from tileyard.workers.failures import FailureFinder

Answer = Callable[[AuthorRequest], AuthorReply]

IMPORT_THRESHOLDS = (100_000, 50, 100)
"""Garbage collection thresholds during imports, which make a million lasting objects: saves a sixth."""


class Author:
    """Answers questions about ``kernels``, references of ``namespace``. ``rework`` cuts needless parts."""

    def __init__(
        self,
        kernels: Mapping[str, Found],
        objects: ObjectStore,
        namespace: Mapping[str, object] | None = None,
        rework: Callable[[Kernel], Kernel] = lambda kernel: kernel,
    ) -> None:
        self.kernels = kernels
        self._rework = rework
        self._objects = objects
        self._namespace = namespace or {}
        self._goldens: dict[str, AuthorReply | UserCodeError] = {}
        self._failures: FailureFinder | None = None

    @classmethod
    def of_file(cls, file: Path, objects: ObjectStore) -> Self:
        """Import a kernel file and return its author. Raises KernelFileError."""
        with WATCH.importing():
            module = import_file(file)
        return cls(find_kernels(module), objects, vars(module))

    @classmethod
    def of_kernel(cls, kernel: Callable[..., object], objects: ObjectStore) -> Self:
        """The author of one kernel that lives in this process. Raises UsageError if it is not a kernel."""
        found = find_declared(kernel)
        namespace = getattr(found.recipe.function, "__globals__", {})
        return cls({found.name: found}, objects, namespace)

    def answer(self, request: AuthorRequest) -> AuthorReply:
        """Answer one question; its log has the user code's output. Errors of code or question: Failed."""
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                reply = self._answer(request)
        except (TileyardError, MemoryError) as error:
            failed = describe_failure(error, request)
            return _with_log(failed, printed.getvalue() + failed.log)
        return _with_log(reply, printed.getvalue())

    def _answer(self, request: AuthorRequest) -> AuthorReply:
        match request:
            case DescribeKernels():
                return Kernels(kernels=tuple(found.describe() for found in self.kernels.values()))
            case ExpandSpace(kernel=name, functions=functions):
                for what, function in functions.items():
                    self._find_function(what, function)
                return self._expand(find_kernel(self.kernels, name), request)
            case CheckConfigs(kernel=name):
                return _check_configs(find_kernel(self.kernels, name), request)
            case CountWork(kernel=name):
                return _count_work(find_kernel(self.kernels, name), request)
            case ElaborateConfig(kernel=name):
                return self._elaborate(find_kernel(self.kernels, name), request)
            case MakeGolden(kernel=name):
                return self._make_golden(find_kernel(self.kernels, name), request)
            case CheckSync() | TraceBlock() | ShowPasses() | FindFailure() | LookInside():
                return self._look_into(find_kernel(self.kernels, request.kernel), request)
            case _:
                assert_never(request)

    def _look_into(
        self,
        found: Found,
        request: CheckSync | TraceBlock | ShowPasses | FindFailure | LookInside,
    ) -> AuthorReply:
        """Answer the rare questions, whose modules take a third of the time to load that all others take."""
        match request:
            case CheckSync():
                from tileyard.workers.sync_sizes import check_sizes

                own = self._with_functions(found, request.reference, request.make_inputs)
                try:
                    return check_sizes(own, request, self._objects)
                except TileyardError:
                    raise
                except Exception as error:
                    if not request.is_unasked:
                        raise
                    return Failed(message=f"the check failed: {error!r}")
            case TraceBlock():
                from tileyard.workers.look_inside import trace_block

                return trace_block(found, request)
            case ShowPasses():
                from tileyard.workers.pass_steps import show_passes

                return show_passes(found, request, self._objects)
            case LookInside():
                from tileyard.workers.look_inside import look_inside

                own = self._with_functions(found, request.reference, request.make_inputs)
                return look_inside(own, request, self._objects)
            case FindFailure():
                if self._failures is None:
                    from tileyard.workers.failures import FailureFinder

                    self._failures = FailureFinder(self._objects)
                return self._failures.find(found, request)

    def _expand(self, found: Found, request: ExpandSpace) -> Space:
        arguments = request.arguments
        expansion = found.expand(arguments)
        space = Space(
            axes=expansion.axes,
            configs=expansion.configs,
            constraints=tuple(rule.text for rule in found.rules if isinstance(rule, Constraint)),
            conditions=expansion.conditions,
            asks_where=found.asks_where,
        )
        if not request.with_flops:
            return space
        flops = found.count_flops(arguments)
        program = probe(found, arguments, expansion)
        if program is not None and flops == 0:
            flops = count_gemm_flops(program.signature, program.integers)
        return msgspec.structs.replace(space, flops=flops)

    def _elaborate(self, found: Found, request: ElaborateConfig) -> ElaboratedConfig:
        pipeline = found.parameters.pipeline_of(request.config, request.pipeline)
        if pipeline:
            from tileyard.passes.pipeline import choose_pipeline

            asked, pipeline = pipeline, choose_pipeline(pipeline, request.target)
            if pipeline and not request.with_tir:
                raise UsageError(f"{request.target} has no pipelines, so it cannot heed {asked}")
        lowered = lower_config(
            found,
            request.arguments,
            request.config,
            with_tir=request.with_tir,
            pipeline=pipeline,
        )
        signature, numbers = lowered.signature, lowered.numbers
        is_asynchronous = lowered.lowered is not None and has_order(lowered.lowered.written)
        return ElaboratedConfig(
            elaborated=Elaborated(
                kernel=self._rework(lowered.kernel),
                tir=lowered.tir,
                is_asynchronous=is_asynchronous,
                lines=lowered.lines,
                rule=lowered.rule,
                specs=tensor_specs(signature, lowered.integers),
                scalars=tuple(numbers[var.name] for var in scalar_params(signature)),
                source=lowered.source,
                notes=lowered.notes,
            )
        )

    def _make_golden(self, found: Found, request: MakeGolden) -> AuthorReply:
        """Make a golden result once per process, even if it has no identity or fails."""
        key = canonical_json(request)
        known = self._goldens.get(key)
        if isinstance(known, UserCodeError):
            raise known
        if known is None:
            found = self._with_functions(found, request.reference, request.make_inputs)
            function = found.recipe.reference
            maker = GoldenMaker(
                found=found, function=function, request=request, objects=self._objects
            )
            try:
                known = self._goldens[key] = maker.make()
            except UserCodeError as error:
                self._goldens[key] = error
                raise
        return known

    def _with_functions(self, found: Found, reference: str, make_inputs: str) -> Found:
        """A kernel with named functions of the file in place of its own. Raises UsageError."""
        if not (reference or make_inputs):
            return found
        recipe = found.recipe
        if reference:
            recipe = replace(recipe, reference=self._find_function("reference", reference))
        if make_inputs:
            recipe = replace(recipe, inputs=self._find_function("inputs", make_inputs))
        return Found(found.name, recipe)

    def _find_function(self, use: str, name: str) -> Callable[..., object]:
        function = self._namespace.get(name)
        if not callable(function):
            what = "is not callable" if name in self._namespace else "is not in the kernel's file"
            near = find_similar(
                name, [key for key, value in self._namespace.items() if callable(value)]
            )
            raise UsageError(f"{use} {name!r} {what}", f"did you mean {near}?" if near else "")
        return function


def _check_configs(found: Found, request: CheckConfigs) -> Accepted:
    arguments, configs = request.arguments, request.configs
    accepted = tuple(found.accepts(arguments, config) for config in configs)
    refused = [config for config, is_fine in zip(configs, accepted, strict=True) if not is_fine]
    refusal = found.describe_refusal(arguments, refused[0]).message if refused else ""
    return Accepted(accepted=accepted, refusal=refusal)


def _count_work(found: Found, request: CountWork) -> WorkCounted:
    from tileyard.ir.work import count_work

    try:
        made = lower_config(found, request.arguments, request.config)
    except TileyardError:  # the config's trial will say why
        return WorkCounted(work={})
    return WorkCounted(work=count_work(made.signature, made.integers))


# ---- failures ---------------------------------------------------------------------------------


def describe_failure(error: TileyardError | MemoryError, request: AuthorRequest) -> Failed:
    """The answer that describes an error to the asking process."""
    elaborating = isinstance(request, ElaborateConfig)
    match error:
        case MemoryError():
            message = f"out of memory: {error}" if str(error) else "out of memory"
            return Failed(message=message, outcome=Outcome.OUT_OF_MEMORY)
        case UserCodeError(summary=summary, file=file, line=line, trace=trace):
            where = SourceLine(file=file, line=line) if file else None
            return Failed(
                message=str(error),
                outcome=Outcome.COMPILE_ERROR if elaborating else Outcome.RUNTIME_ERROR,
                diagnostic=Diagnostic(message=summary or error.message, where=where),
                usage=not isinstance(request, (ElaborateConfig, MakeGolden)),
                log=trace,
            )
        case UnsupportedError(operation=operation, file=file, line=line):
            where = SourceLine(file=file, line=line) if file else None
            return Failed(
                message=str(error),
                outcome=Outcome.COMPILE_ERROR,
                diagnostic=Diagnostic(message=str(error), operation=operation, where=where),
            )
        case InvalidProgramError():
            return Failed(
                message=str(error),
                outcome=Outcome.COMPILE_ERROR,
                diagnostic=Diagnostic(message=str(error)),
            )
        case UsageError() | KernelFileError():
            trace = error.trace if isinstance(error, KernelFileError) else ""
            return Failed(message=str(error), usage=True, log=trace)
        case _:
            return Failed(message=str(error), outcome=Outcome.INFRA_ERROR)


def _with_log(reply: AuthorReply, log: str) -> AuthorReply:
    if isinstance(reply, ElaboratedConfig | Failed):
        return msgspec.structs.replace(reply, log=log)
    return reply


# ---- the worker ---------------------------------------------------------------------------------


def main(home: str, file: str) -> None:
    """Import a file, then answer questions about it until the engine closes the channel."""
    imports_s, began_s = time.process_time(), time.monotonic()
    with Channel.serving() as channel:
        thresholds = gc.get_threshold()
        gc.set_threshold(*IMPORT_THRESHOLDS)
        sys.path[:0] = find_working_folder(os.environ)
        recorder = Recorder(os.environ, apart=(Path(home),))
        recorder.begin()
        objects = ObjectStore(Path(home) / "objects")
        answer: Answer
        try:
            answer = Author.of_file(Path(file), objects).answer
        except (TileyardError, MemoryError) as error:
            answer = partial(describe_failure, error)
        gc.freeze()
        gc.set_threshold(*thresholds)
        start_s = imports_s + time.monotonic() - began_s
        channel.send(FileImported())
        while (request := channel.receive(AuthorRequest)) is not None:
            asked_s, used_s = time.monotonic(), time.process_time()
            reply = _serve(answer, request)
            spent = Spent(
                seconds=time.monotonic() - asked_s,
                cpu_s=time.process_time() - used_s,
                start_s=start_s,
                peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            )
            channel.send(Answered(reply=reply, spent=spent, footprint=recorder.news()))


def _serve(answer: Answer, request: AuthorRequest) -> AuthorReply:
    try:
        return answer(request)
    except Exception as error:  # noqa: BLE001 - a worker's entry: a bug of ours ends one case only
        return Failed(
            message=f"tileyard failed: {type(error).__name__}: {error}",
            outcome=Outcome.INFRA_ERROR,
            log=traceback.format_exc(),
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
