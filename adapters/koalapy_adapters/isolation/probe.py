"""Whether programs can be isolated on this node, found out by isolating one. The part `isolation`:

    isolation METHOD [DIRECTORY…]

METHOD and the visible directories are those of Isolation. It prints one line of JSON: the node, and the fields of
ProbeResult.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Dict, List, NamedTuple, Sequence

from koalapy_adapters.isolation import sandbox
from koalapy_adapters.isolation.options import BWRAP, Isolation

_PATIENCE_S = 15.0
_WORDS = 300
_INSTALL = {BWRAP: "bwrap is not installed"}


class ProbeResult(NamedTuple):
    """The methods that work on this node, the best first, and the reasons why others do not."""

    methods: List[str]
    refused: Dict[str, str]

    @property
    def why(self) -> str:
        """The reasons, as one text."""
        return "; ".join("%s: %s" % each for each in self.refused.items())


def main(argv: List[str]) -> int:
    """Print the methods that work on this node. Returns 0, or 2 for wrong usage."""
    if not argv:
        sys.stderr.write("usage: isolation METHOD [DIRECTORY…]\n")
        return 2
    private = tempfile.mkdtemp(prefix="koala-isolation-")
    try:
        result = probe(
            Isolation(argv[0], argv[1:]), [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0])], private
        )
    finally:
        shutil.rmtree(private, ignore_errors=True)
    document = {"node": os.uname()[1], "methods": result.methods, "refused": result.refused}
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def probe(options: Isolation, own: Sequence[str], private: str) -> ProbeResult:
    """Try all methods that the options allow. `own` starts the pushed file; `private`: a directory for this alone.

    It takes the time of a start of Python for each, and raises nothing.
    """
    result = ProbeResult([], {})
    try:
        attempt = os.path.join(private, "probe")
        os.makedirs(os.path.join(attempt, "work"), mode=0o700, exist_ok=True)
        with open(os.path.join(attempt, "rendezvous"), "w"):
            pass
        for each in options.methods:
            why = _try(sandbox.build(options._replace(method=each), attempt, private, own))
            if why:
                result.refused[each] = why
            else:
                result.methods.append(each)
    except OSError as error:
        result.refused["preparation"] = error.strerror or str(error)
    return result


def _try(built: sandbox.Sandbox) -> str:
    """Return why the first process of a program cannot be isolated so; "" if it can."""
    argv = built.argv([*built.own, "inside"])
    try:
        done = subprocess.run(
            argv, input=b"", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/",
            env=built.variables(), timeout=_PATIENCE_S,
        )  # fmt: skip
    except FileNotFoundError:
        return _INSTALL.get(built.options.method, "%s is not there" % argv[0])
    except subprocess.TimeoutExpired:
        return "it did not answer within %d s" % _PATIENCE_S
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1][-_WORDS:].rstrip(".") if lines else "it ended with status %d" % done.returncode
    return last if done.returncode > 0 else "it was ended by %s" % signal.Signals(-done.returncode).name
