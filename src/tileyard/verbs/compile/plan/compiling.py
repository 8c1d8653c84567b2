"""The verb ``compile``: builds the configs of a kernel. It uses no device and runs nothing."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tileyard.artifacts.bundles import Packing, write_bundle
from tileyard.artifacts.objects import canonical_json
from tileyard.base.events import Event, Note, RunStarted
from tileyard.base.model import Case, CheckPolicy
from tileyard.engine.authors import Authors
from tileyard.engine.yard import Workplace
from tileyard.service.bench import Bench
from tileyard.service.runs import Ending, Plan
from tileyard.verbs.compile.options import StartCompile
from tileyard.verbs.test.plan.packed import pack_suite
from tileyard.verbs.test.result.result import Suite, SuiteCase
from tileyard.verbs.tune.plan.deciding import Sweep, make_cases
from tileyard.verbs.tune.plan.space import OpenSpace, open_space
from tileyard.verbs.tune.plan.tuning import PackedSpace
from tileyard.verbs.tune.result import CompileResult
from tileyard.workers.protocol import RunEntry


async def open_compiling(
    start: StartCompile, bench: Bench, authors: Authors
) -> Plan[CompileResult]:
    """Plan the build of the first config, or of all."""
    request = start.request
    space = await open_space(authors.of("", start.file), request, targets=(start.target,))
    await space.choose(everything=start.all_configs)
    until = "packed" if start.pack_to else "built"
    check = CheckPolicy(tolerance=request.check.tolerance or space.tolerance)  # as in a study
    cases = [
        msgspec.structs.replace(case, until=until, check=check)
        for case in make_cases(space, start.file, start.target, request.limits)
    ]
    sweep = Sweep(cases)
    warnings: list[str] = []
    notes = []
    if len(space.configs) < space.size:
        text = f"building {len(space.configs)} of {space.size} configs of the space"
        notes.append(
            Note(text=text + ("" if start.all_configs else "; --all-configs builds them all"))
        )

    def keep_warning(event: Event) -> None:
        if isinstance(event, Note) and event.level == "warning":
            warnings.append(event.text)

    def fold(ending: Ending) -> CompileResult:
        result = CompileResult(
            run=ending.run,
            kernel=space.kernel,
            arguments=space.arguments,
            target=start.target,
            space=space.size,
            configs=tuple(ending.build_of(case, case.id) for case in sweep.cases),
            notes=tuple(warnings),
            reason=ending.reason,
            seconds=ending.seconds,
            lines=next((entry.lines for entry in ending.shelf.values()), {}),
        )
        return _pack(start, space, sweep, ending.shelf, result, bench) if start.pack_to else result

    return Plan(
        source=sweep,
        fold=fold,
        authors=authors,
        grounds={start.target: ()},
        begun=RunStarted(title=f"compile {space.kernel}", cases=len(sweep.cases)),
        notes=notes,
        listeners=[keep_warning],
        workplace=Workplace(
            reuse=start.reuse,
            compile_workers=start.compile_workers,
            group_size=start.group_size,
        ),
    )


def _pack(  # noqa: PLR0913 - everything that a bundle is made of
    start: StartCompile,
    space: OpenSpace,
    sweep: Sweep,
    shelf: Mapping[str, RunEntry],
    result: CompileResult,
    bench: Bench,
) -> CompileResult:
    """Pack what was built as one testcase; the result says why there is no bundle, or no check."""
    if result.reason != "done" or not shelf:
        why = result.reason if result.reason != "done" else "nothing could be built"
        notes = (*result.notes, f"{why}: {start.pack_to} was not written")
        return msgspec.structs.replace(result, notes=notes)
    suite = Suite(
        name=space.kernel,
        path=start.file,
        folder=str(Path(start.file).parent),
        cases=tuple(_as_suite_case(start, space, case) for case in sweep.cases),
    )
    packed = {f"{space.kernel}/{case}": entry for case, entry in shelf.items()}
    targets = dict.fromkeys(packed, start.target)
    known = PackedSpace(
        file=Path(space.file).name,
        flops=space.flops,
        timing=space.timing,
        run_s=space.run_s,
        default=space.default,
    )
    packing = Packing(
        kind="selection",
        commit=start.commit,
        target=start.target,
        details=canonical_json(known),
    )
    cases = pack_suite(suite, packed, targets, bench.objects)
    write_bundle(packing, bench.objects, Path(start.pack_to), cases)
    notes = result.notes
    if not all(entry.golden.outputs for entry in shelf.values()):
        note = f"{space.kernel} has no reference: results of this bundle cannot be checked"
        notes = (*notes, f"{note}; pass --reference NAME")
    return msgspec.structs.replace(result, notes=notes, bundle=start.pack_to)


def _as_suite_case(start: StartCompile, space: OpenSpace, case: Case) -> SuiteCase:
    return SuiteCase(
        testcase=space.kernel,
        name=case.id,
        work=msgspec.structs.replace(
            case.work, reference=start.request.reference, tolerance=case.check.tolerance
        ),
        family=space.kernel,
        limits=case.limits,
        where=start.file,
    )
