"""TIR as it travels: TVM's JSON, and a digest of it that knows no source lines."""

from typing import Any

import msgspec
from tilelang import tvm

from tileyard.artifacts.keys import digest_bytes
from tileyard.model import Digest

_PLACES = frozenset({"ir.Span", "ir.SourceName"})
"""Nodes of TVM's JSON that say where something stands in the user's file, and nothing else."""


def save_tir(func: Any) -> tuple[str, Digest]:  # noqa: ANN401 (TVM's nodes are untyped)
    """A PrimFunc as JSON with its source lines, and the digest of what it says without them.

    TVM numbers the nodes in the order in which they are reached, and source lines are nodes of
    their own: with their content left out, equal kernels give equal text wherever they stand.
    """
    text = str(tvm.ir.save_json(func))
    graph = msgspec.json.decode(text)
    for node in graph["nodes"]:
        if node["type"] in _PLACES:
            node["data"] = None
    return text, digest_bytes(msgspec.json.encode(graph, order="sorted"))
