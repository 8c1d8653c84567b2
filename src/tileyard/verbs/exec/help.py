"""The text of ``tileyard exec --help``, separate from the imports that the command needs to run."""

from tileyard.show.defaults import Known

FORMS = ("plain", "json", "none")
OPTIONS = {
    one.key: one
    for one in (
        Known(name="tally", flags=("--tally",), kind="text", choices=FORMS, metavar="FORM"),
        Known(
            name="check_sync",
            flags=("--check-sync",),
            negations=("--no-check-sync",),
            kind="switch",
        ),
    )
}
HELP = """\
Usage: tileyard exec [OPTIONS] SCRIPT.py [ARGS]...
       tileyard exec [OPTIONS] -m MODULE [ARGS]...

Run a Python script that uses TileLang on the CPU: its kernels are compiled
for the target cpu, and its "cuda" tensors are kept in the host's memory. Its
prints, exit status and tracebacks stay its own. Times that it takes are
those of this CPU. TileLang must be installed, also for scripts that do not
import it.

  --tally FORM           a line on stderr about what was compiled when the script
                         has ended: plain (default), json, or none
  --check-sync           check each kernel that it compiles for races, undefined
                         accesses and wrong synchronization; mistakes go to stderr.
                         By default this is done after the script, for a second
                         per kernel, and mistakes are notes; --no-check-sync: not
  -m MODULE              run a module instead, as python -m does
  -h, --help             show this

Exit status: the script's own; 2 if there is no such script or no TileLang; with
--check-sync 1 instead of 0 if there were mistakes.
"""


def describe() -> None:
    """Print it."""
    print(HELP, end="")
