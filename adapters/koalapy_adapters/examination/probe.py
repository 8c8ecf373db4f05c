"""A batch job that probes its node. It needs neither shared directory nor relay, and so can report on both."""

import base64
import json
import pkgutil
import zlib
from typing import Any, Dict, List

from koalapy_adapters.batch.protocol import BatchJob

Json = Dict[str, Any]

_UNPACK = "import sys;del sys.path[0];import zlib,base64;exec(zlib.decompress(base64.b64decode(sys.argv.pop(1))))"


class Probe(BatchJob):
    """The probe as a batch job. Its output and first directory are on every node; see `as_scripted`."""

    @property
    def output(self) -> str:
        return "/dev/null"


def as_scripted(job: BatchJob) -> BatchJob:
    """The job as its batch script needs it: a probe begins in a directory that exists on every node."""
    return job._replace(directory="/") if isinstance(job, Probe) else job


def command(python: str, directory: str, order: Json, nonce: str) -> List[str]:
    """The probe's argv. `order` is the Submit's: the relay's `addresses` and `port`, none where it is not to be tried.

    `nonce`: the program's only argument in the attempt's component.json, which the probe is to find there.
    """
    source = pkgutil.get_data("koalapy_adapters.examination", "probe_program.py") or b""
    program = base64.b64encode(zlib.compress(source, 9)).decode()
    whole = {"directory": directory, "nonce": nonce, "addresses": order["addresses"], "port": order["port"]}
    return [python, "-E", "-s", "-S", "-c", _UNPACK, program, json.dumps(whole)]
