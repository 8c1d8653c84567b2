"""A verb on its way: packed by the client, unpacked, opened and carried out by the engine process."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tileyard.base.errors import blame_host
from tileyard.service.conversation import Start
from tileyard.service.verbs import ResultT, Verb

if TYPE_CHECKING:
    from tileyard.service.bench import Bench


async def carry_out(verb: Verb[ResultT], bench: "Bench") -> ResultT:
    """Open a verb, carry out its plan, return its result, as ``runs.drive``. Raises TileyardError."""
    if verb.golden_threads:
        bench.settings = msgspec.structs.replace(bench.settings, golden_threads=verb.golden_threads)
    if verb.python_limit_s:
        bench.settings = msgspec.structs.replace(bench.settings, python_limit_s=verb.python_limit_s)
    try:
        plan = await verb.settle(bench.settings).open(bench)
        from tileyard.service.runs import drive  # imports what the plan has imported by then

        return await drive(plan, bench)
    except OSError as error:
        raise (blame_host(error, bench.settings.home) or error) from error
    finally:
        await bench.close()


def pack(verb: Verb[Any]) -> Start:
    """The message for a verb."""
    kind = type(verb)
    own = kind.__module__.partition(".")[0] == __package__.partition(".")[0]
    file = "" if own else str(Path(sys.modules[kind.__module__].__file__ or "").absolute())
    return Start(
        module=kind.__module__,
        name=kind.__qualname__,
        file=file,
        fields=msgspec.msgpack.encode(verb),
    )


def unpack(start: Start) -> Verb[Any]:
    """The verb of a message; its module is imported."""
    if start.file:
        spec = importlib.util.spec_from_file_location(start.module, start.file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{start.file} is not a module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[start.module] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(start.module)
    verb: Verb[Any] = msgspec.msgpack.decode(start.fields, type=getattr(module, start.name))
    return verb
