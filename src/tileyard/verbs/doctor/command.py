"""``tileyard doctor``: reports problems of this host and how to fix them."""

from typing import Annotated

import typer

from tileyard.show.options import HOSTS
from tileyard.show.typed import AsJson


def doctor(
    *,
    lock_token: Annotated[
        str,
        typer.Option(
            metavar="write|TOKEN",
            help="Check that two sides share their locks: write on one, TOKEN on the other.",
        ),
    ] = "",
    only: Annotated[
        str, typer.Option(metavar="SUBJECT", help="Check only this subject, such as queues.")
    ] = "",
    hosts: Annotated[
        str, typer.Option("--hosts", metavar="HOSTS", help=f"Check these hosts: {HOSTS}")
    ] = "",
    json: AsJson = False,
) -> int:
    """Check this host, and print what to do about each problem.

    One line per finding: ok, warn (it works, but not as well or as safely) or fail. Devices that
    nobody holds are probed; nothing is changed.

    To see whether a host and a container see the same locks: "tileyard doctor --lock-token write"
    on one side prints a token, "tileyard doctor --lock-token TOKEN" on the other compares.

    With --hosts each of them is checked, and compared with this host: whether an agent starts there,
    versions, CPUs, clock, line, and whether data directories or locks are shared.

    Exit status: 0 nothing fails, 1 something does.
    """
    from tileyard.base.clock import Clock
    from tileyard.base.errors import UsageError
    from tileyard.devices.base import read_boot_id
    from tileyard.show.opening import load_settings, present
    from tileyard.show.values import refuse_unused
    from tileyard.verbs.doctor.plan.checks import CHECKS
    from tileyard.verbs.doctor.plan.findings import Diagnosis, run_checks
    from tileyard.verbs.doctor.plan.tokens import compare_token, parse_token, write_token
    from tileyard.verbs.doctor.view import print_findings

    settings = load_settings()
    if hosts:
        from tileyard.verbs.doctor.plan.hosts import check_hosts

        refuse_unused("with --hosts", {"--lock-token": lock_token, "--only": only})
        diagnosis = check_hosts(hosts, settings)
    elif lock_token == "write":
        print(write_token(settings).format())
        return 0
    elif lock_token:
        findings = tuple(compare_token(settings, parse_token(lock_token), read_boot_id()))
        diagnosis = Diagnosis(at=Clock().wall_s(), findings=findings)
    else:
        chosen = [check for check in CHECKS if only in ("", check[0])]
        if not chosen:
            known = ", ".join(subject for subject, _ in CHECKS)
            raise UsageError(f"there is no subject {only!r}", f"subjects: {known}")
        diagnosis = run_checks(chosen, settings)
    present(diagnosis, json, print_findings)
    return 1 if diagnosis.has_failed else 0
