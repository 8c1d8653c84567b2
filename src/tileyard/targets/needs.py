"""What must be known of a target before it is loaded. Records here import no compiler and no NumPy.

The command line reads them each time it starts. So what takes imports is named as ``module:attribute``, and
the record is a NamedTuple, whose class is made in a sixth of the time of a dataclass.
"""

from collections.abc import Mapping
from typing import NamedTuple

PROGRAM_FILE = "program.tile"
"""The Program's text, which every artifact has beside what its target made."""


class Needs(NamedTuple):
    """What a target needs of devices and options, and what can be shown of its artifacts.

    ``device_class`` is the class of the devices that are used where none is named. Artifacts of a target
    that ``is_bound`` run on no device of a class that another target is for.

    ``loads_ahead``: artifacts can be loaded before their device is held. ``takes_level`` and
    ``takes_debug``: a CPU level, and ``debug=1``, may be given after the name. ``is_timed_by_policy``:
    launches can be timed with a flushed cache, and as graphs. ``takes_pipelines``: our pipelines of passes are for it. ``uses_all_cores``: a build starts threads of
    its own.

    ``emits`` are the texts that it generates, by the words of ``--emit``, each with its file.
    ``has_launch_record``: an artifact's details are those of ``targets.cuda.records``.

    ``fit`` names a function of the target's name and a device, which raises UsageError where artifacts do
    not run there; empty for none. ``native`` names one of a device, which gives what stands after the colon for
    it, for a target that has to be given that. ``shift`` likewise names a function of the target's name, which gives the names of
    targets that build the same code at other places in memory.
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
    has_launch_record: bool = False
    fit: str = ""
    native: str = ""
    shift: str = ""


OF_PLUGINS = Needs(is_bound=False, is_timed_by_policy=True)
"""Those of a target that a plugin adds: it runs on whatever device is named for it."""
OF_SIMULATORS = OF_PLUGINS._replace(device_class="sim")
"""Those of a plugin's target that is called ``sim``."""
