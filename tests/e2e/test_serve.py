"""``tileyard serve`` as a command: it answers until Ctrl-C, and says in a line why it cannot."""

import http.client
import signal
import socket
import sys
from urllib.parse import urlsplit

import psutil
import pytest
from tests.conftest import CommandLine

IMPORTING = ("tileyard.verbs.serve.command.site", "tileyard.verbs.serve.plan.connections")
"""The modules that need what may be missing."""


@pytest.mark.slow
def test_it_answers_until_ctrl_c(cli: CommandLine) -> None:
    """At once, also while somebody is connected or follows a page; nothing is made in the data directory."""
    server = cli.start("serve", "--listen", "localhost:0")
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("serving http://127.0.0.1:")
        at = urlsplit(line.split()[1])
        asked = http.client.HTTPConnection(str(at.hostname), at.port or 0)
        asked.request("GET", "/", headers={"Connection": "close"})
        assert b"Nothing is recorded yet." in asked.getresponse().read()
        followed = http.client.HTTPConnection(str(at.hostname), at.port or 0)
        followed.request("GET", "/events", headers={"Accept": "text/event-stream"})
        assert followed.getresponse().read(5) == b"data:"
        with socket.create_connection((str(at.hostname), at.port or 0)):
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=30)
        followed.close()
    finally:
        server.kill()
    assert (server.returncode, said) == (130, "")
    assert not cli.home.exists()


@pytest.mark.slow
def test_agents_end_with_the_server(cli: CommandLine) -> None:
    """Those that are asked for the devices of other hosts start once somebody looks."""
    (cli.cwd / "tmp").mkdir()
    cli.env["TMPDIR"] = str(cli.cwd / "tmp")
    server = cli.start("serve", "--listen", "localhost:0", "--hosts", "local:2")
    try:
        assert server.stdout is not None
        at = urlsplit(server.stdout.readline().split()[1])
        assert psutil.Process(server.pid).children() == []
        asked = http.client.HTTPConnection(str(at.hostname), at.port or 0)
        asked.request("GET", "/devices")
        agents: list[psutil.Process] = []
        while len(agents) < 2:
            agents = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=30)
        asked.close()
    finally:
        server.kill()
    assert (server.returncode, said) == (130, "")
    assert not [one for one in agents if one.is_running()]
    assert not [*(cli.cwd / "tmp").glob("tileyard-host-*")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", "nowhere"), "'nowhere' is no address"),
        (("--listen", "unix:/tmp/x"), "--listen unix:/tmp/x: browsers connect to HOST:PORT"),
        (("--listen", "0.0.0.0:0"), "others can connect to 0.0.0.0:0: a token is needed"),
        (("--hosts", "slurm:"), "--hosts 'slurm:': these cannot be asked at any time"),
        (("--token-file", "none"), "cannot read none: No such file or directory"),
    ],
)
def test_what_it_cannot_use_is_one_line(
    cli: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    """With what to do."""
    done = cli.run_here("serve", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tileyard: {message}")
    assert done.stderr.count("\n") == 1


def test_an_address_in_use_is_one_line(cli: CommandLine) -> None:
    """It names the address."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        at = f"127.0.0.1:{other.getsockname()[1]}"
        done = cli.run_here("serve", "--listen", at)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tileyard: cannot listen at {at}: Address already in use\n"


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_a_missing_package_is_one_line(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """It says how to install it."""
    for name in [*sys.modules]:
        if name.partition(".")[0] == package or name in IMPORTING:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    done = cli.run_here("serve")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"tileyard: tileyard serve needs {package}, which is not installed"
    )
    assert "pip install './tileyard[pages]'" in done.stderr
