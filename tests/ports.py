"""Ports of this host for servers that tests start."""

import socket
from contextlib import ExitStack


def choose_ports(count: int) -> list[int]:
    """Ports that are free."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
