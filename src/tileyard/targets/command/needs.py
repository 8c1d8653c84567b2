"""The needs of the target ``command``: its programs use the device that is named for them."""

from tileyard.targets.registry import Needs

NEEDS = Needs(is_bound=False, uses_all_cores=True)
