"""Defines the messages between the engine and a process that has nodes of a cluster for it. As a program it
is that of Slurm, for which ``salloc`` gets nodes: it names them, and holds them until the engine hangs up.
"""

import os
import subprocess

from tileyard.base.model import Record
from tileyard.processes.wire import Channel


class FindNodes(Record):
    """Find the nodes with this many CPUs and GPUs. Answer: NodesFound."""

    cpus: int
    gpus: int


class NodesFound(Record, tag="nodes_found"):
    """Names of nodes, and the ``address`` by which they reach this host, or the ``job`` that has them;
    ``problem``: why there are none. After the first answer: further nodes, which have joined.
    """

    names: tuple[str, ...] = ()
    address: str = ""
    job: str = ""
    problem: str = ""


class StartAgents(Record, tag="start_agents"):
    """Start an agent on each node, in place of one that still runs there: a shell runs ``script`` with
    ``arguments`` after the node's Python; the ``variable`` has the node's ticket. Answers: AgentGone with the
    ``number`` of this order, for each that was not replaced.
    """

    number: int
    script: str
    arguments: tuple[str, ...]
    variable: str
    tickets: dict[str, str]


class EndAgents(Record, tag="end_agents"):
    """Give the nodes back once the agents have ended, and end."""


class AgentGone(Record, tag="agent_gone"):
    """An agent has ended, or could not be started; the last that was ``said``."""

    number: int
    name: str
    said: str


def main() -> None:
    """Hold the allocation, which ``salloc`` gives back after this."""
    with Channel.serving() as channel:
        listing = ("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"])
        names = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=True).stdout
        channel.send(NodesFound(names=tuple(names.split()), job=os.environ["SLURM_JOB_ID"]))
        channel.receive(EndAgents)


if __name__ == "__main__":
    main()
