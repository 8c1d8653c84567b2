"""A check of asynchronous copies, as the command line shows it: findings with both lines, then what was checked."""

import contextlib
import io
from pathlib import Path

from tileyard.cli.opening import print_json
from tileyard.errors import KernelFault, UnsupportedError, UsageError, UserCodeError
from tileyard.frontend.discover import find_kernel, find_kernels, import_file
from tileyard.model import Value
from tileyard.report.words import format_config, make_visible
from tileyard.workers.sync_check import Finding, SyncCheck, check_kernel, choose_config

FOUND = 1


def check_file(  # noqa: PLR0913 - options, by keyword only
    file: Path,
    name: str,
    arguments: dict[str, Value],
    shape: str,
    overrides: dict[str, Value],
    *,
    as_json: bool,
) -> int:
    """Check one kernel of a file, which is imported here. Raises UsageError, also for what cannot be elaborated."""
    with contextlib.redirect_stdout(io.StringIO()):  # what the user's code prints is no result
        kernels = find_kernels(import_file(file))
        if not name and len(kernels) != 1:
            raise UsageError(
                f"{file} has {len(kernels)} kernels", f"say which: {', '.join(kernels)}"
            )
        found = find_kernel(kernels, name or next(iter(kernels)))
        shapes = found.describe().shapes
        if shape and shape not in shapes:
            listed = f"there are: {', '.join(shapes)}" if shapes else "it declares none"
            raise UsageError(f"{found.name} has no shape {shape!r}", listed)
        usual = shape or ("" if arguments else next(iter(shapes), ""))
        given = {**shapes.get(usual, {}), **arguments}
        try:
            checked = check_kernel(found, given, choose_config(found, given, overrides))
        except (UnsupportedError, UserCodeError, KernelFault) as error:
            raise UsageError(f"{found.name} cannot be checked: {error}") from None
    if as_json:
        print_json(checked)
    else:
        _print(file, checked)
    return FOUND if checked.findings else 0


def _print(file: Path, checked: SyncCheck) -> None:
    for finding in checked.findings:
        print(make_visible(_describe(file, finding)))
    for reason in checked.unchecked:
        print(make_visible(f"not checked: {reason}"))
    config = f" {format_config(checked.config)}" if checked.config else ""
    if not checked.blocks:
        print(make_visible(f"{checked.kernel}{config}: nothing was checked"))
        return
    count = len(checked.findings)
    print(
        make_visible(
            f"{checked.kernel}{config}: {count or 'no'} mistake{'' if count == 1 else 's'} "
            f"in {checked.blocks} of {checked.grid} blocks"
        )
    )


def _describe(file: Path, finding: Finding) -> str:
    where = finding.access
    place = f"{file}:?" if where is None else f"{where.file}:{where.line}"
    block = f" (block {', '.join(map(str, finding.block))})" if finding.block else ""
    return f"{place}: {finding.message}{block}\n    {finding.fix}"
