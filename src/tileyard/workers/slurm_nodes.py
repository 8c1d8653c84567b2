"""The command for which ``salloc`` gets nodes: names them to the engine, and holds them until it hangs up."""

import os
import subprocess

from tileyard.processes.wire import Channel
from tileyard.workers.placing import EndAgents, NodesFound


def main() -> None:
    """Hold the allocation, which ``salloc`` gives back after this."""
    with Channel.serving() as channel:
        listing = ("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"])
        names = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=True).stdout
        channel.send(NodesFound(names=tuple(names.split()), job=os.environ["SLURM_JOB_ID"]))
        channel.receive(EndAgents)


if __name__ == "__main__":
    main()
