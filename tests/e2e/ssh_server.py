"""A server of sshd on this machine, with keys of its own, for hosts that a run reaches through ssh."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.ports import choose_ports

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
SetEnv TILEYARD_HOME={folder}/home TILEYARD_LOCK_DIR={folder}/locks
"""
CLIENT = """#!/bin/sh
exec {ssh} -F /dev/null -p {port} -i {folder}/key -o IdentitiesOnly=yes -o StrictHostKeyChecking=no \\
    -o UserKnownHostsFile={folder}/known -o LogLevel=ERROR "$@"
"""


@contextmanager
def serve_ssh(folder: Path) -> Iterator[dict[str, str]]:
    """Variables with which ``ssh`` reaches a server that works in a new folder; skips without sshd."""
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    ssh = shutil.which("ssh")
    if server is None or ssh is None:
        pytest.skip("needs sshd, as of Debian's openssh-server")
    (folder / "bin").mkdir(parents=True)
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (port,) = choose_ports(1)
    (folder / "config").write_text(CONFIG.format(port=port, folder=folder), encoding="utf-8")
    client = folder / "bin" / "ssh"
    client.write_text(CLIENT.format(ssh=ssh, port=port, folder=folder), encoding="utf-8")
    client.chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)
    daemon = subprocess.Popen([server, "-D", "-e", "-f", folder / "config"], stderr=subprocess.PIPE)
    assert daemon.stderr is not None
    assert b"listening" in daemon.stderr.readline()
    try:
        yield {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(10)
        daemon.stderr.close()
