"""What ``tileyard lease --help`` says, apart from what carrying it out has to import."""

HELP = """\
Usage: tileyard lease [OPTIONS] -- COMMAND [ARGS]...

Wait for a device, run a command while holding it, and release it only once
the command's whole process tree is gone. The command finds its device in
TASK_DEVICE, and in CUDA_VISIBLE_DEVICES or the variable of its class.

  --device NAME          auto (default), a class such as cuda, or a device such
                         as cuda:1, cpu or cpu:cores=0-3; repeatable
  --count N              how many devices, all of them or none [1]
  --priority P           higher ones come first; one step weighs as much as a
                         minute of waiting [0]
  --queue-timeout TIME   give up waiting after 30m, 90s, ...
  --max-time TIME        end the command if it runs longer
  --status-file FILE     write the result here as JSON
  -h, --help             show this

Exit status: the command's own, 128+n if it died of signal n. For itself:
2 bad usage, 69 no such or sick device, 75 no device in time, 124 the command
ran too long, 126 and 127 it cannot be run.
"""


def describe() -> None:
    """Print it."""
    print(HELP, end="")
