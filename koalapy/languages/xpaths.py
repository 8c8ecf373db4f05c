"""Estimates the cost of an untrusted XPath, because libxml2 cannot be stopped during an evaluation."""

import re

_MOST_SEARCHES = 2  # of all descendants or ancestors
_LITERAL = re.compile(r"""'[^']*'|"[^"]*\"""")
_AXIS = re.compile(r"([\w-]+)\s*::")
_CALL = re.compile(r"([\w:.-]+)\s*\(")
_SEARCH = re.compile(r"//|\.\.|\||(?:descendant|descendant-or-self|parent)\s*::")
_AXES = frozenset({"child", "self", "attribute", "descendant", "descendant-or-self", "parent"})
_CHEAP = re.compile(
    "and|or|mod|div|not|true|false|boolean|number|string|position|last|count|name|local-name|contains|starts-with|"
    "normalize-space|string-length|text|node"
)
# Inside a predicate: a path from elsewhere than the element, or any axis. A star may be a product before a root.
_ELSEWHERE = re.compile(r"//|\.\.|::|\||(?:^|[^\w)\].*])/|[^\[(,/@]\*/|\b(?:and|or|mod|div)/")


def is_costly(path: str) -> bool:
    """Return whether the effort may grow faster than a small power of the document's length."""
    inside, outside = _parts(_LITERAL.sub("''", path))
    if _ELSEWHERE.search(inside) or not all(map(_CHEAP.fullmatch, _CALL.findall(inside))):
        return True
    searches = len(_SEARCH.findall(outside))
    return searches > _MOST_SEARCHES or not _AXES.issuperset(_AXIS.findall(outside)) or "id" in _CALL.findall(outside)


def _parts(path: str) -> tuple[str, str]:
    """Return the text inside predicates, with their brackets, and the text outside."""
    inside: list[str] = []
    outside: list[str] = []
    depth = 0
    for each in path:
        depth += each == "["
        (inside if depth > 0 else outside).append(each)
        depth -= each == "]"
    return "".join(inside), "".join(outside)
