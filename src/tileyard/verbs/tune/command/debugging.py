"""Runs a kernel in gdb: writes the files that it reads, and is the process that it runs: ``python -P -m
tileyard.verbs.tune.command.debugging HOME RUN_KEY`` runs a recorded run's kernel once more, on one thread
with the same inputs, and reports whether its outputs are right.
"""

import os
import re
import shlex
import sys
from pathlib import Path

from tileyard.artifacts.arrays import get_array
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import Trial
from tileyard.base.modes import make_folder, write_file
from tileyard.devices.cpu import plain_cpu
from tileyard.show.guarding import say
from tileyard.show.words import annotate, make_visible
from tileyard.targets.base import KnowsLines
from tileyard.targets.cpu.machine import HEADER_FILE, SOURCE_FILE
from tileyard.targets.registry import make_target
from tileyard.workers.output_checks import Output, compare_outputs
from tileyard.workers.run_records import find_run

FOLDER = "debug"
_FUNCTION = re.compile(r"^static int32_t (\w+)\(void \*const \*buffers", re.MULTILINE)
COMMANDS = """# Runs {kernel} again, up to its first statement: gdb -q -x {script}
set confirm off
set breakpoint pending on
set debuginfod enabled off
set startup-with-shell off
directory {folder}
file {python}
set args {arguments}
{breaks}
run
"""


def prepare_debugging(objects: ObjectStore, trial: Trial, home: Path) -> Path | None:
    """Write gdb's commands for a trial, beside the C with the user's lines; None if it was not built."""
    artifact = find_artifact(trial.keys.build, objects) if trial.keys.build else None
    record = find_run(objects, trial.keys.run)
    if artifact is None or record is None:
        return None
    folder = home / FOLDER / trial.id
    make_folder(folder)
    source = artifact.file(SOURCE_FILE).read_text(encoding="utf-8")
    write_file(folder / SOURCE_FILE, annotate(source, record.entry.lines).encode())
    os.utime(folder / SOURCE_FILE, (0, 0))  # gdb warns of a source that is newer than the binary
    write_file(folder / HEADER_FILE, artifact.file(HEADER_FILE).read_bytes())
    script = folder / "gdb"
    arguments = ("-P", "-m", "tileyard.verbs.tune.command.debugging", str(home), trial.keys.run)
    commands = COMMANDS.format(
        kernel=trial.kernel,
        breaks="\n".join(f"break {name}" for name in _FUNCTION.findall(source)),
        script=script,
        folder=folder,
        python=sys.executable,
        arguments=shlex.join(arguments),
    )
    write_file(script, commands.encode())
    return script


def run_again(home: Path, key: str) -> str:
    """Run a recorded run once more in this process; returns the verdict on its outputs in one line. Raises
    TileyardError if the kernel fails, or is gone.
    """
    objects = ObjectStore(home / "objects")
    record = find_run(objects, key)
    artifact = find_artifact(record.entry.build, objects) if record is not None else None
    if record is None or artifact is None:
        raise UsageError(f"what ran as {key} is not in {home} any more", "run it again")
    entry, golden = record.entry, record.entry.golden
    device = plain_cpu((min(os.sched_getaffinity(0)),))
    loaded = make_target(record.case.target, {}).load(artifact, device)
    if isinstance(loaded, KnowsLines):
        loaded.know_lines(entry.lines)
    launch = loaded.bind([get_array(objects, digest) for digest in golden.inputs], entry.scalars)
    launch.run()
    names = [spec.name for spec in entry.specs if spec.role != "in"]
    wanted = (get_array(objects, digest) for digest in golden.outputs)
    outputs = map(Output, names, launch.read(), wanted)
    mismatch, message = compare_outputs(outputs, record.case.check)
    if not golden.outputs:
        return "it ran; there is no reference"
    return message if mismatch is not None else "it ran, and every output is right"


def main(home: str, key: str) -> int:
    """Run again, report the result, and return the exit status."""
    try:
        print(make_visible(run_again(Path(home), key)))
    except TileyardError as error:
        return say(str(error), error.exit_status)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
