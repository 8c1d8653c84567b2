"""Checks the synchronization of kernels below a folder: ``python tools/check_examples.py FOLDER``.

Each kernel of each Python file is checked as ``tileyard check`` does it, with sizes that the check chooses,
and has one line: silent, findings, refused and why, or too long. Files are imported in processes of their
own, which end with the time limit.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import TileyardError
from tileyard.base.model import Value
from tileyard.verbs.check.command.checking import FIRST_GUESS
from tileyard.verbs.check.options import read_pipeline
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import open_space
from tileyard.workers.author import Author
from tileyard.workers.protocol import AnswerT, CheckSync, Failed, Question

AHEAD = ["torch", "tilelang", "tileyard.frontend.pipelined", __name__]
CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, kw_only=True)
class Line:
    """How the check of a kernel, or of a file without known kernels, ended; its message; what it left out."""

    file: str
    kernel: str
    state: str
    said: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """Asked of each file below ``folder``: ``arguments`` of kernels by FILE::KERNEL, seconds per kernel.

    After ``budget_s`` no further sizes of a kernel are begun, and after ``limit_s`` its process ends.
    """

    folder: Path
    architecture: str
    arguments: dict[str, dict[str, Value]]
    budget_s: float
    limit_s: float


def main() -> int:
    """Print a line for each kernel, and the totals; 1 where there are findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*.py", help="pattern of the files, below the folder")
    parser.add_argument("--pipeline", default="written", help="as of tileyard check")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds to begin sizes in")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per kernel")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--arguments", type=Path, help="TOML: a table of values per FILE::KERNEL")
    parser.add_argument("--json", type=Path, help="write all that was found")
    given = parser.parse_args()
    arguments = tomllib.loads(given.arguments.read_text("utf-8")) if given.arguments else {}
    files = sorted(given.folder.absolute().rglob(given.only))
    CONTEXT.set_forkserver_preload(AHEAD)
    job = Job(
        folder=given.folder.absolute(),
        architecture=read_pipeline(given.pipeline, "--pipeline"),
        arguments=arguments,
        budget_s=given.budget,
        limit_s=given.limit,
    )
    lines: list[Line] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for found in pool.map(lambda file: list(check_file(file, job)), files):
            for line in found:
                lines.append(line)
                print(f"{line.file}::{line.kernel}: {line.state}", flush=True)
                for said in line.said:
                    print(f"    {said}", flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))
    counts = Counter(line.state for line in lines)
    kernels = sum(bool(line.kernel) for line in lines)
    said = ", ".join(f"{n} {state}" for state, n in counts.most_common())
    print(f"{len(files)} files, {kernels} kernels: {said}")
    return int("findings" in counts)


def check_file(file: Path, job: Job) -> Iterator[Line]:
    """Check one kernel after the other. Behind one that takes too long, another process goes on."""
    done, known, name = 0, [""], str(file.relative_to(job.folder))
    while done < len(known):
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=serve, args=(name, job, done, theirs), daemon=True)
        process.start()
        theirs.close()
        try:
            while True:
                if not ours.poll(job.limit_s):
                    yield Line(file=name, kernel=known[done], state="too long")
                    break
                got = ours.recv()
                if isinstance(got, list):
                    known = got
                    continue
                yield got
                done += 1
                if done == len(known):
                    return
            done += 1
        except EOFError:
            yield Line(file=name, kernel=known[done], state="refused", said=("died",))
            done += 1
        finally:
            process.kill()
            process.join()


def serve(file: str, job: Job, done: int, replies: Connection) -> None:
    """Send the names of the kernels, and a line for each from number ``done`` on."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    home = tempfile.TemporaryDirectory()
    os.chdir(home.name)  # what a file writes goes there
    try:
        author = Author.of_file(job.folder / file, ObjectStore(Path(home.name) / "objects"))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a file may raise anything
        replies.send(Line(file=file, kernel="", state="not imported", said=(first_line(error),)))
        return
    names = list(author.kernels)
    if not names:
        replies.send(Line(file=file, kernel="", state="no kernel"))
        return
    replies.send(names)
    for name in names[done:]:
        replies.send(check_kernel(author, file, name, job))


def check_kernel(author: Author, file: str, name: str, job: Job) -> Line:
    """Check one kernel with the first config of its space."""
    try:
        known = job.arguments.get(f"{file}::{name}", {})
        request = TuneRequest(kernel=name, arguments=known, trials=1)
        space = asyncio.run(open_space(_Asked(author), request, guess=FIRST_GUESS))
        asked = CheckSync(
            kernel=name,
            arguments=space.arguments,
            config=space.configs[0],
            guessed=space.guessed,
            architecture=job.architecture,
            limit_s=job.budget_s,
        )
        reply = author.answer(asked)
    except TileyardError as error:
        return Line(file=file, kernel=name, state="refused", said=(first_line(error),))
    except Exception as error:  # noqa: BLE001 - the kernels that follow are checked all the same
        said = f"tileyard failed: {type(error).__name__}: {first_line(error)}"
        return Line(file=file, kernel=name, state="refused", said=(said,))
    if isinstance(reply, Failed):
        return Line(file=file, kernel=name, state="refused", said=(reply.message,))
    said = tuple(f"{one.kind}: {one.message} | {one.fix}" for one in reply.findings)
    state = "findings" if said else "silent" if reply.blocks else "not checked"
    if not reply.blocks:
        said = reply.unchecked
    return Line(file=file, kernel=name, state=state, said=said, unchecked=reply.unchecked)


class _Asked:
    """Asks an author of this process."""

    def __init__(self, author: Author) -> None:
        self._author = author

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        return self._author.answer(request)


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)


if __name__ == "__main__":
    sys.exit(main())
