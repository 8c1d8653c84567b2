"""Suites with kernels: the authors of the files report which kernels, shapes and arguments exist."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tileyard.base.errors import KernelFileError, UsageError
from tileyard.base.model import KernelWork
from tileyard.base.settings import Settings
from tileyard.engine.authors import Authors
from tileyard.frontend.declare import PIPELINE, KernelInfo, shape_arguments
from tileyard.verbs.test.plan.files.drafts import Draft, KernelFile, find_seed, limit_kernel
from tileyard.verbs.test.plan.files.tables import CaseTable
from tileyard.verbs.test.plan.reading import NOTHING, read_draft
from tileyard.verbs.test.result.result import Rule, Suite, SuiteCase
from tileyard.workers.protocol import DescribeKernels, Failed

ASK_LIMIT_S = 60.0
ONLY = "default"
"""The case of a kernel that declares no shapes."""
BREAKS = re.compile(r"[\s/]+")
"""Characters that names of shapes may contain, and names of cases may not."""
DTYPE_ARGUMENTS = ("dtype", "in_dtype")
"""Argument names that kernels use for the type of their inputs."""


async def read_suite_with_kernels(
    path: Path,
    settings: Settings,
    authors: Authors,
    side: str = "",
    parameters: Mapping[str, str] = NOTHING,
) -> Suite:
    """The suite of a file or folder, or of a Python file of kernels, as authors of ``side`` describe them;
    the caller closes these. Kernels get names and complete arguments; a testcase without cases has one per
    kernel and named shape. Raises UsageError and KernelFileError.
    """
    draft = await asyncio.to_thread(read_draft, path, settings, NOTHING, parameters)
    works = (case.work for case in draft.cases)
    files = dict.fromkeys(work.file for work in works if isinstance(work, KernelWork))
    described = {file: await _describe(file, authors, side) for file in files}
    return draft.finish(tuple(_complete(draft, described)))


async def _describe(file: str, authors: Authors, side: str) -> tuple[KernelInfo, ...]:
    reply = await authors.of(side, file).ask(DescribeKernels(), ASK_LIMIT_S)
    if isinstance(reply, Failed):
        raise KernelFileError(reply.message, trace=reply.log)
    if not reply.kernels:
        raise KernelFileError(f"{file}: holds no kernel", "use @tileyard.kernel or @tilelang.jit")
    return reply.kernels


def _complete(draft: Draft, described: dict[str, tuple[KernelInfo, ...]]) -> Iterator[SuiteCase]:
    for case in draft.cases:
        if isinstance(case, KernelFile):
            yield from _expand(case, described[case.work.file], draft)
        elif isinstance(case.work, KernelWork):
            info = _find_kernel(described[case.work.file], case.work.kernel, case.where)
            work = _complete_work(case.work, info, case.where)
            missing = _missing(work, info)
            if missing:
                raise UsageError(
                    f"{case.where}: {info.name} needs a value for {', '.join(missing)}",
                    "give it in `arguments`, `config` or a shape",
                )
            yield msgspec.structs.replace(case, work=work, dtype=case.dtype or _dtype(work, info))
        else:
            yield case


def _expand(file: KernelFile, kernels: Sequence[KernelInfo], draft: Draft) -> Iterator[SuiteCase]:
    """One case for each kernel and shape; a kernel that lacks arguments is left out with that reason."""
    if file.work.kernel:
        kernels = [_find_kernel(kernels, file.work.kernel, file.where)]
    for info in kernels:
        for shape in info.shapes or ("",):
            work = _complete_work(
                msgspec.structs.replace(file.work, kernel=info.name, shape=shape), info, file.where
            )
            name = BREAKS.sub("-", shape) or ONLY
            if file.testcase and len(kernels) > 1:
                name = f"{info.name}-{name}"
            case = SuiteCase(
                testcase=file.testcase or info.name,
                name=name,
                work=work,
                family=file.common.family or info.name,
                dtype=file.common.dtype or _dtype(work, info),
                tags=file.common.tags,
                seed=find_seed(CaseTable(name=name)),
                limits=limit_kernel(file.common.limits),
                where=_find_place(file, info),
            )
            missing = _missing(work, info)
            if missing:
                reason = (
                    f"{info.name} needs a value for {', '.join(missing)}, and no shape gives it"
                )
                draft.skip.append(Rule(cases=case.id, reason=reason))
            yield case


def _find_place(file: KernelFile, info: KernelInfo) -> str:
    """Where a case is declared: the kernel's line where the file itself is the suite."""
    is_suite = file.where == f"{file.work.file}:1"
    is_inside = info.line and Path(info.file).name == Path(file.work.file).name
    return f"{file.work.file}:{info.line}" if is_suite and is_inside else file.where


def _find_kernel(kernels: Sequence[KernelInfo], name: str, where: str) -> KernelInfo:
    names = ", ".join(info.name for info in kernels)
    if name:
        for info in kernels:
            if info.name == name:
                return info
        raise UsageError(f"{where}: there is no kernel {name!r}", f"there are: {names}")
    if len(kernels) > 1:
        raise UsageError(
            f"{where}: the file holds {len(kernels)} kernels: {names}", "name one as `kernel`"
        )
    return kernels[0]


def _complete_work(work: KernelWork, info: KernelInfo, where: str) -> KernelWork:
    """The work with the kernel's name, the arguments of its shape, and its author's tolerance."""
    shape = shape_arguments(info, work.shape, f"{where}: ")
    for key in (*work.arguments, *work.config):
        is_pipeline = key == PIPELINE and key in work.config
        if not (info.may_take(key) or is_pipeline):
            known = ", ".join(info.parameters)
            raise UsageError(
                f"{where}: {info.name} has no parameter {key!r}", f"its parameters: {known}"
            )
    given = {**shape, **work.arguments}
    return msgspec.structs.replace(
        work,
        kernel=info.name,
        arguments={key: value for key, value in given.items() if key not in work.config},
        tolerance=work.tolerance or info.tolerance,
    )


def _missing(work: KernelWork, info: KernelInfo) -> list[str]:
    given = {**work.arguments, **work.config}
    return [key for key in info.required if key not in given]


def _dtype(work: KernelWork, info: KernelInfo) -> str:
    """The type that a kernel's argument selects, empty if there is none."""
    given = {**info.defaults, **work.arguments}
    return next((str(given[key]) for key in DTYPE_ARGUMENTS if key in given), "")
