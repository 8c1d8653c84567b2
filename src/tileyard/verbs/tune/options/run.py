"""The options of ``run``, which are those of ``tune`` for one config."""

from pathlib import Path
from typing import Annotated, TypedDict

from tileyard.base.errors import UsageError
from tileyard.base.model import CheckPolicy
from tileyard.show.kernel_options import (
    ArgumentValues,
    BuildLimit,
    Checked,
    CheckSync,
    ConfigValues,
    CpuLevel,
    DeviceNames,
    MemoryLimit,
    PythonLimit,
    QueueLimit,
    Reference,
    RequireCheck,
    RunLimit,
    Sanitize,
    ShapeName,
    TargetName,
    check_reference,
    target_at,
)
from tileyard.show.options import Switch, complete, fill, read_options
from tileyard.verbs.tune.options.tune import StartTune, make_request


class RunOptions(TypedDict, total=False):
    """The options of ``run``."""

    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValues
    reference: Reference
    check: Checked
    require_check: RequireCheck
    check_sync: CheckSync
    target: TargetName
    cpu_arch: CpuLevel
    devices: DeviceNames
    debug: Annotated[bool, Switch("Build for gdb, and print how to step through the kernel.")]
    queue_limit: QueueLimit
    run_limit: RunLimit
    sanitize: Sanitize
    fresh: Annotated[bool, Switch("Compute the reference again, even if its result is stored.")]
    build_limit: BuildLimit
    python_limit: PythonLimit
    memory_limit: MemoryLimit


def start_run(file: Path, kernel: str, given: RunOptions) -> StartTune:
    """The verb for one config of the kernel of a file. Raises UsageError."""
    options = complete(RunOptions, given)
    values = read_options(RunOptions, options)
    target, level, debug = options["target"], options["cpu_arch"], options["debug"]
    check_reference(
        options["reference"], check=options["check"], require_check=options["require_check"]
    )
    for key, several in values["config"].items():
        if len(several) > 1:
            raise UsageError(
                f"--config {key} has {len(several)} values, and one config is run",
                "tileyard tune tries several",
            )
    sanitized = target_at(target, level, debug=debug, sanitize=True) if options["sanitize"] else ""
    request = make_request(
        kernel,
        values,
        trials=1,
        check=CheckPolicy(enabled=options["check"], closest=True),
        sanitized=sanitized,
    )
    return fill(
        StartTune,
        values,
        request=request,
        target=target_at(target, level, debug=debug),
        file=str(file),
        title="run",
        reuse=False,  # the config always runs
        overlap=True,
    )
