"""Finds the kernels that a test builds in its own body, by reading it: nothing of the test runs.
Calls of ``tileyard.compile``, ``tilelang.compile`` and ``@tilelang.jit`` functions, also in helpers, are
found if they depend only on module, parameters and plain assignments; others compile while the test runs.
"""

import ast
import asyncio
import builtins
import contextlib
import inspect
import linecache
import os
import pickle
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import msgspec

from tileyard.artifacts.folders import KeptFolder, open_kept
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import BuildKey, Elaborated, Kernel, Outcome
from tileyard.base.modes import make_folder, write_file
from tileyard.frontend.blame import blame_user, call_by_name, is_users
from tileyard.frontend.no_device import assume_target
from tileyard.ir.printer import print_program
from tileyard.pytest_plugin.copies import Copies, describe_death, quote_output
from tileyard.pytest_plugin.far_records import Answered, BodyStep, FunctionStep, StepResult
from tileyard.pytest_plugin.forked import Forked, Teller, follow, make_lane, print_to, yield_cores
from tileyard.pytest_plugin.identifying import (
    Identity,
    StepReader,
    describe_change,
    doubt,
    note_identity,
)
from tileyard.pytest_plugin.tilelang_jit import (
    Reading,
    UnknownNameError,
    find_tilelang_compile,
    keep_factories,
)
from tileyard.workers.protocol import Failed

MAX_DEPTH = 4
"""Maximum number of calls from a test to a compilation."""
Ready = tuple[StepResult, Elaborated | None]
"""A compilation in a test's body: the result known so far, and the kernel that is left to build."""
MISSED = (UnknownNameError, TileyardError, TypeError)
"""Errors that stop the reading, which the test will report: unknown names, the user's code, arguments."""
WORDS = ("tileyard", "tilelang")
KEPT = "kept"
"""The reason of a step that was not carried out; that of others begins with ``built:``."""


@dataclass(frozen=True, kw_only=True)
class FoundCompile:
    """One call of ``tileyard.compile`` with its arguments."""

    prim_func: Any
    target: str
    out_idx: Sequence[int] | None


@dataclass(frozen=True, kw_only=True)
class FoundTileLang:
    """A kernel that ``compile`` makes TileLang put into its cache. ``factory``: of ``@tilelang.jit``."""

    compile: Callable[[], object]
    factory: object


def may_compile(function: Callable[..., object]) -> bool:
    """Whether it is worth reading: its module refers to Tileyard or TileLang, or has a kernel of theirs."""
    names = getattr(function, "__globals__", {})
    lines = linecache.getlines(str(names.get("__file__", "")))
    return any(word in line for line in lines for word in WORDS) or any(
        find_tilelang_compile(value) is not None for value in list(names.values())
    )


def hands_on_parameter(function: Callable[..., object]) -> bool:
    """Whether a fixture does nothing but return ``request.param``."""
    node = find_definition(function)
    if node is None:
        return False
    *texts, last = node.body
    return (
        isinstance(last, ast.Return)
        and last.value is not None
        and ast.unparse(last.value) == "request.param"
        and all(isinstance(text, ast.Expr) for text in texts)
    )


def find_definition(function: Callable[..., object]) -> ast.FunctionDef | None:
    """The definition of a function in its file, with the file's line numbers."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        return None
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def find_compiles(
    function: Callable[..., object], values: Mapping[str, object], missed: list[str]
) -> Iterator[FoundCompile | FoundTileLang]:
    """The compilations in a function's body, in order, given its parameters' ``values``. ``missed``
    gets calls that may compile and are not followed.
    """
    yield from _Reader(function, values, MAX_DEPTH, missed).read()


def lower(prim_func: Any, out_idx: Sequence[int] | None) -> Elaborated:  # noqa: ANN401 - TVM's
    """What ``tileyard.compile`` builds from a PrimFunc, so that it finds the build."""
    # TVM, whose import the author of a PrimFunc has paid for already.
    from tileyard.frontend.bounds import require_inside
    from tileyard.frontend.tilelang import lower_prim_func

    require_inside(prim_func, {})
    lowered = lower_prim_func(prim_func, out_idx)
    name, program = lowered.program.name, print_program(lowered.program)
    return Elaborated(kernel=Kernel(name=name, program=program), lines=lowered.lines)


def read_body(step: BodyStep, reading: Reading) -> list[Ready]:
    """Elaborate what a test compiles in its body, in a copy for it; TileLang compiles its own kernels."""
    at = time.monotonic()
    made: list[Ready] = []
    own: list[FoundTileLang] = []
    missed: list[str] = []
    with assume_target():
        for call in find_compiles(step.function, step.values, missed):
            if isinstance(call, FoundTileLang):
                own.append(call)
                continue
            if (
                type(call.prim_func).__name__ != "PrimFunc"
            ):  # a kernel whose configs it builds itself
                continue
            with contextlib.suppress(
                TileyardError
            ):  # the test itself will report it, or expects it
                elaborated = lower(call.prim_func, call.out_idx)
                seconds = time.monotonic() - at
                name = f"{step.id}:{len(made)}"
                made.append(
                    (StepResult(step=name, target=call.target, at=at, seconds=seconds), elaborated)
                )
    # For the target that the test will have, not for one that is assumed.
    with keep_factories(call.factory for call in own):
        for number, call in enumerate(own):
            name = f"{step.id}:tilelang:{number}"
            made.append((_compile_by_tilelang(call, name, reading), None))
    partial = bool(missed)
    return [
        (msgspec.structs.replace(result, is_partial=partial), elaborated)
        for result, elaborated in made
    ]


def _compile_by_tilelang(call: FoundTileLang, name: str, reading: Reading) -> StepResult:
    """Have TileLang compile a kernel. The key of a failure is kept: the test will report why."""
    at = time.monotonic()
    before = len(reading.compiled)
    message = ""
    try:
        with blame_user(), reading.allow_compiling():
            call.compile()
    except TileyardError as error:
        message = str(error)
    keys = reading.compiled[before:]
    return StepResult(
        step=name,
        outcome=Outcome.COMPILE_ERROR if message else Outcome.PASSED,
        message=message,
        at=at,
        seconds=time.monotonic() - at,
        reused=not keys and not message,
        build=BuildKey(keys[-1] if keys else ""),
        target="tilelang",
    )


class _Reader:
    """Reads one function. ``_known`` contains values, and assignments that were not needed yet."""

    def __init__(
        self,
        function: Callable[..., object],
        values: Mapping[str, object],
        depth: int,
        missed: list[str],
    ) -> None:
        self._function = inspect.unwrap(function)
        self._globals: dict[str, Any] = getattr(self._function, "__globals__", {})
        self._known: dict[str, Any] = dict(values)
        self._pending: dict[str, ast.stmt | ast.expr] = {}
        self._unknown: set[str] = set()
        self._depth = depth
        self._missed = missed
        code = getattr(self._function, "__code__", None)
        self._file = code.co_filename if isinstance(code, CodeType) else ""

    def read(self) -> Iterator[FoundCompile | FoundTileLang]:
        """Everything that can be found."""
        node = find_definition(self._function)
        if node is None:
            return
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.arg not in self._known:
                self._unknown.add(argument.arg)
        yield from self._read_all(node.body)

    # ---- statements ---------------------------------------------------------------------------

    def _read_all(self, statements: Sequence[ast.stmt]) -> Iterator[FoundCompile | FoundTileLang]:
        for statement in statements:
            yield from self._read(statement)

    def _read(self, statement: ast.stmt) -> Iterator[FoundCompile | FoundTileLang]:
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                self._postpone(statement.name, statement)
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    self._postpone(alias.asname or alias.name.partition(".")[0], statement)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if (
                _are_apart(names, values)
            ):
                for target, value in zip(names, values, strict=True):
                    yield from self._read(ast.Assign(targets=[target], value=value))
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                yield from self._read_calls(value)
                self._postpone(name, value)
            case ast.If(test=test, body=body, orelse=orelse):
                yield from self._read_all(body if self._is_true(test) else orelse)
            case ast.With(items=items, body=body):
                for item in items:
                    yield from self._read_calls(item.context_expr)
                    self._forget(item)
                yield from self._read_all(body)
            case _:
                yield from self._read_calls(statement)
                self._forget(statement)

    def _postpone(self, name: str, node: ast.stmt | ast.expr) -> None:
        self._known.pop(name, None)
        self._unknown.discard(name)
        self._pending[name] = node

    def _forget(self, node: ast.AST) -> None:
        """Forget the names that a statement binds in ways that are not followed."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self._known.pop(part.id, None)
                self._pending.pop(part.id, None)
                self._unknown.add(part.id)

    def _is_true(self, test: ast.expr) -> bool:
        try:
            return bool(self._evaluate(test))
        except MISSED:
            return False

    # ---- expressions --------------------------------------------------------------------------

    def _read_calls(self, node: ast.AST) -> Iterator[FoundCompile | FoundTileLang]:
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                try:
                    yield from self._read_call(part)
                except MISSED:
                    continue

    def _read_call(self, call: ast.Call) -> Iterator[FoundCompile | FoundTileLang]:
        function = self._evaluate(call.func)
        is_compile = _is_compile(function)
        tilelangs = find_tilelang_compile(function)
        follows = isinstance(function, FunctionType) and self._depth > 1
        if not (is_compile or tilelangs or (follows and function.__globals__ is self._globals)):
            if _is_users_own(function):
                self._missed.append(ast.unparse(call))
            return
        try:
            args, named = self._evaluate_arguments(call)
        except MISSED:
            if is_compile or tilelangs:
                self._missed.append(ast.unparse(call))
            else:  # what does not depend on them is found
                yield from _Reader(function, {}, self._depth - 1, self._missed).read()
            return
        if tilelangs is not None:
            factory = getattr(tilelangs, "__self__", None)
            yield FoundTileLang(compile=partial(tilelangs, *args, **named), factory=factory)
            return
        bound = inspect.signature(function).bind(*args, **named)
        bound.apply_defaults()
        if not is_compile:
            yield from _Reader(function, bound.arguments, self._depth - 1, self._missed).read()
            return
        given = bound.arguments
        yield FoundCompile(
            prim_func=given["kernel"], target=given["target"], out_idx=given["out_idx"]
        )

    def _evaluate_arguments(self, call: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        args = [
            value
            for argument in call.args
            for value in (
                self._evaluate(argument.value)
                if isinstance(argument, ast.Starred)
                else [self._evaluate(argument)]
            )
        ]
        named = {item.arg: self._evaluate(item.value) for item in call.keywords if item.arg}
        for item in call.keywords:
            if item.arg is None:
                named |= self._evaluate(item.value)
        return args, named

    def _evaluate(self, expression: ast.expr) -> Any:  # noqa: ANN401 - the user's
        self._resolve(expression)
        with blame_user():
            code = compile(ast.Expression(expression), self._file, "eval")
            return eval(code, {**self._globals, **self._known})  # in a copy that was made for it

    def _resolve(self, node: ast.AST) -> None:
        """Make all names known that occur in it. Raises UnknownNameError."""
        own = {
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        own |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id not in own and part.id not in self._known:
                self._resolve_name(part.id)

    def _resolve_name(self, name: str) -> None:
        if name in self._unknown:
            raise UnknownNameError(name)
        if name not in self._pending:
            if name not in self._globals and not hasattr(builtins, name):
                raise UnknownNameError(name)
            return
        node = self._pending.pop(name)
        self._unknown.add(name)  # in case it depends on itself
        if isinstance(node, ast.expr):
            value = self._evaluate(node)
        else:
            self._resolve(node)
            names = {**self._globals, **self._known}
            with blame_user():
                exec(compile(ast.Module([node], []), self._file, "exec"), names)  # as above
            value = names[name]
        self._unknown.discard(name)
        self._known[name] = value


def _is_compile(function: object) -> bool:
    """Whether it is ``tileyard.compile``; then its module, which is heavy, is loaded."""
    module = sys.modules.get("tileyard.api.kernels")
    return module is not None and function is module.compile


def _is_users_own(function: object) -> bool:
    if isinstance(function, type):
        function = function.__init__  # type: ignore[misc]  # it is only looked at
    elif not isinstance(function, FunctionType | MethodType):
        function = vars(type(function)).get("__call__")
    function = getattr(function, "__func__", function)
    return (
        isinstance(function, FunctionType)
        and is_users(function.__code__.co_filename)
        and may_compile(function)
    )


def _are_apart(names: Sequence[ast.expr], values: Sequence[ast.expr]) -> bool:
    """Whether ``names = values`` can be read as one assignment after the other."""
    bound = {name.id for name in names if isinstance(name, ast.Name)}
    used = {part.id for value in values for part in ast.walk(value) if isinstance(part, ast.Name)}
    is_plain = not any(isinstance(value, ast.Starred) for value in values)
    return len(bound) == len(names) == len(values) and is_plain and not bound & used


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a function builds, and why; ``kept`` is a folder that stays, None for the run's own."""

    folder: Path
    pickled: Path
    why: str
    kept: KeptFolder | None = None


class Calling:
    """Carries out steps, ``lanes`` at a time, in the data directory ``home`` and a run's ``folder``."""

    def __init__(self, home: Path, folder: Path, copies: Copies, lanes: asyncio.Semaphore) -> None:
        self._home = home
        self._folder = folder
        self._copies = copies
        self._lanes = lanes
        self._objects = ObjectStore(home / "objects")
        self._made: dict[str, tuple[Identity, KeptFolder]] = {}

    async def run(self, steps: Sequence[FunctionStep], limit_s: float) -> list[StepResult]:
        """What became of all; to look at what one depends on may take ``limit_s``."""
        nothing = doubt("the step declares no inputs, so it is not cached")
        declaring = [step for step in steps if step.declared is not None]
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._carry_out(step, nothing))
                for step in steps
                if step.declared is None
            ]
            async for step, found in self._identify(declaring, limit_s):
                calls.append(group.create_task(self._carry_out(step, found)))
        results = {result.step: result for result in (call.result() for call in calls)}
        await self._publish([step for step in declaring if step.id in self._made], results, limit_s)
        return list(results.values())

    async def _identify(
        self, steps: Sequence[FunctionStep], limit_s: float
    ) -> AsyncIterator[tuple[FunctionStep, Identity]]:
        """What steps depend on, examined in a copy that has no state yet."""
        make_reader = cache(lambda: StepReader(self._home, os.environ))
        asked = self._copies.ask_all(steps, lambda step: make_reader().identify(step), limit_s)
        async with contextlib.aclosing(asked) as answers:
            async for step, _, reply in answers:
                yield step, doubt(reply.message) if isinstance(reply, Failed) else reply

    async def _publish(
        self, steps: Sequence[FunctionStep], results: dict[str, StepResult], limit_s: float
    ) -> None:
        """Keep results, unless what they depend on has changed since."""
        async for step, now in self._identify(steps, limit_s):
            identity, kept = self._made[step.id]
            result = results[step.id]
            if result.outcome is not Outcome.PASSED:
                continue
            problem = now.problem
            if not problem and now.key != identity.key:
                problem = "what it depends on changed while it was made"
            try:
                if not problem:
                    kept.publish()
                    note_identity(step, identity, self._objects)
            except UsageError as error:
                problem = f"what it left cannot be kept: {error.message}"
            if problem:
                why = f"{result.why}; not kept: {problem}"
                results[step.id] = msgspec.structs.replace(result, why=why)

    async def _carry_out(self, step: FunctionStep, identity: Identity) -> StepResult:
        async with self._lanes:
            at = time.monotonic()
            place = self._find_place(step, identity)
            result = StepResult(
                step=step.id,
                at=at,
                folder=str(place.folder),
                pickled=str(place.pickled),
                why=place.why,
            )
            if place.why == KEPT:
                seconds = time.monotonic() - at
                return msgspec.structs.replace(result, seconds=seconds, reused=True)
            if place.kept is not None:
                self._made[step.id] = (identity, place.kept)
            return await self._call(step, place, identity.env, result)

    def _find_place(self, step: FunctionStep, identity: Identity) -> _Place:
        why = identity.problem
        kept = open_kept(self._home, identity.key) if identity.key else None
        if identity.key:
            why = "it is being made already"
        if kept is not None and (kept.is_made or kept.clear()):
            why = describe_change(step, identity, self._objects)
            content = kept.content
            return _Place(
                folder=content / "out",
                pickled=content / "result.pickle",
                why=KEPT if kept.is_made else f"built: {why}",
                kept=kept,
            )
        own = self._folder / "built" / f"{zlib.crc32(step.id.encode()):08x}"
        return _Place(folder=own, pickled=own.with_suffix(".pickle"), why=f"built: {why}")

    async def _call(
        self, step: FunctionStep, place: _Place, env: Mapping[str, str], result: StepResult
    ) -> StepResult:
        def work(_: int, teller: Teller) -> None:
            yield_cores()
            print_to(log)
            if env:  # it has a key, which is over these
                os.environ.clear()
                os.environ.update(env)
            teller.tell(Answered(reply=_call_function(step, place)))

        make_folder(place.folder)
        log = self._folder / "built" / f"{zlib.crc32(step.id.encode()):08x}.log"
        copy = Forked(make_lane(work), 0, step.limit_s, log, goes_on=True)
        answers = [m.reply async for m in follow(copy) if isinstance(m, Answered)]
        result = msgspec.structs.replace(result, seconds=time.monotonic() - result.at)
        if not answers:
            failed = describe_death(copy, "of its compile step")
            return msgspec.structs.replace(result, outcome=failed.outcome, message=failed.message)
        if not answers[0]:
            return result
        message = "\n".join(filter(None, [answers[0], quote_output(copy)]))
        return msgspec.structs.replace(result, outcome=Outcome.COMPILE_ERROR, message=message)


def _call_function(step: FunctionStep, place: _Place) -> str:
    """In the copy: call it and keep its return value; returns why that failed, or an empty string."""
    what = getattr(step.function, "__name__", "the compile step")
    try:
        result = call_by_name(step.function, {**step.values, "out": place.folder}, what)
    except TileyardError as error:
        return f"{what} failed: {error}"
    try:
        write_file(place.pickled, pickle.dumps(result))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        return f"{what} returned what cannot be kept: {error}"
    return ""
