"""The target ``cuda``: builds cubins with launch records from TIR, for any NVIDIA architecture."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path

import msgspec

from tileyard.artifacts.manifest import Artifact, Build
from tileyard.artifacts.objects import canonical_json, digest_bytes, digest_parts
from tileyard.base.decoding import decode_json
from tileyard.base.errors import BindError, DamagedError, ToolMissingError, UsageError
from tileyard.base.model import Device, Diagnostic, Outcome, Record
from tileyard.targets.base import NO_BINARIES, Aside, Binaries, Loaded, Source
from tileyard.targets.cuda.architectures import Architecture, list_architectures, parse_architecture
from tileyard.targets.cuda.driver import find_gpu
from tileyard.targets.cuda.grouping import GroupSize, Member, compile_in_groups
from tileyard.targets.cuda.launching import (
    CUBIN_FILE,
    DETAILS_VERSION,
    HOST_FILE,
    SOURCE_FILE,
    TILELANG_FILE,
    Details,
    LaunchRecord,
)
from tileyard.targets.cuda.loaded import CudaLoaded
from tileyard.targets.cuda.nvrtc import (
    Compiled,
    Nvrtc,
    kernel_flags,
    nvrtc_version,
    split_source,
    supported_architectures,
)
from tileyard.targets.cuda.packages import INSTALL, cuda_include, find_tilelang, headers_version
from tileyard.targets.cuda.resources import (
    find_launch_excess,
    list_facts,
    read_excess,
    read_resources,
)
from tileyard.targets.own_sources import LOG_FILE, Excess, digest_own_sources, first_error

TF32 = {"float32": "tfloat32"}
"""The precision of outputs if tensor cores multiply float32: operands keep 10 bits of their mantissa."""

_TF32 = re.compile(r"tensorfloat32|tfloat32|tf32", re.IGNORECASE)


class _Prepared(Record):
    """A lowered kernel: ``headers`` and the rest of its source, where functions have unique names,
    the ``log`` so far, and its ``tilelang`` after our pipeline.
    """

    headers: str
    member: Member
    launch: LaunchRecord
    flags: tuple[str, ...]
    binary: str
    host: str
    log: str
    tilelang: str


class CudaTarget:
    """Builds for one architecture, such as ``sm_90a``; only loading needs a driver. Precompiled
    headers are below ``caches``, and made within ``aside``. ``group_size`` is the most kernels per
    compilation, 0 to find the best.
    """

    needs_tir = True
    group_size = 0
    caches = Path()

    def __init__(self, architecture: str = "") -> None:
        if not architecture:
            raise UsageError(
                "the target cuda needs an architecture", "as in cuda:sm_80, cuda:sm_90a"
            )
        self.architecture: Architecture = parse_architecture(architecture)
        self.name = f"cuda:{self.architecture.name}"
        self.aside: Aside = nullcontext

    def warm_up(self) -> None:
        """Import TileLang in a process that will build: it takes seconds, and loading needs none."""
        from tileyard.targets.cuda.shortcuts import import_tilelang

        import_tilelang(self.caches)

    def fingerprint(self) -> str:
        """A digest over TileLang, NVRTC, CUDA's headers and our own code. Raises ToolMissingError,
        or UsageError for an architecture that this NVRTC does not know.
        """
        return self._identity

    def build(
        self, sources: Sequence[Source], out: Path, known: Binaries = NO_BINARIES
    ) -> Sequence[Build]:
        """Build each source below ``out/<i>``; a kernel's error fails only its own build. Raises
        ToolMissingError, or UsageError for an unknown option.
        """
        prepared = [self._prepare(source) for source in sources]
        missing: dict[str, _Prepared] = {}
        for number, one in enumerate(prepared):
            if isinstance(one, _Prepared):
                folder = out / str(number)
                folder.mkdir(parents=True, exist_ok=True)
                if not known.fetch(one.binary, folder):
                    missing.setdefault(one.binary, one)
        compiled = self._compile(missing)
        return [
            one if isinstance(one, Build) else self._finish(one, compiled, out / str(number))
            for number, one in enumerate(prepared)
        ]

    def load(self, artifact: Artifact, device: Device) -> Loaded:
        """Load on a GPU by the driver alone. Raises DamagedError, BindError, ToolMissingError, UsageError."""
        try:
            details = decode_json(artifact.manifest.details, Details)
        except msgspec.DecodeError as error:
            raise DamagedError(
                f"the manifest of a CUDA artifact cannot be read: {error}"
            ) from error
        if details.version != DETAILS_VERSION:
            message = (
                f"the artifact's details have version {details.version}, not {DETAILS_VERSION}"
            )
            raise BindError(message, "build it again")
        if device.kind != "cuda":
            raise BindError(f"the artifact is for {details.arch}, and {device.name} is no GPU")
        return CudaLoaded(find_gpu(device), details, artifact.file(CUBIN_FILE).read_bytes())

    # ---- one kernel ----------------------------------------------------------------------------

    def _prepare(self, source: Source) -> _Prepared | Build:
        """Lower a kernel, and give its functions names derived from their content."""
        for option in source.options:
            raise UsageError(f"target {self.name} has no option {option}")
        # In a compile worker, ``warm_up`` has already imported it.
        from tileyard.targets.cuda.lowering import LoweringError, lower

        try:
            lowered = lower(source.elaborated, self.architecture.name)
        except LoweringError as error:
            return Build(
                outcome=Outcome.COMPILE_ERROR, diagnostic=error.diagnostic, printed=error.log
            )
        if excess := find_launch_excess(lowered.launch, self.architecture):
            return _refuse(excess, lowered.log)
        flags = kernel_flags(source.elaborated.kernel)
        binary = digest_parts("binary", lowered.source, canonical_json(flags), self._identity)
        launches = [
            msgspec.structs.replace(one, symbol=f"{one.symbol}_{binary[:12]}")
            for one in lowered.launch.launches
        ]
        text = lowered.source
        for old, new in zip(lowered.launch.launches, launches, strict=True):
            text = re.sub(rf"\b{re.escape(old.symbol)}\b", new.symbol, text)
        headers, body = split_source(text)
        # NVRTC reports errors under this name, which separates the sources of a group.
        member = Member(
            name=f"{binary[:12]}.cu",
            text=body,
            symbols=tuple(launch.symbol for launch in launches),
            line=headers.count("\n") + 1,
        )
        return _Prepared(
            headers=headers,
            member=member,
            launch=msgspec.structs.replace(lowered.launch, launches=tuple(launches)),
            flags=flags,
            binary=binary,
            host=lowered.host,
            log=lowered.log,
            tilelang=source.elaborated.source,
        )

    def _compile(self, missing: Mapping[str, _Prepared]) -> dict[str, Compiled]:
        """The result of each binary. Each group has the same headers and flags."""
        alike: defaultdict[tuple[str, tuple[str, ...]], list[_Prepared]] = defaultdict(list)
        for one in missing.values():
            alike[one.headers, one.flags].append(one)
        found: dict[str, Compiled] = {}
        for (headers, flags), prepared in alike.items():
            members = [one.member for one in prepared]
            compile_one = partial(self._nvrtc.compile, headers, flags=flags)
            attempts = compile_in_groups(members, self._grouping, compile_one)
            for one, attempt in zip(prepared, attempts, strict=True):
                found[one.binary] = attempt
        return found

    def _finish(self, one: _Prepared, compiled: Mapping[str, Compiled], folder: Path) -> Build:
        files = {name: folder / name for name in (CUBIN_FILE, LOG_FILE)}
        attempt = compiled.get(one.binary)
        if attempt is None:
            cubin, said = files[CUBIN_FILE].read_bytes(), files[LOG_FILE].read_text()
        else:
            cubin, said = attempt.cubin, attempt.log.replace(one.member.name, SOURCE_FILE)
            if not cubin and (excess := read_excess(said, self.architecture)):
                return _refuse(excess, one.log + said)
            if not cubin:
                return Build(
                    outcome=Outcome.COMPILE_ERROR,
                    diagnostic=Diagnostic(message=f"NVRTC: {first_error(said)}"),
                    printed=f"{one.log}{said}\n\n{one.headers}{one.member.text}",
                )
            files[CUBIN_FILE].write_bytes(cubin)
            files[LOG_FILE].write_text(said)
        (folder / SOURCE_FILE).write_text(one.headers + one.member.text)
        (folder / HOST_FILE).write_text(one.host)
        if one.tilelang:
            (folder / TILELANG_FILE).write_text(one.tilelang)
        resources = read_resources(cubin, one.launch, self.architecture, said)
        if excess := find_launch_excess(one.launch, self.architecture, resources):
            return _refuse(excess, one.log + said)
        details = Details(
            arch=self.architecture.name,
            launch=one.launch,
            resources=resources,
            compiler=f"NVRTC {'.'.join(map(str, nvrtc_version()))}, TileLang {find_tilelang()}",
            cuda=nvrtc_version(),
            flags=one.flags,
            precisions=TF32 if _TF32.search(one.member.text) else {},
            facts=list_facts(resources, one.launch),
        )
        return Build(
            outcome=Outcome.PASSED,
            files=(
                *(CUBIN_FILE, LOG_FILE, SOURCE_FILE, HOST_FILE),
                *((TILELANG_FILE,) if one.tilelang else ()),
            ),
            details=msgspec.json.encode(details).decode(),
            # Warnings of the headers do not belong to the kernels.
            printed=one.log
            + "".join(
                f"{line}\n" for line in said.splitlines() if line.startswith(f"{SOURCE_FILE}(")
            ),
            binary=one.binary,
        )

    @cached_property
    def _grouping(self) -> GroupSize:
        return GroupSize(self.group_size)

    @cached_property
    def _nvrtc(self) -> Nvrtc:
        return Nvrtc(self.architecture.name, self.caches, self._identity, self.aside)

    @cached_property
    def _identity(self) -> str:
        found = find_tilelang()
        major, minor = nvrtc_version()
        headers = headers_version()
        if (major, minor) != headers:
            raise ToolMissingError(
                f"NVRTC is of CUDA {major}.{minor}, and CUDA's headers are of {headers[0]}.{headers[1]}",
                INSTALL,
            )
        capability = self.architecture.major * 10 + self.architecture.minor
        if capability not in supported_architectures():
            known = list_architectures(supported_architectures())
            raise UsageError(
                f"NVRTC {major}.{minor} does not compile for {self.architecture.name}",
                f"it compiles for {', '.join(known)}",
            )
        files = (cuda_include() / "cuda.h", *sorted(Path(__file__).parent.glob("*.c")))
        return digest_parts(
            self.name,
            f"NVRTC {major}.{minor}",
            f"TileLang {found}",
            digest_own_sources(__name__),
            *(digest_bytes(path.read_bytes()) for path in files),
        )


def _refuse(excess: Excess, printed: str) -> Build:
    """The build of what no device of the architecture can launch."""
    return Build(
        outcome=Outcome.COMPILE_ERROR,
        diagnostic=Diagnostic(message=excess.message),
        printed=printed,
        exceeds=excess.limit,
    )
