"""What ends a study's screening before all configs are tried, and how long the study still takes."""

import math
from typing import Final

from tileyard.base.clock import Clock
from tileyard.base.events import CaseStarted, DeviceLeased, DeviceReleased, Event, StopReason
from tileyard.base.model import Outcome, Trial
from tileyard.verbs.tune.options import TuneRequest

FINALS_SHARE: Final = 0.2
FINALS_S: Final = 12.0
"""The finals' share of a budget, and at most these seconds per study: as long as on a busy device."""
FALL: Final = 3.0
"""The expected gain falls about as this power of the number of configs, on recorded spaces."""


class Budgets:
    """The budgets of a request, for studies that share them, of a run that began ``spent_s`` ago.

    Device seconds are those for which devices are held, all together: from a lease to its end, also while a
    runner starts there. A device that a queue lends counts from the first case that runs there.
    """

    def __init__(self, request: TuneRequest, clock: Clock, spent_s: float = 0.0) -> None:
        self._request = request
        self._clock = clock
        self._began_s = clock.monotonic_s() - spent_s
        self.sharers = 1
        """Number of studies that share the budgets."""
        self._since_s: dict[str, float] = {}
        self._held_before_s = 0.0
        self._gain = math.inf
        self._over: tuple[StopReason, str] = ("done", "")
        self._is_closed = False
        self.screened = 0
        """Number of configs whose screening has ended."""
        self._fresh = 0
        self._fresh_s = 0.0

    # ---- what it hears ------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        """Take in a run's event: devices are held, or given back."""
        match event:
            case DeviceLeased(device=device, lease=lease) if lease:
                self._since_s.setdefault(device, self.elapsed_s)
            case CaseStarted(device=device):
                self._since_s.setdefault(device, self.elapsed_s)
            case DeviceReleased(device=device):
                now_s = self.elapsed_s
                self._held_before_s += now_s - self._since_s.pop(device, now_s)
            case _:
                pass

    def take(self, trial: Trial) -> None:
        """Count the end of a config's screening."""
        self.screened += 1
        if not trial.reused and trial.outcome is not Outcome.NOT_RUN:
            self._fresh_s = self._fresh_s if self._fresh else self.elapsed_s
            self._fresh += 1

    def expect(self, gain: float | None) -> None:
        """Take in the gain that the strategy expects now, None if it does not know."""
        self._gain = math.inf if gain is None else gain

    # ---- what follows -------------------------------------------------------------------------------

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._clock.monotonic_s() - self._began_s

    @property
    def held_s(self) -> float:
        """Device seconds spent so far."""
        now_s = self.elapsed_s
        return self._held_before_s + sum(now_s - since_s for since_s in self._since_s.values())

    @property
    def left_s(self) -> float:
        """The smallest rest of a budget, infinite without one; negative if it is spent."""
        time_s, device_s = self._request.budget_s, self._request.device_budget_s
        return min(
            math.inf if time_s is None else time_s - self.elapsed_s,
            math.inf if device_s is None else device_s - self.held_s,
        )

    @property
    def screening_s(self) -> float | None:
        """When the screening ends, in seconds of the run, so that finals fit the budget; None without one."""
        return self._leave_finals(self._request.budget_s)

    @property
    def over(self) -> tuple[StopReason, str]:
        """Why the screening is over although configs may be left, also in words; empty ones if it is not. The
        first reason stays.
        """
        if not self._over[1] and not self._is_closed:
            self._over = self._find_over()
        return self._over

    def close(self) -> None:
        """Take in that the screening is over: what is spent from now on did not end it."""
        self._over, self._is_closed = self.over, True

    def _find_over(self) -> tuple[StopReason, str]:
        asked = self._request
        time_s, device_s = self.screening_s, self._leave_finals(asked.device_budget_s)
        if time_s is not None and self.elapsed_s >= time_s:
            return "budget", f"the budget of {asked.budget_s:g} s was spent"
        if device_s is not None and self.held_s >= device_s:
            return "budget", f"the device budget of {asked.device_budget_s:g} s was spent"
        if asked.until_gain is not None and self._gain < asked.until_gain:
            return "gain", f"expected gain below {100 * asked.until_gain:g} %"
        return "done", ""

    def forecast_s(self, configs: int, finals_s: float) -> float | None:
        """The time until all ends, with this many further configs and finals of this length; None before that
        can be said.
        """
        is_over = configs <= 0 or self.over[1]
        screening_s = 0.0 if is_over else self._forecast_screening_s(configs)
        if screening_s is None:
            return None
        left_s = screening_s + finals_s
        if self._request.budget_s is not None:
            left_s = min(left_s, self._request.budget_s - self.elapsed_s)
        return max(left_s, 0.0)

    def _forecast_screening_s(self, configs: int) -> float | None:
        elapsed_s = self.elapsed_s
        known_s = [] if self.screening_s is None else [self.screening_s - elapsed_s]
        if (device_s := self._leave_finals(self._request.device_budget_s)) and self.held_s:
            known_s.append((device_s - self.held_s) * elapsed_s / self.held_s)
        least = self._request.until_gain
        if self._fresh > 1 and (least is None or math.isfinite(self._gain)):
            each_s = (elapsed_s - self._fresh_s) / (self._fresh - 1)
            further = self.screened * (max(self._gain / (least or 1.0), 1.0) ** (1 / FALL) - 1)
            known_s.append(each_s * (configs if least is None else min(configs, further)))
        return min(known_s, default=None)

    def _leave_finals(self, budget_s: float | None) -> float | None:
        """The part of a budget that is the screening's."""
        if budget_s is None:
            return None
        return budget_s - min(FINALS_SHARE * budget_s, FINALS_S * self.sharers)
