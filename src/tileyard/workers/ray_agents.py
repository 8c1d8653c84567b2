"""Places agents on the nodes of a Ray cluster: an actor on each holds what Ray gave it, starts an agent that
connects to the run, and waits for its end. A separate process, because a driver of Ray ends with its cluster.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ray  # the only module that imports it
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tileyard.processes.wire import Channel
from tileyard.workers.placing import AgentGone, EndAgents, FindNodes, NodesFound, StartAgents

POLL_S: Final = 0.2
LOOK_S: Final = 2.0
"""Seconds between two looks for nodes that have joined."""
APART: Final = 'exec 3<&0; "$@" <&3 3<&- & wait $!'
"""Waits for a command, which goes on if this is killed: Ray kills the children of an actor with it, and the
command is to remove the agent's files.
"""
END_LIMIT_S: Final = 10.0
"""Seconds in which agents end themselves, before the actors are given up."""


class Holder:
    """The actor: holds a node's resources for an agent. It uses nothing that a node may lack."""

    def begin(self) -> None:
        """Return once Ray has given this actor its resources."""

    def hold(self, script: str, arguments: Sequence[str], env: Mapping[str, str], cpus: int) -> str:
        """Run an agent to its end, with these variables; the last that it printed."""
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
        gpus = ",".join(map(str, ray.get_gpu_ids()))
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", APART, "", "/bin/sh", "-c", script, sys.executable, *arguments],
                env={**os.environ, **env, "CUDA_VISIBLE_DEVICES": gpus},
                stdin=subprocess.PIPE,  # ends with this actor, and so does the agent
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            status = process.wait()
            log.seek(0)
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with status {status}"


def main() -> None:
    """Serve the engine until it hangs up."""
    logging.disable()
    with Channel.serving() as channel:
        wanted = channel.receive(FindNodes)
        if wanted is None:
            return
        try:
            ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False, configure_logging=False)
        except Exception as error:  # noqa: BLE001 - what Ray and its transport raise has no common class
            said = str(error).strip().splitlines()
            channel.send(NodesFound(problem=said[0] if said else repr(error)))
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the engine's end is seen by the channel
        nodes = list_nodes(wanted, {})
        channel.send(NodesFound(names=tuple(nodes), address=ray.util.get_node_ip_address()))
        Agents(channel, wanted, nodes).follow()
        ray.shutdown()


def list_nodes(wanted: FindNodes, known: Mapping[str, str]) -> dict[str, str]:
    """The ids of the living nodes with enough of everything that are not ``known``, by their names, made
    different if necessary.
    """
    least = {"CPU": wanted.cpus, "GPU": wanted.gpus}
    fit = [
        node
        for node in ray.nodes()
        if node["Alive"]
        and node["NodeID"] not in known.values()
        and all(node["Resources"].get(k, 0) >= n for k, n in least.items())
    ]
    names = Counter([*known, *(node["NodeName"] for node in fit)])
    return {
        node["NodeName"] + (f"-{node['NodeID'][:8]}" if names[node["NodeName"]] > 1 else ""): node[
            "NodeID"
        ]
        for node in fit
    }


class Agents:
    """The agents on these nodes: an actor for each, until the engine hangs up."""

    def __init__(self, channel: Channel, wanted: FindNodes, nodes: dict[str, str]) -> None:
        self._channel = channel
        self._wanted = wanted
        self._nodes = nodes
        self._kind = ray.remote(num_cpus=wanted.cpus, num_gpus=wanted.gpus)(Holder)
        self._actors: dict[str, tuple[Any, Any]] = {}
        self._running: dict[Any, tuple[int, str]] = {}

    def follow(self) -> None:
        """Start agents as ordered; report the end of each, and nodes that have joined."""
        look_s = time.monotonic()
        while True:
            if self._channel.has_news():
                order = self._channel.receive(StartAgents | EndAgents)
                if not isinstance(order, StartAgents):
                    break
                self._start(order)
            if self._running:
                for reference in ray.wait([*self._running], timeout=POLL_S)[0]:
                    self._report(reference)
            else:
                time.sleep(POLL_S)
            if time.monotonic() > look_s + LOOK_S:
                look_s = time.monotonic()
                self._look()
        left = [
            reference for reference, (_, name) in self._running.items() if self._has_begun(name)
        ]
        if left:
            ray.wait(left, num_returns=len(left), timeout=END_LIMIT_S)

    def _has_begun(self, name: str) -> bool:
        return bool(ray.wait([self._actors[name][1]], timeout=0)[0])

    def _start(self, order: StartAgents) -> None:
        for name, ticket in order.tickets.items():
            self._end(name)
            on_node = NodeAffinitySchedulingStrategy(self._nodes[name], soft=False)
            actor = self._kind.options(scheduling_strategy=on_node).remote()
            self._actors[name] = actor, actor.begin.remote()
            env = {order.variable: ticket}
            reference = actor.hold.remote(order.script, order.arguments, env, self._wanted.cpus)
            self._running[reference] = order.number, name

    def _report(self, reference: Any) -> None:  # noqa: ANN401 - Ray's references have no type
        number, name = self._running.pop(reference)
        said = read_end(reference)
        self._end(name)
        self._channel.send(AgentGone(number=number, name=name, said=said))

    def _end(self, name: str) -> None:
        """Give a node's resources back, so that it can have another agent."""
        if name in self._actors:
            ray.kill(self._actors.pop(name)[0])
            self._running = {r: one for r, one in self._running.items() if one[1] != name}

    def _look(self) -> None:
        found = list_nodes(self._wanted, self._nodes)
        if found:
            self._nodes |= found
            self._channel.send(NodesFound(names=tuple(found)))


def read_end(reference: Any) -> str:  # noqa: ANN401 - Ray's references have no type
    """What an actor reported, or why it is gone."""
    try:
        return str(ray.get(reference))
    except Exception as error:  # noqa: BLE001 - likewise, and the classes of what the actor raised
        return next(iter(str(error).strip().splitlines()), repr(error))


if __name__ == "__main__":
    main()
