"""Places agents on the nodes of a Ray cluster: an actor on each holds what Ray gave it, starts an agent that
connects to the run, and waits for its end. A separate process, because a driver of Ray ends with its cluster.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ray  # the only module that imports it
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tileyard.processes.wire import Channel
from tileyard.workers.placing import AgentGone, EndAgents, FindNodes, NodesFound, StartAgents

POLL_S: Final = 0.2
END_LIMIT_S: Final = 10.0
"""Seconds in which agents end themselves, before the actors are given up."""


class Holder:
    """The actor: holds a node's resources for an agent. It uses nothing that a node may lack."""

    def hold(self, script: str, arguments: Sequence[str], env: Mapping[str, str], cpus: int) -> str:
        """Run an agent to its end, with these variables; the last that it printed."""
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
        gpus = ",".join(map(str, ray.get_gpu_ids()))
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", script, sys.executable, *arguments],
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
        nodes = list_nodes(wanted)
        channel.send(NodesFound(names=tuple(nodes), address=ray.util.get_node_ip_address()))
        order = channel.receive(StartAgents)
        if order is not None:
            follow(channel, order, wanted, nodes)
        ray.shutdown()


def list_nodes(wanted: FindNodes) -> dict[str, str]:
    """The ids of the living nodes with enough of everything, by their names, made different if necessary."""
    least = {"CPU": wanted.cpus, "GPU": wanted.gpus}
    fit = [
        node
        for node in ray.nodes()
        if node["Alive"] and all(node["Resources"].get(k, 0) >= n for k, n in least.items())
    ]
    names = Counter(node["NodeName"] for node in fit)
    return {
        node["NodeName"] + (f"-{node['NodeID'][:8]}" if names[node["NodeName"]] > 1 else ""): node[
            "NodeID"
        ]
        for node in fit
    }


def follow(channel: Channel, order: StartAgents, wanted: FindNodes, nodes: dict[str, str]) -> None:
    """Start the agents, and report the end of each, until the engine hangs up."""
    kind = ray.remote(num_cpus=wanted.cpus, num_gpus=wanted.gpus)(Holder)
    actors, running = [], dict[Any, str]()
    for name, ticket in order.tickets.items():
        on_node = NodeAffinitySchedulingStrategy(nodes[name], soft=False)
        actor = kind.options(scheduling_strategy=on_node).remote()
        actors.append(actor)
        env = {order.variable: ticket}
        running[actor.hold.remote(order.script, order.arguments, env, wanted.cpus)] = name
    while not channel.has_news():
        if not running:
            channel.receive(EndAgents)
            return
        for reference in ray.wait([*running], timeout=POLL_S)[0]:
            channel.send(AgentGone(name=running.pop(reference), said=read_end(reference)))
    ray.wait([*running], num_returns=len(running), timeout=END_LIMIT_S)


def read_end(reference: Any) -> str:  # noqa: ANN401 - Ray's references have no type
    """What an actor reported, or why it is gone."""
    try:
        return str(ray.get(reference))
    except Exception as error:  # noqa: BLE001 - likewise, and the classes of what the actor raised
        return next(iter(str(error).strip().splitlines()), repr(error))


if __name__ == "__main__":
    main()
