"""Runs the keeper's life cycle: take the lease, start the worker, wait, end the tree, probe,
report. An *early* worker starts first, and reads its lease's number from a pipe.
"""

import os
import time

from . import report
from .directory import MAX_COMMAND, LeaseRecord
from .holding import Holding, LeaseFacts
from .log import Log
from .quarantine import find_quarantine, put_in_quarantine
from .report import RefusedError, emit
from .rules import SETTINGS, read_rules
from .ticket import Ticket
from .tree import SIGKILL, SIGTERM
from .watching import RESCAN_S, Watcher, is_writable, run_probe
from .worker import Device, Options, become_worker, limit_memory, make_environment, spawn_step

STARTER_GRACE_S = 5.0
"""Seconds between TERM and KILL of a starter that holds its lease for too long."""
PIPE_BYTES = 4096
"""Most bytes that a writable pipe certainly has room for."""
LOOK_S = 3600.0
"""Most seconds to wait for a limit: poll takes no more than 24 days."""
LINGER_S = 1.0
"""Seconds between two looks at the tree after it was reported as not confirmed gone."""


class Keeper(Watcher):
    """Starts one worker, ends its tree, and holds its lease meanwhile."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.holding: Holding | None = None
        self.held: list[Device] = []
        self.log: Log | None = None
        self.limit_at: float | None = None
        self.limit_text = ""
        self.is_late = self.is_starter_told = False
        self.environment: dict[str, str] = {}
        self.lease_pipe = -1

    @property
    def is_wanted(self) -> bool:
        """Whether nobody has asked for the end, and an early worker lives."""
        return self.kill_at is None and (self.worker == 0 or self.is_working)

    def notice_end(self) -> None:
        """Check whether an early worker has ended."""
        if self.worker:
            self.reap()

    # ---- the lease ----------------------------------------------------------------------------

    def acquire(self) -> bool:
        """Take the lease, waiting for it; False if ordered to end before that."""
        options = self.options
        locks = [lock for device in options.devices for lock in device.locks]
        if locks:
            folders = {os.path.dirname(lock) for lock in locks}
            if len(folders) > 1:
                raise RefusedError("lock", 0, text=" ".join(sorted(folders)))
            facts = LeaseFacts(options.command, options.tree, options.outer, options.job)
            ticket = Ticket(folders.pop(), options.wish, facts, options.priority)
            self.bell = ticket.bell.fd
            self.poll.register(self.bell, 1)
            try:
                self.check_priority(ticket)
                self.holding = self.wait_for_lease(ticket)
                if self.holding is None:
                    return False
                self.note_lease(ticket, self.holding)
            finally:
                self.poll.unregister(self.bell)
                self.bell = -1
                ticket.close()
            self.held = [self.find_device(choice.device) for choice in self.holding.choices]
        elif self.kill_at is not None:
            return False
        else:
            self.held = options.devices[: options.count]
        numbers = [self.holding.number if self.holding else 0] * len(self.held)
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
        """The lease of devices fit for use, None if told to end or give up before. Tries at least once."""
        told = 0
        while self.is_wanted and not self.is_withdrawn:
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

    def check_priority(self, ticket: Ticket) -> None:
        """Raise RefusedError if the priority is higher than root allows this user."""
        asked, most = self.options.priority, read_rules(ticket.directory.root).priority
        if most is not None and asked > most and os.geteuid():
            where = f"{ticket.directory.path}/{SETTINGS}"
            raise RefusedError("priority", 0, text=f"{asked} is above {most} in {where}")

    def note_lease(self, ticket: Ticket, holding: Holding) -> None:
        """Log that a lease begins, and set its end if root limits it."""
        directory = ticket.directory
        rules = read_rules(directory.root)  # as they are now: the wait may have been long
        names = [choice.device for choice in holding.choices]
        self.log = Log(directory.root, directory.path, rules)
        self.log.begin(holding.number, names, self.options.command[:MAX_COMMAND])
        if limit_s := rules.find_limit_s(names):
            self.limit_at = time.monotonic() + limit_s
            self.limit_text = (
                f"{', '.join(names)} was held for {limit_s:g} s, the longest lease "
                f"that root allows ({directory.path}/{SETTINGS})"
            )

    def make_fit(self, ticket: Ticket, holding: Holding) -> bool:
        """End what killed holders left and probe their devices; give back those that are not fit."""
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
        for choice in holding.choices:
            device = self.find_device(choice.device)
            if device.probe and not spoilt.isdisjoint(choice.parts):
                environment = make_environment(self.options, [device], [holding.number])
                reason = run_probe(self, device, environment)
                if reason:
                    is_fit = False
                    self.condemn(device, f"{reason}, after its last holder was killed")
        if not is_fit:
            holding.release()
        return is_fit

    def find_device(self, name: str, part: str = "") -> Device:
        """The device with this name among the requested ones, or else one with this part."""
        devices = self.options.devices
        named = [device for device in devices if device.name == name]
        return (named or [device for device in devices if part in device.choice.parts])[0]

    def condemn(self, device: Device, reason: str) -> None:
        """Put a device in quarantine, and report it."""
        emit("quarantined", text=f"{device.name}: {reason}")
        try:
            put_in_quarantine(device.locks, device.name, reason)
        except OSError as error:
            raise RefusedError("quarantine", error.errno or 0, text=device.name) from error

    def hand_over(self) -> None:
        """Apply the limits of its first use to an early worker, and then send it the lease's number."""
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

    # ---- the worker ---------------------------------------------------------------------------

    def start_early(self) -> None:
        """Start the worker, in its holder's tree, before its devices; return when it needs the lease."""
        options = self.options
        read_end, self.lease_pipe = os.pipe2(os.O_CLOEXEC)
        self.environment = make_environment(options, options.devices, [])
        self.environment["TILEYARD_LEASE_PIPE"] = str(read_end)
        os.set_inheritable(read_end, True)
        self.start()
        os.close(read_end)
        while self.is_wanted and self.asked_bytes < 0:
            self.wait(None)
            self.notice_end()

    def start(self) -> None:
        """Start the worker; return once it runs its own program."""
        options = self.options
        self.started_ns = time.monotonic_ns()
        if options.is_step:
            self.worker = spawn_step(options, self.environment)
            emit("started", pid=self.worker, keeper=os.getpid())
            self.let_go_of_output()
            return
        read_end, write_end, keeper = *os.pipe(), os.getpid()
        self.worker = os.fork()
        if self.worker == 0:
            try:
                become_worker(options, self.environment, keeper)
            except RefusedError as error:
                os.write(write_end, f"{error.step} {error.number}".encode())
            finally:
                os._exit(127)
        os.close(write_end)
        for fd in options.pass_fds:  # or the engine would not see the worker's end
            os.close(fd)
        if self.holding is not None:
            self.holding.note_session(self.worker)
        answer = os.read(read_end, 64).decode()  # empty, once exec has closed the other end
        os.close(read_end)
        if answer:
            os.waitpid(self.worker, 0)
            self.give_back("not_started")
            step, _, number = answer.partition(" ")
            raise RefusedError(step, int(number))
        emit("started", pid=self.worker)

    def run(self) -> None:
        """Run the whole life cycle, from the lease to the report."""
        is_early = self.options.is_early
        try:
            if is_early:
                self.start_early()
            if self.is_wanted and self.acquire():
                if not is_early:
                    self.start()
            elif not self.worker:
                self.report(told=True, survivors=[])
                return
        except RefusedError as error:
            if not self.give_up_early():
                return
            text = self.describe_sick() if error.step == "sick" else error.text
            emit(f"refused_{error.step}", errno=error.number, text=text)
            return
        except OSError as error:
            if self.give_up_early():
                emit("refused_lock", errno=error.errno)
            return
        while self.reap() and self.worker not in self.ended and self.kill_at is None:
            self.wait(self.enforce_limit())
        told = self.worker not in self.ended
        if self.options.is_step and not told:
            self.ask_to_end(0.0)
        survivors = self.end_tree() if self.reap() else []
        code = self.ended.get(self.worker, 0)
        if code < 0 and not (told and code == -SIGTERM):
            self.is_suspect = True
        self.finish(told, survivors)

    def enforce_limit(self) -> float | None:
        """Seconds until root's limit is checked again, None for never; past it the end begins."""
        if self.limit_at is None:
            return None
        if (left_s := self.limit_at - time.monotonic()) > 0:
            return min(left_s, LOOK_S)
        self.is_late = self.is_suspect = True
        if not self.options.is_starters:
            self.ask_to_end(self.options.grace_s)
            return 0.0
        self.end_starter()
        self.limit_at = time.monotonic() + STARTER_GRACE_S
        return STARTER_GRACE_S

    def end_starter(self) -> None:
        """End the process that uses the devices itself, with TERM and then KILL: so its lease ends, too."""
        parent = self.options.parent
        if os.getppid() != parent:
            return  # its end is noticed
        try:
            if not self.is_starter_told and is_writable(2):
                text = f"tileyard: {self.limit_text}: process {parent} is ended\n"
                os.write(2, text.encode(errors="replace")[:PIPE_BYTES])
        except OSError:
            pass  # nobody reads it
        try:
            os.kill(parent, SIGKILL if self.is_starter_told else SIGTERM)
        except OSError:
            pass  # it has just ended, or is no longer of this user
        self.is_starter_told = True

    def describe_end(self, *, told: bool) -> str:
        """How the lease ended, for the log."""
        if self.is_late:
            return "lease_limit"
        code = self.ended.get(self.worker)
        if told or code is None:
            return "told"
        return f"code {code}" if code >= 0 else f"signal {-code}"

    def give_up_early(self) -> bool:
        """End an early worker that is refused its lease; False if its end had to be reported separately."""
        survivors = self.end_tree() if self.is_working and self.reap() else []
        if survivors:
            self.finish(told=True, survivors=survivors)
            return False
        self.give_back("not_started")
        return True

    def give_back(self, how: str) -> None:
        """Give the lease back, if there is one, and then log how it ended. Repeatable."""
        if self.holding is not None:
            self.holding.release()
        if self.log is not None:
            self.log.end(how)

    def finish(self, told: bool, survivors: list[int]) -> None:
        """Report the end and give the lease back; devices that may be sick are probed in between."""
        suspects = [d for d in self.held if d.probe] if self.is_suspect else []
        if survivors or suspects:  # the end need not wait for these
            self.report(told=told, survivors=survivors, is_last=False)
            self.let_go_of_output()
        if survivors:  # the lease continues while any process is left
            for device in self.held:
                pids = " ".join(map(str, survivors))
                self.try_to_condemn(device, f"processes of its last lease are not gone: {pids}")
            while self.reap():
                self.wait(LINGER_S)
        for device in suspects:
            if find_quarantine(device.locks) is None:
                reason = run_probe(self, device, self.environment)
                if reason:
                    self.try_to_condemn(device, reason)
        self.give_back(self.describe_end(told=told))
        if not survivors and not suspects:
            self.report(told=told, survivors=[])

    def try_to_condemn(self, device: Device, reason: str) -> None:
        """Put a device in quarantine if that can be recorded; an error has no receiver here."""
        try:
            self.condemn(device, reason)
        except RefusedError:
            pass

    @staticmethod
    def let_go_of_output() -> None:
        """Close the outputs that the worker could write to, so that no reader waits for their end."""
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        for fd in (0, 1, 2):
            if fd != report.reports:
                os.dup2(null, fd)

    def describe_sick(self) -> str:
        """Why the suitable devices are in quarantine."""
        found = [(device.name, find_quarantine(device.locks)) for device in self.options.devices]
        return "; ".join(
            f"{name} is in quarantine ({why.reason})" for name, why in found if why is not None
        )

    def report(self, *, told: bool, survivors: list[int], is_last: bool = True) -> None:
        """Report how the worker ended; ``told`` if by an order, not ``is_last`` if the keeper lives on."""
        code = self.ended.get(self.worker) if self.worker else None
        emit(
            "ended",
            code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            told=int(told),
            ran_ns=self.ran_ns,
            cpu_ns=self.cpu_ns,
            peak_rss_bytes=self.peak_rss_bytes,
            survivors=survivors,
            lingers=int(not is_last),
            text=self.limit_text if self.is_late else "",
        )


def describe_holder(record: LeaseRecord | None) -> str:
    """A description of the holder that is in the way, for people."""
    if record is None:
        return ""
    import pwd  # only where somebody is in the way

    try:
        user = pwd.getpwuid(record.uid).pw_name
    except KeyError:
        user = str(record.uid)
    return f"{user}, pid {record.pid}, {record.command}"


def main(arguments: list[str]) -> None:
    """Keep one worker, and exit without tidying up: for an interpreter that costs 4 ms."""
    options = Options(arguments, dict(os.environ))
    report.reports = options.reports
    Keeper(options).run()
    os._exit(0)
