"""Defines what a compile worker tells before it answers a build."""

from tileyard.base.model import BuildKey, Record


class SharedBegan(Record, tag="shared_began"):
    """The worker began what many kernels share, as precompiled headers: no kernel's time from here on."""


class SharedEnded(Record, tag="shared_ended"):
    """After SharedBegan: the worker returned to the kernels."""


class PartBuilt(Record, tag="part_built"):
    """One of the builds made together is in the object store, while others are still being made."""

    build: BuildKey


CompilerNotice = SharedBegan | SharedEnded | PartBuilt
