"""A client in place of ``ssh``: starts the agent of a host of its own, and relays as badly as it is set to.

``POOR_LINES`` has options by host, as JSON; see ``Line``.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

HEADER_BYTES = 4
CHUNK_BYTES = 8192
WAITING = 8
"""Chunks that are under way at most."""


@dataclass
class Line:
    """A line is cut after so many frames of ``orders`` or of ``answers``, once; ``lost``: as if ssh had lost
    the connection, otherwise this ends when the agent has. ``env`` is the agent's.
    """

    folder: str
    orders: int = 0
    answers: int = 0
    lost: bool = False
    bytes_per_s: float = 0.0
    delay_s: float = 0.0
    env: dict[str, str] = field(default_factory=dict)


class Direction:
    """One direction: bytes that take their time, and the frames that have begun to pass."""

    def __init__(self, line: Line, ends: tuple[BinaryIO, BinaryIO], most: int) -> None:
        self._line = line
        self._source, self._sink = ends
        self._most = most
        self._under_way: queue.Queue[tuple[float, bytes]] = queue.Queue(WAITING)
        self._buffer = bytearray()
        self.frames = self.beats = 0
        self.sent_bytes = 0

    def begin(self, ended: Callable[[], None]) -> None:
        """Relay until one end hangs up, or the line is cut; then tell so."""

        def relay() -> None:
            with contextlib.suppress(OSError, ValueError):
                self._relay()
            ended()

        for work in (self._read, relay):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        data = b"-"
        while data:
            try:
                data = os.read(self._source.fileno(), CHUNK_BYTES)
            except (OSError, ValueError):
                data = b""
            self._under_way.put((time.monotonic() + self._line.delay_s, data))

    def _relay(self) -> None:
        while True:
            due_s, data = self._under_way.get()
            if not data:
                return
            time.sleep(max(0.0, due_s - time.monotonic()))
            data, is_cut = self._count(data)
            self._sink.write(data)
            self._sink.flush()
            self.sent_bytes += len(data)
            if is_cut:
                return
            if self._line.bytes_per_s:
                time.sleep(len(data) / self._line.bytes_per_s)

    def _count(self, data: bytes) -> tuple[bytes, bool]:
        """What may pass of these bytes, and whether the line is cut then."""
        before = len(self._buffer)
        self._buffer += data
        taken = 0
        while len(self._buffer) >= HEADER_BYTES:
            size = HEADER_BYTES + int.from_bytes(self._buffer[:HEADER_BYTES], "little")
            if len(self._buffer) < size:
                break
            self.beats += size < 64 and b"beat" in self._buffer[:size]
            del self._buffer[:size]
            taken += size
            self.frames += 1
            if self.frames == self._most:
                return data[: max(0, taken - before)], True
        return data, False


def main() -> int:
    """Be ``ssh -T -o BatchMode=yes HOST COMMAND``."""
    host, command = sys.argv[-2:]
    options: dict[str, Any] = json.loads(os.environ["POOR_LINES"]).get(host, {})
    line = Line(folder=str(Path(os.environ["POOR_HOSTS"], host)), **options)
    folder = Path(line.folder)
    own = {"TILEYARD_HOME": str(folder / "home"), "TILEYARD_LOCK_DIR": str(folder / "locks")}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / "first").mkdir()
        is_first = True
    except FileExistsError:
        is_first = False
    agent = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **own, **line.env},
        bufsize=0,
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    here = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    orders = Direction(line, (here[0], agent.stdin), line.orders if is_first else 0)
    answers = Direction(line, (agent.stdout, here[1]), line.answers if is_first else 0)
    is_over = threading.Event()
    for direction in (orders, answers):
        direction.begin(is_over.set)
    is_over.wait()
    if line.lost and is_first:
        os._exit(255)
    for fd in (0, 1, agent.stdin.fileno(), agent.stdout.fileno()):
        os.close(fd)
    code = agent.wait()
    counts = {
        name: {"frames": one.frames, "beats": one.beats, "bytes": one.sent_bytes}
        for name, one in (("orders", orders), ("answers", answers))
    }
    with (folder / "passed.jsonl").open("a") as passed:
        passed.write(json.dumps(counts) + "\n")
    os._exit(code % 256)


if __name__ == "__main__":
    main()
