"""Cases that a command of the suite prints, so that they are listed in one place only."""

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from tileyard.decoding import decode_json
from tileyard.processes.keeper.tree import kill_marked
from tileyard.settings import Settings
from tileyard.suite.files.places import Place
from tileyard.suite.files.steps import Env, read_step, read_text
from tileyard.suite.files.tables import ListedCaseTable, decode

LIMIT_S = 120.0
MOST_BYTES = 256 << 20
"""Most bytes that such a command may print: a suite of a million cases has less."""
CONFIRM_S = 5.0
"""How long what was killed may take to vanish."""
LOOK_S = 0.1
TAIL = 2000


def list_cases(
    raw: object, place: Place, settings: Settings, env: Env, testcase: str = ""
) -> Iterator[tuple[ListedCaseTable, Place]]:
    """Run the command that is written at a place; each line of its output is a case in JSON.

    It gets those variables of ``env`` that do not depend on a case or a step. Raises UsageError that
    says how it failed, or which of its lines is no case.
    """
    folder = place.document.folder
    values = shared_values(folder) | ({"testcase": testcase} if testcase else {})
    told = {name: text for name, text in env.items() if text.names <= values.keys()}
    step = read_step(raw, "list", place, told).fill_in(values, folder)
    argv = tuple(read_text(text, place).fill({}) for text in step.argv)
    variables = {
        **os.environ,
        **settings.environment(),
        **{name: read_text(text, place).fill({}) for name, text in step.env.items()},
    }
    cwd = Path(read_text(step.cwd, place).fill({})) if step.cwd else folder
    printed = _run(argv, variables, cwd, step.limit_s or LIMIT_S, place)
    count = 0
    for number, line in enumerate(printed.splitlines(), start=1):
        if not line.strip():
            continue
        count += 1
        at = replace(place, note=f"line {number} of what it printed")
        try:
            row = decode_json(line, object)
        except msgspec.DecodeError as error:
            at.fail(f"is no JSON: {error}: {line[:200].decode(errors='replace')!r}")
        yield decode(row, ListedCaseTable, at), at
    if not count:
        place.fail(f"printed no case: {shlex.join(argv)} in {cwd}")


def shared_values(folder: Path) -> dict[str, str]:
    """What templates of every file know: its folder, and the Python that runs Tileyard."""
    return {"suite": str(folder), "python": sys.executable}


def _run(
    argv: tuple[str, ...], env: dict[str, str], cwd: Path, limit_s: float, place: Place
) -> bytes:
    """What a program prints. Raises UsageError with code or signal, argv, folder and its last words."""
    called = f"{shlex.join(argv)} in {cwd}"
    tree = secrets.token_hex(8)
    above = env.get("TILEYARD_TREE", "")
    # Files, no pipes: what the program leaves behind could hold these open for as long as it likes.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                argv,
                env={**env, "TILEYARD_TREE": f"{above}:{tree}" if above else tree},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            place.fail(f"cannot be started ({error.strerror}): {called}")
        try:
            problem = _wait(process, (printed.fileno(), said.fileno()), limit_s)
        finally:
            _end(process, tree)
        if problem:
            place.fail(f"{problem}: {called}")
        if process.returncode:
            said.seek(max(os.fstat(said.fileno()).st_size - TAIL, 0))
            tail = said.read(TAIL).decode(errors="replace").strip()
            code = process.returncode
            ended = f"exited with {code}"
            if code < 0:
                ended = f"was ended by {signal.Signals(-code).name}"
            place.fail(
                f"{ended}: {called}" + (f"\n{tail}" if tail else "; it wrote nothing to stderr")
            )
        printed.seek(0)
        return printed.read()


def _wait(process: "subprocess.Popen[bytes]", outputs: tuple[int, ...], limit_s: float) -> str:
    """Wait until it has ended; what is wrong if it takes too long or prints too much."""
    until_s = time.monotonic() + limit_s
    while (left_s := until_s - time.monotonic()) > 0:
        if any(os.fstat(output).st_size > MOST_BYTES for output in outputs):
            return f"printed more than {MOST_BYTES >> 20} MiB"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left_s, LOOK_S))
            return ""
    return f"took longer than {limit_s:g} s"


def _end(process: "subprocess.Popen[bytes]", tree: str) -> None:
    """End the program and all that it started, also what has left its session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    until_s = time.monotonic() + CONFIRM_S
    while kill_marked(tree) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
