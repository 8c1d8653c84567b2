"""``tileyard devices``: lists devices, their holders and their health."""

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from tileyard.base.errors import NoEffectError
from tileyard.show.options import HOSTS
from tileyard.show.typed import AsJson

app = typer.Typer(rich_markup_mode=None)
WINDOW = "500ms"
MAX_DAYS, MAX_PRIORITY = 36500, 1000
CLASS = re.compile(r"[a-z][a-z0-9_-]*")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A device, as tileyard devices lists it.")
]


@app.callback(invoke_without_command=True)
def devices(  # noqa: PLR0913 - each option is a parameter
    context: typer.Context,
    *,
    window: Annotated[
        str, typer.Option(metavar="TIME", help="Time for which the load is measured.")
    ] = WINDOW,
    hosts: Annotated[
        str,
        typer.Option(
            "--hosts", metavar="HOSTS", help=f"Also list the devices of these hosts: {HOSTS}"
        ),
    ] = "",
    json: AsJson = False,
    install: Annotated[
        bool,
        typer.Option(
            "--install",
            help="As root: make the lock directory for all users, now and at each start.",
        ),
    ] = False,
    tmpfiles: Annotated[
        Path, typer.Option(metavar="DIR", help="Where --install writes the entry for systemd.")
    ] = Path("/etc/tmpfiles.d"),
    log_days: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=MAX_DAYS,
            show_default=False,
            help="With --install: log past leases for so many days, 0 for no log. [30]",
        ),
    ] = None,
    lease_limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CLASS=]TIME",
            help="With --install: end longer leases, of one class (cuda=2h) or of all others; 0 for none.",
        ),
    ] = None,
    priority_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=MAX_PRIORITY,
            help="With --install: the highest --priority of users other than root.",
        ),
    ] = None,
) -> int:
    """Show the devices of this host: health, holder, queue, and how busy they are.

    "busy" is the share of the window in which the device worked, for any process: for CPU
    cores as the kernel counts it, for GPUs NVML's own figure, for others unknown. "held
    idle" is the share in which a process held it and it did nothing; "?" if unknown.
    Both are measured during this window only.

    With --install root also limits leases. What a repeat does not set stays as it is.

    Queues for devices of other hosts are listed as declared, and not contacted.

    A name may be a class (cuda), a device (cuda:1), or its UUID; see docs for declaring devices.

    Exit status: 0 shown, 1 a host of --hosts did not answer, which is one line among the tables of
    the others.
    """
    if context.invoked_subcommand is not None:
        return 0
    from tileyard.devices.survey import survey_devices
    from tileyard.show.opening import load_settings, present
    from tileyard.show.values import parse_duration_s
    from tileyard.verbs.doctor.view import print_survey, print_surveys

    if install:
        given = (("--json", json), ("--window", window != WINDOW), ("--hosts", bool(hosts)))
        for flag, is_given in given:
            if is_given:
                raise NoEffectError(f"{flag} has no effect with --install", option=flag)
        from tileyard.base.settings import LOCK_DIR, LOG_DIR, read_lock_dir
        from tileyard.devices.installing import NewRules, install_directory

        lock_dir = read_lock_dir(os.environ, Path.cwd())
        new = NewRules(
            keep_days=log_days, priority=priority_limit, lease_s=read_limits(lease_limit or [])
        )
        log = LOG_DIR if lock_dir == LOCK_DIR else None
        print("\n".join(install_directory(lock_dir, tmpfiles, new, log)))
        return 0
    for flag, value in (
        ("--log-days", log_days),
        ("--lease-limit", lease_limit),
        ("--priority-limit", priority_limit),
    ):
        if value is not None:
            raise NoEffectError(f"{flag} has no effect without --install", option=flag)
    settings, window_s = load_settings(), parse_duration_s(window)
    if hosts:
        from tileyard.engine.hosts.naming import survey_hosts

        answers = survey_hosts(hosts, settings, window_s)
        present(answers, json, print_surveys)
        return int(any(answer.problem for answer in answers))
    present(survey_devices(settings, window_s), json, print_survey)
    return 0


def read_limits(texts: list[str]) -> dict[str, float]:
    """Seconds by class of devices, "" for all others. Raises UsageError."""
    from tileyard.base.errors import UsageError
    from tileyard.show.values import parse_duration_s

    found = {}
    for text in texts:
        kind, _, time = text.rpartition("=")
        if "=" in text and not CLASS.fullmatch(kind):
            raise UsageError(f"--lease-limit {text}: {kind!r} is not a class of devices")
        found[kind] = parse_duration_s(time)
    return found


@app.command()
def log(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A device or a class, as tileyard devices lists it."),
    ] = "",
    *,
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_DAYS, help="Go back so many days.")
    ] = 1,
    json: AsJson = False,
) -> int:
    """Show the leases of the last day: who held which device, from when, how long, how it ended.

    The user comes from the kernel; the rest is what that user's own processes have written. Probes
    are not logged. Leases are kept for 30 days, or as root has set with devices --install --log-days.
    """
    from tileyard.base.settings import read_lock_dir
    from tileyard.devices.lease_log import read_log
    from tileyard.show.opening import present
    from tileyard.verbs.doctor.view import print_log

    present(read_log(read_lock_dir(os.environ, Path.cwd()), days, name), json, print_log)
    return 0


@app.command()
def probe(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A device, as tileyard devices lists it.")
    ] = "",
    *,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="Probe every device that is in quarantine.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Probe a free device, and update its quarantine.

    A failed probe puts it into quarantine; the third good one in a row ends that. While a
    process waits for such a device it is probed once a minute; otherwise a cron job can do it.

    Exit status: 0 all are good, 1 one failed, 3 one is in use or its probe was inconclusive.
    """
    from tileyard.base.errors import UsageError
    from tileyard.devices.health import Verdict, probe_now, read_health, run_apart
    from tileyard.devices.registry import find_devices, parse_device
    from tileyard.show.console import Console
    from tileyard.show.opening import load_settings, print_json
    from tileyard.verbs.doctor.view import print_probe

    if bool(name) == quarantined:
        raise UsageError("name one device, or give --quarantined")
    settings = load_settings()
    devices = (parse_device(name, settings),) if name else find_devices(settings)
    reports = [
        run_apart(probe_now(device))
        for device in devices
        if not quarantined or not read_health(device).is_well
    ]
    if json:
        print_json(reports if quarantined else reports[0])
    else:
        for report in reports:
            print_probe(Console(), report)
    verdicts = {report.probe.verdict for report in reports}
    if Verdict.FAILED in verdicts:
        return 1
    return 0 if verdicts <= {Verdict.GOOD} else 3


@app.command()
def readmit(name: Name) -> int:
    """End a device's quarantine, also one of another user."""
    from tileyard.devices.health import readmit_device
    from tileyard.devices.registry import parse_device
    from tileyard.show.opening import load_settings

    device = parse_device(name, load_settings())
    was = readmit_device(device)
    print(f"{device.name} {'is back from quarantine' if was else 'was not in quarantine'}")
    return 0


@app.command()
def quarantine(
    name: Name,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Why, in a few words.")],
) -> int:
    """Keep everyone from leasing a device until it is readmitted; its holder keeps it.

    It is not probed automatically: only "devices readmit" and "devices probe" end the quarantine.
    """
    from tileyard.devices.health import quarantine_device, read_health
    from tileyard.devices.registry import parse_device
    from tileyard.show.opening import load_settings
    from tileyard.show.words import clean_line

    device = parse_device(name, load_settings())
    quarantine_device(device, reason)
    print(f"{device.name} is in quarantine: {clean_line(read_health(device).reason)}")
    return 0
