"""``tileyard bundle``: packs what one machine built into one file for others."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

import typer

from tileyard.base.errors import UsageError
from tileyard.show.options import complete, list_given, read_options
from tileyard.show.typed import AsJson
from tileyard.show.values import refuse_unused
from tileyard.verbs.compile.options import OF_SUITES, OF_TREES, BundleOptions

if TYPE_CHECKING:
    from tileyard.artifacts.bundle_file import BundleManifest


def bundle(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="Build this suite and pack it.")
    ] = "",
    *,
    json: AsJson = False,
    **options: Unpack[BundleOptions],
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
    options = complete(BundleOptions, options)
    values = read_options(BundleOptions, options)
    of_suite = list_given(BundleOptions, options, OF_SUITES)
    of_tree = list_given(BundleOptions, options, OF_TREES)
    tree, written = options["tree"], options["output"]
    if options["inspect"] is not None:
        others = {**of_tree, **of_suite, "a suite": suite, "--output": written, "--tree": tree}
        refuse_unused("with --inspect", others)
        return _inspect(Path(options["inspect"]), options["commit"], as_json=json)
    if suite:
        if tree is not None or written is None:
            raise UsageError("name the bundle to write with -o, without --tree")
        refuse_unused("on the bundle of a suite", of_tree)
        return _pack_suite(suite, options, values, as_json=json)
    if tree is None or written is None:
        raise UsageError("name a suite, or a folder with --tree, and the bundle to write with -o")
    if not options["commit"]:
        raise UsageError(
            "name the commit of the build with --commit", "it is what a later job asks for"
        )
    refuse_unused("on the bundle of a tree", of_suite)
    return _pack_tree(Path(tree), Path(written), values, as_json=json)


def _pack_suite(
    suite: str, options: BundleOptions, values: dict[str, Any], *, as_json: bool
) -> int:
    from msgspec.structs import replace

    from tileyard.verbs.test.command.session import pack
    from tileyard.verbs.test.options import TestOptions, start_test

    shared = {name: options[name] for name in OF_SUITES}  # type: ignore[literal-required]  # they are
    start = start_test(suite, cast(TestOptions, shared))
    return pack(replace(start, commit=values["commit"], pack_to=values["output"]), as_json=as_json)


def _pack_tree(tree: Path, written: Path, values: dict[str, Any], *, as_json: bool) -> int:
    from tileyard.artifacts.compat import Prerequisites
    from tileyard.artifacts.libraries import variable_folders
    from tileyard.artifacts.toolchains import ToolchainSource, pack_toolchain
    from tileyard.verbs.test.plan.files.drafts import read_require_file

    require = values["require"]
    source = ToolchainSource(
        folder=tree,
        commit=values["commit"],
        prefixes=values["prefix"],
        programs=values["bin"],
        python=values["python"],
        cpu_level=_known_level(values["cpu_arch"]),
        driver=_known_range(values["driver"]),
        prerequisites=read_require_file(Path(require)) if require else Prerequisites(),
        search=variable_folders(os.environ),
    )
    _print(pack_toolchain(source, written), written, as_json=as_json)
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
    from tileyard.artifacts.bundle_file import Expected
    from tileyard.artifacts.bundles import check_bundle, read_manifest
    from tileyard.show.opening import load_settings
    from tileyard.verbs.test.plan.packed import require_prerequisites

    manifest = read_manifest(path)
    _print(manifest, path, as_json=as_json)
    check_bundle(path, Expected(commit=commit))
    require_prerequisites(path.name, manifest.requires.prerequisites, load_settings())
    return 0


def _print(manifest: "BundleManifest", path: Path, *, as_json: bool) -> None:
    from tileyard.show.opening import present
    from tileyard.verbs.compile.view import print_bundle

    present(manifest, as_json, print_bundle, path.name, path.stat().st_size)
