"""``tileyard bundle``: packs what one machine built into one file for others."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import CommitName, CpuLevel, GoldenThreads, OutputFile, TargetName
from tileyard.show.typed import AsJson
from tileyard.show.values import read_names, read_texts, refuse_unused
from tileyard.targets.registry import DEFAULT_TARGET
from tileyard.verbs.test.options.suites import ParameterValues, PolicyName, Selected, Skipped

if TYPE_CHECKING:
    from tileyard.artifacts.bundle_manifest import BundleManifest

Folders = Annotated[
    list[str] | None,
    typer.Option(
        "--bin", metavar="FOLDER", help="A directory of the tree for PATH, in addition to bin."
    ),
]
Packages = Annotated[
    list[str] | None,
    typer.Option("--python", metavar="FOLDER", help="A directory of the tree for PYTHONPATH."),
]
Prefixes = Annotated[
    list[str] | None,
    typer.Option(
        "--prefix", metavar="FOLDER", help="The installation prefix that the tree's files contain."
    ),
]


def bundle(  # noqa: PLR0913 - each option of the command is a parameter
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="Build this suite and pack it.")
    ] = "",
    *,
    tree: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Pack this folder as a toolchain.")
    ] = None,
    commit: CommitName = "",
    output: OutputFile = None,
    programs: Folders = None,
    python: Packages = None,
    prefix: Prefixes = None,
    cpu_arch: CpuLevel = "",
    driver: Annotated[
        str, typer.Option(metavar="RANGE", help='Required driver, such as ">=535,<600".')
    ] = "",
    require: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A TOML file of requirements on the host."),
    ] = None,
    inspect: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Describe a bundle, and whether it can be used here."),
    ] = None,
    policy: PolicyName = "full",
    select: Selected = None,
    skip: Skipped = None,
    parameters: ParameterValues = None,
    target: TargetName = DEFAULT_TARGET,
    toolchain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A toolchain bundle for the steps.")
    ] = None,
    golden_threads: GoldenThreads = None,
    json: AsJson = False,
) -> int:
    """Pack a built suite, or a toolchain, into one file for other machines, or look at such a file.

    A suite is built and gets its golden results, and none of its cases runs; `tileyard test --from` runs
    them, with no source and no compiler. For a toolchain:

    The shared libraries that its programs need come along, except those of glibc and of device
    drivers; text files that contain its path get the new one. Equal content gives equal
    bytes. LD_LIBRARY_PATH counts as it does for the toolchain itself.

    Exit status: 0 done, or the bundle can be used here, 1 a case could not be built (if none could, there is
    no bundle), 2 bad usage, or the bundle can not be used, 130 interrupted; then nothing is written.
    """
    of_suite = {
        "--policy": policy != "full",
        "--select": select,
        "--skip": skip,
        "--set": parameters,
        "--target": target != DEFAULT_TARGET,
        "--toolchain": toolchain,
        "--golden-threads": golden_threads,
    }
    of_tree = {
        "--bin": programs,
        "--python": python,
        "--prefix": prefix,
        "--cpu-arch": cpu_arch,
        "--driver": driver,
        "--require": require,
    }
    written = None if output is None else Path(output)
    if inspect is not None:
        others = {**of_tree, **of_suite, "a suite": suite, "--output": output, "--tree": tree}
        refuse_unused("with --inspect", others)
        return _inspect(inspect, commit, as_json=json)
    if suite:
        if tree is not None or written is None:
            raise UsageError("name the bundle to write with -o, without --tree")
        refuse_unused("on the bundle of a suite", of_tree)
        from tileyard.verbs.test.command.session import pack
        from tileyard.verbs.test.options.start import StartTest
        from tileyard.verbs.test.result.records import Wish

        start = StartTest(
            path=str(Path(suite).absolute()),
            wish=Wish(policy=policy, select=read_names(select), skip=read_names(skip)),
            parameters=read_texts(parameters, "--set"),
            target=target,
            toolchain="" if toolchain is None else str(toolchain.absolute()),
            commit=commit,
            golden_threads=golden_threads or 0,
            pack_to=str(written.absolute()),
        )
        return pack(start, as_json=json)
    if tree is None or written is None:
        raise UsageError("name a suite, or a folder with --tree, and the bundle to write with -o")
    if not commit:
        raise UsageError(
            "name the commit of the build with --commit", "it is what a later job asks for"
        )
    refuse_unused("on the bundle of a tree", of_suite)
    from tileyard.artifacts.libraries import variable_folders
    from tileyard.artifacts.prerequisites import Prerequisites
    from tileyard.artifacts.toolchain_packing import ToolchainSource, pack_toolchain
    from tileyard.verbs.test.plan.files.requires import read_require_file

    source = ToolchainSource(
        folder=tree,
        commit=commit,
        prefixes=tuple(prefix or ()),
        programs=tuple(programs or ()),
        python=tuple(python or ()),
        cpu_level=_known_level(cpu_arch),
        driver=_known_range(driver),
        prerequisites=Prerequisites() if require is None else read_require_file(require),
        search=variable_folders(os.environ),
    )
    _print(pack_toolchain(source, written), written, as_json=json)
    return 0


def _known_level(level: str) -> str:
    from tileyard.artifacts.compat import CPU_LEVELS

    if level and level not in CPU_LEVELS:
        raise UsageError(f"there is no CPU level {level!r}", f"there are: {', '.join(CPU_LEVELS)}")
    return level


def _known_range(driver: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return str(SpecifierSet(driver))
    except InvalidSpecifier:
        raise UsageError(f"{driver!r} is not a range of versions such as >=535,<600") from None


def _inspect(path: Path, commit: str, *, as_json: bool) -> int:
    from tileyard.artifacts.bundle_manifest import Expected
    from tileyard.artifacts.bundles import check_bundle, read_manifest
    from tileyard.show.opening import load_settings
    from tileyard.verbs.test.plan.prerequisites import require_prerequisites

    manifest = read_manifest(path)
    _print(manifest, path, as_json=as_json)
    check_bundle(path, Expected(commit=commit))
    require_prerequisites(path.name, manifest.requires.prerequisites, load_settings())
    return 0


def _print(manifest: "BundleManifest", path: Path, *, as_json: bool) -> None:
    from tileyard.show.opening import present
    from tileyard.verbs.compile.view.bundles import print_bundle

    present(manifest, as_json, print_bundle, path.name, path.stat().st_size)
