"""Counts in sentences: a number with its noun, in the singular or plural."""


def counted_as(number: object, one: str, many: str = "") -> str:
    """Return `1 cluster` or `2 clusters`; `many` is the plural where it is not `one` with an s.

    The number is written as it is given: as text, such as `1,000`, it may have separators.
    """
    return f"{number} {one if str(number) == '1' else many or one + 's'}"
