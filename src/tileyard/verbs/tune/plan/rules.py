"""What decides which points of a space are valid, besides functions of the kernel's file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tileyard.base.errors import UsageError
from tileyard.base.model import Value
from tileyard.base.wording import find_similar
from tileyard.frontend.constraints import (
    Const,
    Constraint,
    Expr,
    Kinds,
    Name,
    Op,
    check_kinds,
    find_activity,
    kind_of,
    limit_to_active,
    put_constants,
    read_constraint,
)
from tileyard.verbs.tune.plan.diagram import estimate_share, find_conflict
from tileyard.verbs.tune.plan.strategies.base import INDEX, Config, Points
from tileyard.workers.protocol import Space

HINT = "widen the space or loosen where="
FEW = 1e-4
"""A share of valid points below it is given as one in a number of points."""


@dataclass(frozen=True)
class Rule:
    """A condition of valid points: its name in messages, the names that it has, and the condition."""

    label: str
    names: tuple[str, ...]
    expr: Expr


@dataclass(frozen=True)
class Ruled:
    """The points of a kernel's space, the rules that they meet, and the arguments and defaults. If it
    ``asks_where``, functions decide about these points, too.
    """

    kernel: str
    points: Points
    rules: tuple[Rule, ...]
    values: Mapping[str, Value]
    asks_where: bool

    def require_any(self) -> None:
        """Raise UsageError if no point is valid: it names the rules that exclude all."""
        if self.points.size:
            return
        found = find_conflict(self.points.variables, [rule.expr for rule in self.rules])
        product = self.points.product
        if found is None:
            text = f"of {self.kernel}'s {product:,} points none that is valid was found"
            raise UsageError(f"{text}, and not all could be looked at", HINT)
        rules = [self.rules[number] for number in found]
        names = dict.fromkeys(name for rule in rules for name in rule.names)
        varied = {key for one in self.points.variables for key in one.values}
        known = [f"{key}={self.values[key]}" for key in names if key not in varied]
        given = f" for {' '.join(known)}" if known else ""
        labels = " and ".join(rule.label for rule in rules)
        each = "its only point" if product == 1 else f"each of its {product:,} points"
        if len(rules) == 1:
            raise UsageError(
                f"no config of {self.kernel} is valid{given}: {labels} excludes {each}", HINT
            )
        raise UsageError(
            f"no config of {self.kernel} is valid{given}: {labels} contradict each other,"
            f" together they exclude {each}",
            HINT,
        )

    def describe(self) -> str:
        """The number of points, and how many of them are valid, as far as is known without functions."""
        points, product = self.points, self.points.product
        valid = "within the constraints" if self.asks_where else "valid"
        if points.diagram is None:
            return f"{product:,} points"
        if not points.diagram.is_part:
            share = format_share(points.size, product)
            return f"{product:,} points, {points.size:,} {valid} ({share})"
        low, high = estimate_share(points.variables, [rule.expr for rule in self.rules])
        between = f"between {100 * low:.2g} and {100 * high:.2g} %"
        searched = f"a random {points.size:,} of these are searched"
        about = float(f"{product * (low + high) / 2:.2g}")
        return f"{product:,} points, about {about:,.0f} {valid} ({between}); {searched}"


def format_share(part: int, whole: int) -> str:
    """A share in percent, or as one in a number."""
    share = part / whole
    if share < FEW:
        return f"1 in {round(whole / part):,}"
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def rule_points(
    kernel: str,
    space: Space,
    axes: Mapping[str, Sequence[Value]],
    values: Mapping[str, Value],
    wanted: Sequence[str] = (),
) -> Ruled:
    """The valid points of the space of a kernel with these ``axes``, and with the constraints ``wanted`` of
    this request besides the kernel's own. ``values`` are arguments and defaults. Raises UsageError for a
    constraint that cannot be read, or that names or compares what there is not.
    """
    kinds: dict[str, Kinds] = {key: frozenset({kind_of(value)}) for key, value in values.items()}
    varied: dict[str, Kinds] = {
        key: frozenset(map(kind_of, choices[:1] if isinstance(choices, range) else choices))
        for key, choices in axes.items()
    }
    for config in space.configs:
        for key, value in config.items():
            if key not in axes:
                varied[key] = varied.get(key, frozenset()) | {kind_of(value)}
    kinds |= varied
    fixed = {key: value for key, value in values.items() if key not in varied}

    def read(text: str, label: str) -> Constraint:
        try:
            constraint = read_constraint(text)
            _require_known(kernel, constraint, kinds)
            check_kinds(constraint, constraint.expr, kinds)
        except UsageError as error:
            error.message = f"{label}: {error.message}" if label else error.message
            raise
        return constraint

    own = f"where of {kernel}"
    conditions = {
        key: read(text, f"when of {key}") for key, text in space.conditions.items() if key in axes
    }
    rules = []
    for texts, source in ((space.constraints, own), (wanted, "--where")):
        for text in texts:
            constraint = read(text, source)
            expr = limit_to_active(constraint, conditions)
            rules.append(Rule(f"{source} {constraint.text!r}", constraint.names, expr))
    for key, condition in conditions.items():
        is_first = Op("==", (Name(f"{key}{INDEX}"), Const(0)))
        expr = Op("or", (find_activity(key, conditions), is_first))
        rules.append(Rule(f"when {condition.text!r} of {key}", condition.names, expr))
    put = tuple(Rule(one.label, one.names, put_constants(one.expr, fixed)) for one in rules)
    bare: Sequence[Config] = space.configs
    points = Points(axes, bare, [rule.expr for rule in put], values)
    return Ruled(kernel, points, put, values, space.asks_where)


def _require_known(kernel: str, constraint: Constraint, known: Mapping[str, Kinds]) -> None:
    for name in constraint.names:
        if name not in known:
            near = find_similar(name, list(known))
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(known)}"
            text = f"constraint {constraint.text!r} names {name!r}"
            raise UsageError(
                f"{text}, which is no parameter or argument of {kernel} with a value", hint
            )
