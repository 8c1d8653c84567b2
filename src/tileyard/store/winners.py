"""Packs the binaries that won, for machines that have neither their kernels' sources nor TileLang."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tileyard.artifacts.bundle_file import BundleManifest, Expected
from tileyard.artifacts.bundles import Packing, open_bundle, write_bundle
from tileyard.artifacts.manifest import find_artifact
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import Digest
from tileyard.store.choices import Choice, decode_choices, encode_choices


def pack_winners(choices: Sequence[Choice], home: Path, output: Path) -> None:
    """Write a bundle of these choices and their binaries. Raises UsageError if one is gone; BundleError."""
    objects = ObjectStore(home / "objects")
    for one in choices:
        if not one.build or find_artifact(one.build, objects) is None:
            raise UsageError(
                f"the binary of {one.kernel} that won on {one.silicon} is not in {home}",
                "tune again, or name another KERNEL or RUN",
            )
    targets = sorted({one.target for one in choices})
    packing = Packing(kind="winners", target=" and ".join(targets))
    write_bundle(packing, objects, output, encode_choices(choices))


def open_winners(path: Path, home: Path) -> tuple[Choice, ...]:
    """Put a bundle's binaries into a data directory; return their choices. Raises IncompatibleError
    for an unfit bundle, BundleError, UsageError.
    """

    def accept(manifest: BundleManifest, read: Callable[[Digest], bytes]) -> None:
        decode_choices(read(Digest(manifest.cases)) if manifest.cases else b"", str(path))

    objects = ObjectStore(home / "objects")
    bundle = open_bundle(path, objects, Expected(kind="winners"), accept=accept)
    return decode_choices(bundle.cases, str(path))
