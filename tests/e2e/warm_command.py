"""A program ``tileyard`` for scripts: it has the test process run the command as a copy of a warm process."""

import json
import os
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.warm_python import warm

PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({place!r})
    asked = dict(arguments=sys.argv[1:], folder=os.getcwd(), environment=dict(os.environ))
    line.sendall(json.dumps(asked).encode() + b"\\n")
    done = json.loads(line.makefile().readline())
print(done["stdout"], end="", flush=True)
print(done["stderr"], end="", flush=True, file=sys.stderr)
sys.exit(done["code"])
"""


class Answering(socketserver.StreamRequestHandler):
    """Runs one command; what it prints is printed at its end."""

    def handle(self) -> None:
        """Run it in its own environment, with the variables by which the interpreter of a copy began."""
        asked = json.loads(self.rfile.readline())
        outer = {name: text for name, text in os.environ.items() if name.startswith("PYTHON")}
        outer.pop("PYTHONPATH", None)
        environment = {**outer, **asked["environment"]}
        done = warm("tileyard").run(asked["arguments"], Path(asked["folder"]), environment)
        told = {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        self.wfile.write(json.dumps(told).encode() + b"\n")


@contextmanager
def serve_commands() -> Iterator[Path]:
    """A folder with the program, which works meanwhile."""
    with tempfile.TemporaryDirectory(prefix="tileyard-bin-") as folder:
        place = Path(folder, "asked")
        program = Path(folder, "bin", "tileyard")
        program.parent.mkdir()
        program.write_text(PROGRAM.format(python=sys.executable, place=str(place)))
        program.chmod(0o755)
        with socketserver.UnixStreamServer(os.fspath(place), Answering) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield program.parent
            finally:
                server.shutdown()
