"""The options of ``strategies compare``."""

from typing import Annotated, TypedDict

from tileyard.show.kernel_options import Picture
from tileyard.show.options import NamesOption
from tileyard.show.values import Names
from tileyard.verbs.tune.options import STRATEGY, InFlight, Repetitions, UntilGain


class CompareOptions(TypedDict, total=False):
    """The options of ``strategies compare``."""

    strategy: Annotated[Names, NamesOption(f"{STRATEGY}; again for more of them.", metavar="NAME")]
    repetitions: Repetitions
    in_flight: InFlight
    png: Picture
    until_gain: UntilGain
