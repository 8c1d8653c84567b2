"""Kills a host of a run, as if it lost its power."""

import contextlib

import psutil


def kill_host(agent: psutil.Process) -> None:
    """Kill an agent and all that it has started, so that none of them sees another one end."""
    stopped: list[psutil.Process] = []
    while new := [one for one in (agent, *agent.children(recursive=True)) if one not in stopped]:
        for process in new:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
            stopped.append(process)
    for process in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
