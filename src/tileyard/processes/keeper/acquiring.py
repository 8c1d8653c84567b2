"""A keeper on its way to its lease: waits for it, makes the devices fit for use, hands them over."""

import os
import time

from .directory import LeaseRecord
from .holding import Holding, LeaseFacts
from .options import Device, Options
from .probing import run_probe
from .quarantine import put_in_quarantine
from .report import RefusedError, emit
from .ticket import Ticket
from .watching import RESCAN_S, Watcher
from .worker import limit_memory, make_environment


class Acquirer(Watcher):
    """Gets the lease of one worker, which may run already if it is an early one."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.holding: Holding | None = None
        self.held: list[Device] = []
        self.environment: dict[str, str] = {}
        self.lease_pipe = -1

    @property
    def is_wanted(self) -> bool:
        """Nobody has asked for the end, and an early worker lives."""
        return self.kill_at is None and (self.worker == 0 or self.is_working)

    def notice_end(self) -> None:
        """See whether an early worker has ended."""
        if self.worker:
            self.reap()

    def acquire(self) -> bool:
        """Take the lease, waiting for it; False if told to end before that."""
        options = self.options
        locks = [lock for device in options.devices for lock in device.locks]
        if locks:
            folders = {os.path.dirname(lock) for lock in locks}
            if len(folders) > 1:
                raise RefusedError("lock", 0, text=" ".join(sorted(folders)))
            facts = LeaseFacts(" ".join(options.argv), options.tree, options.outer)
            ticket = Ticket(folders.pop(), options.wish, facts, options.priority)
            self.bell = ticket.bell.fd
            self.poll.register(self.bell, 1)
            try:
                self.holding = self.wait_for_lease(ticket)
            finally:
                self.poll.unregister(self.bell)
                self.bell = -1
                ticket.close()
            if self.holding is None:
                return False
            names = [granted.choice.device for granted in self.holding.granted]
            self.held = [next(d for d in options.devices if d.name == name) for name in names]
        elif self.kill_at is not None:
            return False
        else:
            self.held = options.devices[: options.count]
        numbers = [g.number for g in self.holding.granted] if self.holding else [0] * len(self.held)
        if not options.cores and self.held and all(device.cores for device in self.held):
            options.cores = [core for device in self.held for core in device.cores]
        self.environment = make_environment(options, self.held, numbers)
        if options.is_early:
            self.hand_over()
        if self.held:
            emit(
                "locked",
                leases=numbers,
                choices=[options.devices.index(device) for device in self.held],
            )
        return True

    def wait_for_lease(self, ticket: Ticket) -> Holding | None:
        """The lease of devices that are fit for use, None if told to end before that."""
        told = 0
        while self.is_wanted:
            holding = ticket.try_take()
            if holding is None:
                if (position := ticket.find_position()) != told:
                    told = position
                    emit("waiting", position=told, holder=describe_holder(ticket.holder))
                self.wait(ticket.rescan_s)
                self.notice_end()
            elif self.make_fit(ticket, holding):
                return holding
        return None

    def make_fit(self, ticket: Ticket, holding: Holding) -> bool:
        """End what killed holders have left and probe their devices; give back what is not fit."""
        deadline = time.monotonic() + self.options.confirm_s
        while pids := ticket.end_survivors(holding):
            self.notice_end()
            if not self.is_wanted:
                holding.release(is_clean=False)
                return False
            if time.monotonic() > deadline:
                for record in holding.unclean:
                    self.condemn(
                        self.find_device(record.device, record.part),
                        f"processes of lease {record.number} could not be ended: "
                        + " ".join(map(str, pids)),
                    )
                holding.release(is_clean=False)
                return False
            self.wait(RESCAN_S)
        is_fit = True
        spoilt = {record.part for record in holding.unclean}
        for granted in holding.granted:
            device = self.find_device(granted.choice.device)
            if device.probe and not spoilt.isdisjoint(granted.choice.parts):
                environment = make_environment(self.options, [device], [granted.number])
                reason = run_probe(self, device, environment)
                if reason:
                    is_fit = False
                    self.condemn(device, f"{reason}, after its last holder was killed")
        if not is_fit:
            holding.release()
        return is_fit

    def find_device(self, name: str, part: str = "") -> Device:
        """The device of this name among those asked for, or else one with this part."""
        devices = self.options.devices
        named = [device for device in devices if device.name == name]
        return (named or [device for device in devices if part in device.choice.parts])[0]

    def condemn(self, device: Device, reason: str) -> None:
        """Put a device in quarantine, and say so."""
        emit("quarantined", text=f"{device.name}: {reason}")
        try:
            put_in_quarantine(device.locks, device.name, reason)
        except OSError as error:
            raise RefusedError("quarantine", error.errno or 0, text=device.name) from error

    def hand_over(self) -> None:
        """Hold an early worker to the limits of its first use, and then tell it the lease's number."""
        if self.holding is not None:
            self.holding.note_session(self.worker)
        try:
            if self.asked_bytes > 0:
                limit_memory(self.worker, self.asked_bytes)
            os.write(self.lease_pipe, f"{self.environment['TILEYARD_LEASE']}\n".encode())
        except (ProcessLookupError, BrokenPipeError):
            pass  # it has just ended
        except OSError as error:
            raise RefusedError("memory", error.errno or 0) from error


def describe_holder(record: LeaseRecord | None) -> str:
    """Who is in the way, for people."""
    if record is None:
        return ""
    return f"uid {record.uid}, pid {record.pid}, {record.command}"
