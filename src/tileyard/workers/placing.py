"""Defines the messages between the engine and a process that has nodes of a cluster for it."""

from tileyard.base.model import Record


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
