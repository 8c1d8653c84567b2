"""The needs of the target ``cuda``, and what it shows."""

from tileyard.targets.registry import Needs

KINDS = (
    *(
        "tensor",
        "global",
        "shared",
        "local",
        "async copy",
        "float",
        "half",
        "integer",
        "conversion",
    ),
    *("move", "lanes", "constant", "predicate", "padding", "control", "sync", "uniform", "other"),
)
"""The kinds of instructions: see ``sass``, which takes time to import."""
NEEDS = Needs(
    device_class="cuda",
    is_timed_by_policy=True,
    takes_pipelines=True,
    emits={"cuda": "kernel.cu", "tilelang": "kernel.py"},
    figures=(
        *("registers", "spills", "stack", "shared", "threads", "occupancy", "code", "instructions"),
        *(f"mix.{kind}" for kind in KINDS),
    ),
    facts=(
        *("registers", "spilled_bytes", "stack_bytes", "shared_bytes", "code_bytes"),
        "workspace_bytes",
    ),
    has_launch_record=True,
    fit="tileyard.targets.cuda.architectures:require_fit",
    units="tileyard.targets.cuda.architectures:count_multiprocessors",
    native="tileyard.targets.cuda.architectures:native_architecture",
)
