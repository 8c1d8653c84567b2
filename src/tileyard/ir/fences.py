"""The fences that TileLang's InjectFenceProxy certainly puts into a Program. The pass asks before
each asynchronous operation whether an ordinary write of shared memory may be the last access, and
puts a fence there, or before a loop with such operations and no such writes. What only its lowering
decides (is ``T.gemm`` a ``wgmma``?) counts as what leads to fewer fences. Source:
``src/cuda/transform/inject_fence_proxy.cc`` of TileLang 0.1.15.
"""

from dataclasses import dataclass, field

from tileyard.ir.nodes import (
    Atomic,
    Copy,
    Fence,
    For,
    If,
    Issue,
    Product,
    Program,
    Roles,
    Stmt,
    While,
)
from tileyard.ir.walk import bodies, own_effects

Body = tuple[Stmt, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Events:
    writes: bool = False
    may_write: bool = False
    issues: bool = False
    may_issue: bool = False


@dataclass(kw_only=True, slots=True)
class _Finder:
    scopes: dict[str, str]
    found: dict[int, bool] = field(default_factory=dict)

    def follow(self, body: Body, written: bool, *, by_all: bool) -> bool:
        """Whether an ordinary write is last on some path through ``body``, given one ``written`` before."""
        for stmt in body:
            written = self._step(stmt, written, by_all=by_all)
        return written

    def _step(self, stmt: Stmt, written: bool, *, by_all: bool) -> bool:
        match stmt:
            case Fence():
                return False
            case For(kind="pipelined"):
                # TileLang may turn its copies into loads by TMA, in a role of their own.
                return False
            case For() | While():
                return self._loop(stmt, written, by_all=by_all)
            case If():
                return self._choose((stmt.then, stmt.orelse), written, by_all=False)
            case Roles():
                return self._choose(stmt.bodies, written, by_all=by_all)
            case Issue() if stmt.unit != "cp_async":
                if written:
                    self.found[id(stmt)] = by_all and stmt.unit == "wgmma"
                return False
            case _:
                events = self._look(stmt)
                return events.writes or (written and not events.may_issue)

    def _loop(self, stmt: For | While, written: bool, *, by_all: bool) -> bool:
        events = self._look_at(stmt.body)
        if written and events.may_issue and not events.writes:  # the fence may be before the loop
            if events.issues and not events.may_write:
                self.found[id(stmt)] = by_all
            written = False
        left = self.follow(stmt.body, written, by_all=by_all)
        return self.follow(stmt.body, written=True, by_all=by_all) if left > written else left

    def _choose(self, sides: tuple[Body, ...], written: bool, *, by_all: bool) -> bool:
        """Sides are nested branches: the fence may be before one whose both sides only issue operations."""
        first, *others = sides
        if not others:
            return self.follow(first, written, by_all=by_all)
        rest = self._look_at(tuple(stmt for side in others for stmt in side))
        one = self._look_at(first)
        if one.may_issue and rest.may_issue and not (one.writes or rest.writes):
            written = False
        left = self.follow(first, written, by_all=by_all)
        return self._choose(tuple(others), written, by_all=by_all) or left

    def _look_at(self, body: Body) -> _Events:
        events = [self._look(stmt) for stmt in body]
        return _Events(
            writes=any(one.writes for one in events),
            may_write=any(one.may_write for one in events),
            issues=any(one.issues for one in events),
            may_issue=any(one.may_issue for one in events),
        )

    def _look(self, stmt: Stmt) -> _Events:
        match stmt:
            case For(kind="pipelined"):
                return _Events(may_write=True, may_issue=True)
            case Issue(unit="cp_async"):
                return _Events(writes=True, may_write=True)
            case Issue():
                return _Events(issues=True, may_issue=True)
            case For() | While() | If() | Roles():
                return self._look_at(tuple(inner for body in bodies(stmt) for inner in body))
            case _ if isinstance(stmt, Product):
                return _Events(may_issue=True)
            case _:
                written = [self.scopes.get(name, "global") for name in own_effects(stmt).written]
                is_write, is_store = "shared" in written, "global" in written
                return _Events(
                    writes=is_write and not isinstance(stmt, Atomic),
                    may_write=is_write,
                    may_issue=is_store and isinstance(stmt, Copy),
                )


def find_fences(program: Program) -> dict[int, bool]:
    """The ``id`` of each operation and loop right after a certain fence; whether all threads that
    get there make it. Before a copy by TMA only the thread that issues it does.
    """
    finder = _Finder(scopes={buffer.name: buffer.scope for buffer in program.buffers})
    finder.follow(program.body, written=False, by_all=True)
    return finder.found
