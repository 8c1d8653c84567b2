"""What other rooms must know of a target before it is loaded, without importing a compiler or NumPy. The
command line reads it at each start: functions that need imports are named ``module:attribute``, and the
record is a NamedTuple, which takes a sixth of a dataclass's time to create.
"""

from collections.abc import Mapping
from typing import NamedTuple

PROGRAM_FILE = "program.tile"
"""The file with the Program's text, which every artifact contains beside its target's files."""


class Needs(NamedTuple):
    """The devices and options that a target needs, and what can be shown of its artifacts.

    ``device_class`` is the default class of devices. Artifacts of a target that ``is_bound`` run on no
    device of another target's class. If it ``loads_ahead``, artifacts can be loaded before their device is
    held. ``takes_level`` and ``takes_debug``: a CPU level, and ``debug=1``, may follow the name.
    ``is_timed_by_policy``: launches can be timed with a flushed cache, and as graphs. ``takes_pipelines``:
    it accepts our pipelines of passes. ``uses_all_cores``: a build starts threads of its own.

    ``emits`` maps the words of ``--emit`` to the files of the texts that it generates. ``figures`` are those
    that its compilers report of a binary, as limits name them; None if that is not known ahead.
    ``has_launch_record``: an artifact's details are those of ``targets.cuda.records``.

    ``fit`` names a function of the target's name and a device that raises UsageError if artifacts do not run
    there; empty for none. ``native`` names one of a device that returns the text after the colon for it, if
    the target requires one; ``shift`` one of the target's name that returns the targets that build the same
    code at other places in memory. ``sanitizes`` is the option after the name for sanitized builds, whose
    times say nothing; empty for none.
    """

    device_class: str = "cpu"
    is_bound: bool = True
    loads_ahead: bool = False
    takes_level: bool = False
    takes_debug: bool = False
    is_timed_by_policy: bool = False
    takes_pipelines: bool = False
    uses_all_cores: bool = False
    emits: Mapping[str, str] = {}
    figures: tuple[str, ...] | None = ()
    has_launch_record: bool = False
    fit: str = ""
    native: str = ""
    shift: str = ""
    sanitizes: str = ""


OF_PLUGINS = Needs(is_bound=False, is_timed_by_policy=True, figures=None)
"""The needs of a plugin's target: it runs on any device that is named for it."""
OF_SIMULATORS = OF_PLUGINS._replace(device_class="sim")
"""The needs of a plugin's target called ``sim``."""
