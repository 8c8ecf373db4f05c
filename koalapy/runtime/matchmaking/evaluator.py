"""The helper process that evaluates ClassAd expressions. It is run as a file, and imports nothing of koalapy.

It reads requests from standard input and writes answers to standard output, each a line of JSON. It first writes a line
when it is ready. A request is {"ads": [text, ...], "questions": [[requirements, rank, own ad, [place of an ad, ...]],
...], "seconds": processor time of a question}. The answer to each question is a line of its own: {"verdicts": a
character for each ad, "ranks": [number or null, ...]}, or {"failed": text}. Verdicts are m, n, u and e.
"""

import functools
import json
import math
import resource
import signal
import sys
from typing import Any

import classad2

MEMORY_BYTES = 1 << 29  # beyond what the interpreter and the library have mapped
_PARSED = 4_096  # expressions that are kept


def main() -> None:
    _limit()
    _write({"ready": classad2.version()})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        ads = [classad2.ClassAd(text) for text in request["ads"]]
        for requirements, rank, own, places in request["questions"]:
            # SIGVTALRM ends this process, also while the library runs, which holds the interpreter's lock.
            signal.setitimer(signal.ITIMER_VIRTUAL, request["seconds"])
            _write(_answer(requirements, rank, own, [ads[place] for place in places]))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _limit() -> None:
    """Take from this process what an evaluation has no use for: memory, files, child processes and core dumps."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES,) * 2)
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


def _write(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _answer(requirements: str, rank: str, own: str, ads: list[Any]) -> dict[str, Any]:
    try:
        job = _parsed_ad(own)
        wanted, ranked = _parsed(requirements), _parsed(rank)
    except Exception as error:
        return {"failed": str(error)[:500] or type(error).__name__}
    verdicts: list[str] = []
    ranks: list[float | None] = []
    for ad in ads:
        verdict = "m" if wanted is None else _verdict(wanted.eval(job, ad))
        verdicts.append(verdict)
        ranks.append(_number(ranked.eval(job, ad)) if verdict == "m" and ranked is not None else None)
    return {"verdicts": "".join(verdicts), "ranks": ranks}


@functools.lru_cache(_PARSED)
def _parsed_ad(text: str) -> Any:
    return classad2.ClassAd(text)


@functools.lru_cache(_PARSED)
def _parsed(text: str) -> Any:
    """Return the expression of a text; None for an empty one. A literal is an expression too."""
    return classad2.ExprTree(text) if text else None


def _verdict(value: Any) -> str:
    if value is True:
        return "m"
    if value is False:
        return "n"
    return "u" if value is classad2.Value.Undefined else "e"


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


if __name__ == "__main__":
    main()
