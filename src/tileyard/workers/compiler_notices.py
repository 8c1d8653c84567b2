"""Defines what a compile worker tells before it answers a build."""

from tileyard.base.model import BuildKey, Record


class SharedBegan(Record, tag="shared_began"):
    """The worker turned to what many kernels share, such as precompiled headers.

    The time from here on counts against no kernel.
    """


class SharedEnded(Record, tag="shared_ended"):
    """After SharedBegan: the worker returned to the kernels."""


class PartBuilt(Record, tag="part_built"):
    """One of the builds that are made together is in the object store, while the others are still being made."""

    build: BuildKey


CompilerNotice = SharedBegan | SharedEnded | PartBuilt
