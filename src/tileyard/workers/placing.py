"""Defines the messages between the engine and a process that has nodes of a cluster for it."""

from tileyard.base.model import Record


class FindNodes(Record):
    """Find the nodes with this many CPUs and GPUs. Answer: NodesFound."""

    cpus: int
    gpus: int


class NodesFound(Record):
    """Names of nodes, and the ``address`` by which they reach this host, or the ``job`` that has them;
    ``problem``: why there are none.
    """

    names: tuple[str, ...] = ()
    address: str = ""
    job: str = ""
    problem: str = ""


class StartAgents(Record):
    """Start an agent on each node: a shell runs ``script`` with ``arguments`` after the node's Python; the
    ``variable`` has the node's ticket. Answers: AgentGone, for each.
    """

    script: str
    arguments: tuple[str, ...]
    variable: str
    tickets: dict[str, str]


class EndAgents(Record):
    """Give the nodes back once the agents have ended, and end."""


class AgentGone(Record):
    """An agent has ended, or could not be started; the last that was ``said``."""

    name: str
    said: str
