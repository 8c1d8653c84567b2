"""Names that are legal in the text of a Program."""

import keyword
import re


class Names:
    """Gives each variable and buffer a name of its own that is legal in text: the user's, numbered."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    @staticmethod
    def legal(wanted: str) -> str:
        """``wanted`` made into an identifier."""
        base = re.sub(r"\W", "_", wanted) or "v"
        is_taken = base[0].isdigit() or keyword.iskeyword(base) or base == "inf"
        return f"v_{base}" if is_taken else base

    def take(self, wanted: str) -> str:
        """``wanted``, or the first of ``wanted_1``, ``wanted_2``, ... that is free."""
        base = self.legal(wanted)
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name
