"""Which sizes ``tileyard check`` chose, and in which a mistake was seen, in words."""

from collections.abc import Iterator

from tileyard.check.findings import Finding
from tileyard.wording import count_of
from tileyard.workers.protocol import SyncChecked


def describe_instance(finding: Finding) -> str:
    """`` (block 0, 1 of M=32, K=96)``: where a mistake was seen first; empty where there is but one place."""
    block = f"block {', '.join(map(str, finding.block))}" if finding.block else ""
    place = " of ".join(filter(None, [block, finding.instance]))
    return f" ({place})" if place else ""


def describe_shapes(checked: SyncChecked) -> str:
    """`` of 9 shapes``; empty where sizes make no difference."""
    return f" of {count_of(len(checked.instances), 'shape')}" if any(checked.instances) else ""


def describe_extent(checked: SyncChecked) -> Iterator[str]:
    """The sizes, and how often the loops ran that depend on these."""
    names = dict.fromkeys(name for one in checked.instances for name in one)
    values = {name: sorted({one[name] for one in checked.instances}) for name in names}
    if values:
        yield "shapes: " + "; ".join(f"{name}={_list(found)}" for name, found in values.items())
    for line, trips in checked.trips.items():
        if len(trips) > 1:
            yield f"the loop of line {line} ran {_list(trips)} times"


def _list(numbers: list[int] | tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
