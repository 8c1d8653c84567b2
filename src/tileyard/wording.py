"""How counted things are put into words, the same way in messages and in views."""


def count_of(number: int, what: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
