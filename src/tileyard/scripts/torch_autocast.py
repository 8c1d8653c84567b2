"""Autocast that a script asks for on a GPU holds for the CPU's operations too, in the same type."""

import functools
import importlib
from types import ModuleType
from typing import Any

from tileyard.scripts.torch_tensors import GPU, HOST


def cast_on_host(torch: ModuleType) -> None:
    """Have each ``torch.autocast`` of a GPU be one of the CPU as well, for as long as it lasts."""
    kind: Any = importlib.import_module(f"{torch.__name__}.amp.autocast_mode").autocast
    enter, leave = kind.__enter__, kind.__exit__

    @functools.wraps(enter)
    def enter_both(self: Any) -> object:  # noqa: ANN401 (torch's)
        entered = enter(self)
        if self.device == GPU:
            both = kind(
                HOST,
                dtype=self.fast_dtype,
                enabled=self._enabled,
                cache_enabled=self._cache_enabled,
            )
            vars(self).setdefault("_on_host", []).append(both)
            enter(both)
        return entered

    @functools.wraps(leave)
    def leave_both(self: Any, *ended: Any) -> object:  # noqa: ANN401 (torch's)
        if self.device == GPU:
            leave(vars(self)["_on_host"].pop(), *ended)
        return leave(self, *ended)

    kind.__enter__, kind.__exit__ = enter_both, leave_both
