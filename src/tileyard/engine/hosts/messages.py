"""Defines what a run and the agent of another host tell each other, in the frames of ``processes.wire``.

Everything that a run orders has a number, with which the agent answers. Versions must be the same on
both sides, so that these records need no compatibility.
"""

from typing import Final

from tileyard.artifacts.manifest import Build
from tileyard.base.model import Batch, Device, Digest, Outcome, Record, Side
from tileyard.devices.survey import Survey
from tileyard.workers.protocol import BuildKernel, CaseBegan, CaseRan, RunEntry, TargetInfo

PROTOCOL: Final = 1
SILENCE_S: Final = 60.0
"""An agent that hears nothing for so long ends what it runs, and itself."""
GRACE_S: Final = 15.0
"""The time for that, before a run takes a silent agent's cases elsewhere."""
BEAT_S: Final = 5.0


class Greeting(Record, tag="greeting"):
    """The first message of an agent; ``boot`` distinguishes its running kernel from every other."""

    version: str
    protocol: int
    boot: str


class Beat(Record, tag="beat"):
    """A sign of life, answered by one."""


# ---- orders --------------------------------------------------------------------------------------


class FindDevices(Record, tag="find_devices"):
    """Offer the devices of these names, groups of them of these ``counts``, each held at once, and this many
    anonymous ``slots``, -1 for one for each core. Leases take turns as those of the run's ``job``. Answer:
    DevicesFound, or OrderRefused.
    """

    names: tuple[str, ...]
    title: str
    queue_limit_s: float
    plugins: dict[str, str]
    slots: int = 0
    job: str = ""
    counts: tuple[int, ...] = ()


class WarmDevice(Record, tag="warm_device"):
    """Start a device's runner ahead of its lease. Answer: OrderDone."""

    device: str


class AcquireDevice(Record, tag="acquire_device"):
    """Lease a device. Answers: DeviceWaits, any number; DeviceHeld, or DeviceLost."""

    device: str
    memory_bytes: int


class RunOnDevice(Record, tag="run_on_device"):
    """Run a batch, and judge the outputs of kernels there. What cases of programs left is kept for the run
    until the device's next order. Answers: CaseBegan, CaseEnded; BatchEnded, or DeviceLost.
    """

    device: str
    batch: Batch
    entries: tuple[RunEntry, ...]


class ReleaseDevice(Record, tag="release_device"):
    """End a device's runner and give its lease up. Answer: OrderDone."""

    device: str


class AwaitRecovery(Record, tag="await_recovery"):
    """Probe a device while it is in quarantine. Answer: OrderDone, once it is not."""

    device: str


class WithdrawBatches(Record, tag="withdraw_batches"):
    """Begin no further case of the batches that run. Answer: OrderDone."""


class CancelOrder(Record, tag="cancel_order"):
    """Stop carrying out an order, whose answers nobody reads any more. No answer."""

    number: int


class OfferObjects(Record, tag="offer_objects"):
    """Objects, and records of artifacts by their keys, that the next batch needs. Answer: ObjectsWanted."""

    digests: tuple[Digest, ...]
    builds: dict[str, bytes]


class OfferTree(Record, tag="offer_tree"):
    """The listing of a tree that the next batch needs. Answer: ObjectsWanted: those of its files that
    this host lacks; none if the tree is there, or was assembled.
    """

    listing: bytes


class IdentifyPython(Record, tag="identify_python"):
    """Say which Python is at this path, empty for the agent's own. Answer: PythonIdentified."""

    python: str


class OpenToolchain(Record, tag="open_toolchain"):
    """Unpack this bundle, an object, for the steps whose toolchain has this ``tree``, empty for all steps.
    Answer: ObjectsWanted: it, or none once that is done.
    """

    bundle: Digest
    name: str
    commit: str
    tree: str = ""


class ObjectPart(Record, tag="object_part"):
    """A part of an object, in order; ``is_of_tree``: it is needed only to assemble trees. No answer but
    to the last part: OrderDone, or OrderRefused.
    """

    digest: Digest
    data: bytes
    is_last: bool
    is_of_tree: bool = False


class SendObjects(Record, tag="send_objects"):
    """Send objects of this host, or what cases of programs have left on a ``device``. Answers: each one's
    ObjectParts; OrderDone, or OrderRefused.
    """

    digests: tuple[Digest, ...]
    device: str = ""


class OfferBuilders(Record, tag="offer_builders"):
    """Build kernels, on cores that no offered device owns if there are any. Answer: BuildersOffered.
    ``workers`` and ``group_size`` are as in a Workplace.
    """

    workers: int | None
    group_size: int | None


class DescribeBuilder(Record, tag="describe_builder"):
    """Describe a target on a side. Answer: TargetInfo, or OrderRefused if it cannot be used here."""

    side: Side
    target: str


class BuildThere(Record, tag="build_there"):
    """Build kernels for a described builder. Answers: KernelBuilt for each; OrderDone."""

    side: str
    target: str
    worker: int
    kernels: tuple[BuildKernel, ...]
    limits_s: tuple[float, ...]
    anew: bool


class SurveyHost(Record, tag="survey_host"):
    """Observe the host's devices for so long. Answer: HostSurveyed, or OrderRefused."""

    window_s: float


class TellTime(Record, tag="tell_time"):
    """Answer at once. ``data`` only takes time on its way. Answer: HostTime."""

    data: bytes = b""


class DiagnoseHost(Record, tag="diagnose_host"):
    """Find what is wrong with the host, and whether it sees these tokens among its locks and objects.
    Answer: HostDiagnosed, or OrderRefused.
    """

    lock_token: str
    object_token: str


Order = (
    Beat
    | FindDevices
    | WarmDevice
    | AcquireDevice
    | RunOnDevice
    | ReleaseDevice
    | AwaitRecovery
    | WithdrawBatches
    | CancelOrder
    | OfferObjects
    | OfferTree
    | OpenToolchain
    | IdentifyPython
    | ObjectPart
    | SendObjects
    | OfferBuilders
    | DescribeBuilder
    | BuildThere
    | SurveyHost
    | TellTime
    | DiagnoseHost
)


class Ordered(Record):
    """An order, with the number of its answers."""

    number: int
    order: Order


# ---- answers -------------------------------------------------------------------------------------


class DevicesFound(Record, tag="devices_found"):
    """Devices of the agent's host, and groups of them."""

    devices: tuple[Device, ...]
    joined: tuple[Device, ...] = ()


class OrderRefused(Record, tag="order_refused"):
    """The order cannot be carried out, in one line."""

    message: str
    hint: str = ""


class OrderDone(Record, tag="order_done"):
    """The order was carried out."""


class DeviceWaits(Record, tag="device_waits"):
    """Somebody else has the device, as in ``provider.Waiting``."""

    place: int
    holder: str


class DeviceHeld(Record, tag="device_held"):
    """The device is leased, under this number."""

    lease: int


class DeviceLost(Record, tag="device_lost"):
    """The device did not come, or its runner began no case, as in ``provider.LeaseLostError``."""

    message: str
    outcome: Outcome


class CaseEnded(Record, tag="case_ended"):
    """How a case ended, judged if it is a kernel, and the end of its log. ``work`` is the listing of what
    a program left in its folder, an object, empty for none. ``left`` are that and the files that it names,
    if they are small: then nothing is lost if the host is.
    """

    ran: CaseRan
    lease: int
    log: str = ""
    work: Digest = Digest("")
    left: tuple[bytes, ...] = ()


class BatchEnded(Record, tag="batch_ended"):
    """All that is to be reported of a batch was; ``held``: the lease still is."""

    held: bool


class ObjectsWanted(Record, tag="objects_wanted"):
    """Those among the offered objects that this host lacks."""

    digests: tuple[Digest, ...]


class PythonIdentified(Record, tag="python_identified"):
    """The version and the digest of an interpreter, or ``none``."""

    identity: str


class BuildersOffered(Record, tag="builders_offered"):
    """The core of each compile worker."""

    cores: tuple[int, ...]


class KernelBuilt(Record, tag="kernel_built"):
    """How a kernel was built, and the record of its artifact, empty for none."""

    build: Build
    manifest: bytes = b""


class HostSurveyed(Record, tag="host_surveyed"):
    """All devices of the host, as ``tileyard devices`` shows them there."""

    survey: Survey


class HostTime(Record, tag="host_time"):
    """Seconds since the epoch, by the host's clock."""

    at: float


class HostDiagnosed(Record, tag="host_diagnosed"):
    """The report of the doctor there, as the JSON that the doctor here reads."""

    report: bytes


Answer = (
    Greeting
    | Beat
    | DevicesFound
    | OrderRefused
    | OrderDone
    | DeviceWaits
    | DeviceHeld
    | DeviceLost
    | CaseBegan
    | CaseEnded
    | BatchEnded
    | ObjectsWanted
    | ObjectPart
    | BuildersOffered
    | PythonIdentified
    | TargetInfo
    | KernelBuilt
    | HostSurveyed
    | HostTime
    | HostDiagnosed
)


class Answered(Record):
    """An answer to the order of this number; 0 for a greeting and a beat."""

    number: int
    answer: Answer
