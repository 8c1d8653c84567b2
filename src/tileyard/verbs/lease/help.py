"""The text of ``tileyard lease --help``, and the options that it lists. Light to import."""

import re

from tileyard.show.defaults import Kind, Known

HELP = """\
Usage: tileyard lease [OPTIONS] -- COMMAND [ARGS]...

Wait for a device, run a command while holding it, and release it only once
the command's whole process tree is gone. The command finds its device in
TILEYARD_DEVICES (cuda:1), in CUDA_VISIBLE_DEVICES or the variable of its
class, which hides all others, and in TASK_DEVICE (0, the first of those left).

  --devices ID           auto (default), a class such as cuda, or a device such
                         as cuda:1, cpu or cpu:cores=0-3; again for more
  --count N              number of devices, all of them or none [1]
  --priority N           higher ones come first; one step weighs as much as a
                         minute of waiting [0]
  --queue-limit TIME     wait no longer than this for a device: 30m, 90s, ...;
                         a number without a unit is seconds, 0 does not wait
  --run-limit TIME       end a command that runs longer
  --status-file FILE     write the result here as JSON
  -h, --help             show this

Exit status: the command's own, 128+n if it died of signal n. For itself:
2 bad usage, 69 no such or sick device, 75 no device in time: the command was
not started, 124 the command ran too long, 126 and 127 it cannot be run.
"""
KINDS: dict[str, Kind] = {"ID": "list", "N": "whole"}
"""The kinds of values by their metavars in the text; any other is a text."""
OPTIONS = {
    name: Known(
        name=name.replace("-", "_"),
        flags=(f"--{name}",),
        kind=KINDS.get(metavar, "text"),
        metavar=metavar,
    )
    for name, metavar in re.findall(r"(?m)^  --([a-z-]+) ([A-Z]+)", HELP)
}


def describe() -> None:
    """Print it."""
    print(HELP, end="")
