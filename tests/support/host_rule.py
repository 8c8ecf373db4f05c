"""A rule of the firewall of one host of the test grid."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from koalapy.testgrid.containers import Containers


@contextmanager
def input_rule(containers: Containers, host: str, *rule: str) -> Iterator[None]:
    """Add a rule for what the host receives, by this machine's iptables in the container's network."""
    pid = str(containers.all()[host].attrs["State"]["Pid"])
    iptables = ["nsenter", "-t", pid, "-n", "iptables"]
    subprocess.run([*iptables, "-I", "INPUT", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run([*iptables, "-D", "INPUT", *rule], check=True)
