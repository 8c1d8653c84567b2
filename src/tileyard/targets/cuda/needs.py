"""The needs of the target ``cuda``, and what it shows."""

from tileyard.targets.needs import Needs

NEEDS = Needs(
    device_class="cuda",
    is_timed_by_policy=True,
    takes_pipelines=True,
    emits={"cuda": "kernel.cu", "tilelang": "kernel.py"},
    has_launch_record=True,
    fit="tileyard.targets.cuda.fitting:require_fit",
    native="tileyard.targets.cuda.fitting:native_architecture",
)
