"""The rules of trace events, as https://ui.perfetto.dev reads them.

No Perfetto runs in the tests: PyPI's package downloads its program, and neither npm nor Debian 12 has it.
"""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest


def require_valid(document: dict[str, Any]) -> None:
    """Refuse what the format does not allow, or Perfetto ignores: it names threads by their ids alone,
    nests spans of a thread, sorts by time, and binds an arrow to the span of the thread that is open then.
    """
    events = document["traceEvents"]
    threads: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    arrows: defaultdict[tuple[int, str, str], list[dict[str, Any]]] = defaultdict(list)
    names: dict[int, int] = {}
    processes: dict[str, int] = {}
    for event in events:
        assert isinstance(event["name"], str)
        assert all(isinstance(event[key], int) and event[key] >= 0 for key in ("pid", "tid"))
        assert min(event["pid"], event["tid"]) > 0  # 0 is the system's own
        match event["ph"]:
            case "M":
                assert event["name"].partition("_")[0] in ("process", "thread")
                if event["name"] == "thread_name":
                    assert event["args"]["name"]
                    assert names.setdefault(event["tid"], event["pid"]) == event["pid"]
                if event["name"] == "process_name":
                    process = event["args"]["name"]
                    assert processes.setdefault(process, event["pid"]) == event["pid"]
            case "X":
                assert isinstance(event["ts"], int)
                assert isinstance(event["dur"], int)
                assert min(event["ts"], event["dur"]) >= 0
                threads[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
            case "s" | "f":
                arrows[event["id"], event["cat"], event["name"]].append(event)
            case "C":
                assert all(isinstance(one, int) for one in event["args"].values())
            case _:
                pytest.fail(f"no phase {event['ph']} was meant to be here")
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    for (pid, tid), spans in threads.items():
        assert names[tid] == pid
        assert pid in processes.values()
        assert all(one + took <= other for (one, took), (other, _) in pairwise(spans))
    for start, end in arrows.values():
        assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        for one in (start, end):
            spans = threads[one["pid"], one["tid"]]
            assert any(begin <= one["ts"] < begin + took for begin, took in spans)
        assert start["ts"] <= end["ts"]
