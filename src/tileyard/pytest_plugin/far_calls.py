"""The part of a test that holds a device, called elsewhere: both ends of such a call. Arguments are
copied; changes in arrays and flat containers are repeated here. If that fails, the test runs whole.
"""

import contextlib
import importlib
import importlib.util
import os
import pickle
import secrets
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import msgspec

from tileyard.base.model import Outcome
from tileyard.base.modes import make_folder, open_file
from tileyard.pytest_plugin.devices import refuse_count
from tileyard.pytest_plugin.far_records import (
    FarCall,
    FarCallWanted,
    FarDone,
    FarGiven,
    FarReply,
    NotSeparable,
    read_answer,
    write_answer,
)
from tileyard.pytest_plugin.forked import Teller
from tileyard.pytest_plugin.separating import CutTest, NotSeparableError, cut

P = ParamSpec("P")
R = TypeVar("R")
REPLY_BYTES: Final = 1 << 14
"""More bytes than any reply has, and fewer than a pipe takes at once."""
MOST_CALLS: Final = 3
"""Maximum number of times that a test may hold a device in parts: each time is a task."""
OURS: Final = "/tileyard/pytest_plugin/"
"""Part of the path of each frame's file that belongs to this room."""
RESULT: Final = "result"
ATOMS: Final = (int, float, complex, str, bytes, bool, type(None))
PYTEST_SETS: Final = ("PYTEST_CURRENT_TEST", "OMP_NUM_THREADS", "TILEYARD_PYTEST_THREADS")


class FarDeathError(Exception):
    """The process of a call died, ran past its limit, or was lost with its task."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


# ---- in the test's own process -------------------------------------------------------------------


class FarDevice:
    """The ``tile_device`` of a test whose devices are elsewhere."""

    def __init__(
        self, test: CutTest, name: str, limit_s: float, folder: Path, teller: Teller
    ) -> None:
        self._test = test
        self._name = name
        self._limit_s = limit_s
        self._folder = folder
        self._teller = teller
        self._calls = 0
        self._environment = _environment()
        test.apply()

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function on a device, and return its result."""
        __tracebackhide__ = True
        given = FarGiven(function=function, args=args, values=kwargs)
        done = self._ask(given, _name_all(given))
        return done.values[RESULT]  # type: ignore[no-any-return]  # as the function has it

    def block(
        self, number: int, values: Mapping[str, object], count: int | None = None
    ) -> dict[str, Any]:
        """Run a block of the test with its variables; returns those that it uses or sets. Raises
        UsageError for an invalid ``count`` of devices.
        """
        __tracebackhide__ = True
        refuse_count(count)
        values = self._test.pick(number, values)
        given = FarGiven(function=self._test.function, values=values, block=number, count=count)
        return self._ask(given, values).values

    def _ask(self, given: FarGiven, values: Mapping[str, object]) -> FarDone:
        __tracebackhide__ = True
        if _environment() != self._environment:
            self._give_up("it has changed its environment or working directory", given.count)
        self._calls += 1
        if self._calls > MOST_CALLS:
            self._give_up(f"it holds a device more than {MOST_CALLS} times", given.count)
        stem = self._folder / secrets.token_hex(8)
        make_folder(stem.parent)
        try:
            write_answer(stem.with_suffix(".given"), given)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._give_up(f"what its block is given cannot be sent: {error}", given.count)
        functions = (given.function, self._test.function)
        call = FarCall(
            name=f"{self._name}#{self._calls}",
            limit_s=self._limit_s,
            modules={
                f.__module__: f.__code__.co_filename for f in functions if hasattr(f, "__code__")
            },
            given=str(stem.with_suffix(".given")),
            answer=str(stem.with_suffix(".done")),
            devices=given.count or 1,
        )
        pipe = stem.with_suffix(".pipe")
        os.mkfifo(pipe)
        replies = os.open(pipe, os.O_RDWR)
        self._teller.tell(FarCallWanted(call=call, pipe=str(pipe)))
        reply = msgspec.json.decode(os.read(replies, REPLY_BYTES), type=FarReply)
        os.close(replies)
        for stream, path in zip((sys.stdout, sys.stderr), _logs_of(call), strict=True):
            if path.exists():
                stream.write(path.read_text(encoding="utf-8", errors="replace"))
        try:
            if not reply.digest:
                raise FarDeathError(reply.outcome, reply.message)
            done = read_answer(call.answer, reply.digest, FarDone)
        except (pickle.UnpicklingError, ImportError, TypeError, AttributeError) as error:
            self._give_up(f"what its block returns cannot be read: {error}", given.count)
        finally:
            for path in stem.parent.glob(f"{stem.name}.*"):
                path.unlink()
        if done.refused:
            self._give_up(done.refused, given.count)
        for name, there in done.changed.items():
            if not take_over(values[name], there):
                changed = f"its block changes {name}, a {type(there).__name__}, in place"
                self._give_up(changed, given.count)
        if done.error is not None:
            where = "Traceback on the queue's device (most recent call last):"
            done.error.add_note(f"{where}\n{done.trace}")
            raise done.error
        return done

    def __call__(self, *, count: int | None = None) -> NoReturn:
        """Only blocks that were cut out can be held."""
        __tracebackhide__ = True
        refuse_count(count)
        reason = "it, or a fixture, holds a device in a way that its source does not show"
        self._give_up(reason, count)

    def _give_up(self, reason: str, count: int | None) -> NoReturn:
        self._teller.tell(NotSeparable(reason=reason, devices=count or 1))
        os._exit(0)  # it is run whole, from its beginning


def _name_all(given: FarGiven) -> dict[str, Any]:
    return {**{str(place): value for place, value in enumerate(given.args)}, **given.values}


def _environment() -> tuple[str, dict[str, str]]:
    """The directory and variables of this process when its test began, for the far side."""
    return os.getcwd(), {k: text for k, text in os.environ.items() if k not in PYTEST_SETS}  # noqa: PTH109


def take_over(here: Any, there: Any) -> bool:  # noqa: ANN401 - the user's
    """Change a value as its copy was changed elsewhere; False if that is not possible."""
    if type(here) is not type(there):
        return False
    if type(here).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(here, "shape"):
        if (here.shape, here.dtype) != (there.shape, there.dtype):
            return False
        if hasattr(here, "copy_"):
            here.data.copy_(there.data)
        else:
            here[...] = there
        return True
    if isinstance(here, dict):
        flat = all(isinstance(part, ATOMS) for pair in there.items() for part in pair)
    else:
        flat = isinstance(here, list | set) and all(isinstance(part, ATOMS) for part in there)
    if not flat:
        return False
    if isinstance(here, list):
        here[:] = there
    else:
        here.clear()
        here.update(there)
    return True


# ---- on the far side --------------------------------------------------------------------------------


def carry_out(call: FarCall, held: tuple[object, ...]) -> str:
    """Make a call that holds these devices and write down its result; returns the digest of that."""
    try:
        import_modules(call)
        given = pickle.loads(Path(call.given).read_bytes())
        with _captured(call):
            done = _call(given, held if given.count else held[0])
    except Exception as error:  # noqa: BLE001 - a worker's entry
        done = FarDone(refused=f"its block cannot be made ready elsewhere: {error!r}")
    try:
        return write_answer(Path(call.answer), done)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        refused = FarDone(refused=f"what its block returns cannot be sent: {error}")
        return write_answer(Path(call.answer), refused)


def import_modules(call: FarCall) -> None:
    """Import the modules that a call needs before it is read."""
    for name, file in call.modules.items():
        _import(name, file)


def _call(given: FarGiven, held: object) -> FarDone:
    values = _name_all(given)
    before = {name: pickle.dumps(value) for name, value in values.items()}
    error: BaseException | None = None
    trace = ""
    result: dict[str, Any] = {}
    try:
        if given.block is None:
            result = {RESULT: given.function(*given.args, **given.values)}
        else:
            left = cut(given.function).run(given.block, given.values, held)
            result = {k: v for k, v in left.items() if k not in values or v is not values[k]}
    except NotSeparableError:
        raise
    except BaseException as raised:  # noqa: BLE001 - the test's, which gets it
        frames = traceback.extract_tb(raised.__traceback__)
        users = [frame for frame in frames if OURS not in frame.filename]
        error, trace = raised, "".join(traceback.format_list(users)).rstrip()
        error.__traceback__ = None
    changed = {name: value for name, value in values.items() if pickle.dumps(value) != before[name]}
    return FarDone(values=result, changed=changed, error=error, trace=trace)


def _logs_of(call: FarCall) -> tuple[Path, Path]:
    return Path(call.answer).with_suffix(".out"), Path(call.answer).with_suffix(".err")


@contextmanager
def _captured(call: FarCall) -> Iterator[None]:
    """Redirect all output of the block to files, which remain if it crashes."""
    streams = (sys.stdout, sys.stderr)
    kept = [os.dup(number) for number in (1, 2)]
    for number, path in enumerate(_logs_of(call), start=1):
        log = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, number)
        os.close(log)
    try:
        yield
    finally:
        for number, (stream, before) in enumerate(zip(streams, kept, strict=True), start=1):
            stream.flush()
            os.dup2(before, number)
            os.close(before)


def _import(name: str, file: str) -> None:
    """Import a module of tests under the name that it has on the near side."""
    if name in sys.modules:
        return
    with contextlib.suppress(ImportError):
        if getattr(importlib.import_module(name), "__file__", "") == file:
            return
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
