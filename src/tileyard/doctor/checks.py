"""Which checks there are, in the order in which they are shown: add a line here."""

from tileyard.doctor.findings import Check
from tileyard.doctor.hardware import check_declarations, check_devices, check_gpus
from tileyard.doctor.leftovers import check_leftovers
from tileyard.doctor.locking import check_lock_directory
from tileyard.doctor.machine import check_compiler, check_python, check_tilelang
from tileyard.doctor.queues import check_queues
from tileyard.doctor.storage import check_home, check_objects

CHECKS: tuple[tuple[str, Check], ...] = (
    ("python", check_python),
    ("tilelang", check_tilelang),
    ("C compiler", check_compiler),
    ("home", check_home),
    ("objects", check_objects),
    ("lock directory", check_lock_directory),
    ("declared devices", check_declarations),
    ("GPUs", check_gpus),
    ("devices", check_devices),
    ("leftovers", check_leftovers),
    ("queues", check_queues),
)
"""Each with what it is about, which names it where it cannot be finished."""
