"""A cluster of Ray on this machine, for tests: begins and ends nodes by name, as the standard input says."""

import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

NODE = {
    "num_cpus": 1,
    "num_gpus": 0,
    "node_ip_address": "127.0.0.1",  # of which Ray listens on the loopback interface only
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
}


def describe(name: str, locks: Path) -> dict[str, Any]:
    """The options of a node: its agents have locks of their own, as on a host of its own."""
    return {**NODE, "node_name": name, "env_vars": {"TILEYARD_LOCK_DIR": str(locks / name)}}


def say(line: str) -> None:
    """Answer the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(locks: Path, first: str, *others: str) -> None:
    """Print the cluster's address, and a line for each order that was carried out."""
    cluster = Cluster(initialize_head=True, head_node_args=describe(first, locks))
    nodes = {name: cluster.add_node(**describe(name, locks), wait=False) for name in others}
    cluster.wait_for_nodes()
    say(cluster.address)
    for line in sys.stdin:
        verb, name = line.split()
        if verb == "add":
            nodes[name] = cluster.add_node(**describe(name, locks))
        else:
            cluster.remove_node(nodes.pop(name))
        say(line.strip())
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
