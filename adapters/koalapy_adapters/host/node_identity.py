"""The identity of this node: its name in the allocation, its address, and its part of the environment."""

import os
import socket
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

# Variables that batch systems set for a job. No others of the batch job's environment reach the program.
BATCH_PREFIXES = (
    "SLURM_",
    "SLURMD_",
    "SGE_",
    "PBS_",
    "LSB_",
    "LSF_",
    "FLUX_",
    "OAR_",
    "COBALT_",
)
GPU_PREFIXES = ("CUDA_VISIBLE_", "ROCR_VISIBLE_", "ZE_AFFINITY_", "GPU_DEVICE_")
# Inside a job of an allocation the variables of the batch job around it count for nothing.
ALLOCATION_JOB = "KOALA_ALLOCATION_JOB"
_ALLOCATION_PREFIXES = ("KOALA_ALLOCATION_", *GPU_PREFIXES)
_ALLOCATION_NAMES = frozenset(("HOSTNAME", "TMPDIR"))
BATCH_NAMES = frozenset(
    (
        "ARC",
        "ENVIRONMENT",
        "HOSTNAME",
        "JOB_ID",
        "JOB_NAME",
        "JOB_SCRIPT",
        "NHOSTS",
        "NQUEUES",
        "NSLOTS",
        "PE",
        "PE_HOSTFILE",
        "QUEUE",
        "REQUEST",
        "RESTARTED",
        "TASK_ID",
        "TMP",
        "TMPDIR",
    )
)


def of_batch(environment: Mapping[str, str]) -> Dict[str, str]:
    """The variables of a batch job's environment that the batch system has set."""
    inside = ALLOCATION_JOB in environment
    names = _ALLOCATION_NAMES if inside else BATCH_NAMES
    prefixes = _ALLOCATION_PREFIXES if inside else BATCH_PREFIXES + GPU_PREFIXES
    return {name: value for name, value in environment.items() if name in names or name.startswith(prefixes)}


def localized(captured: Mapping[str, str], own: Mapping[str, str]) -> Dict[str, str]:
    """The environment of the first node, changed for another node, whose own variables are `own`."""
    elsewhere = of_batch(captured)
    environment = {name: value for name, value in captured.items() if name not in elsewhere}
    environment.update(of_batch(own))
    return environment


def own_names() -> List[str]:
    """The names by which the batch system may know this node. Its own variable is first: nodes may share a machine."""
    named = [os.environ.get(name, "") for name in ("KOALA_ALLOCATION_NODE", "SLURMD_NODENAME")]
    return [name for name in [*named, os.uname().nodename, os.environ.get("HOSTNAME", "")] if name]


def own_index(names: List[str]) -> Optional[int]:
    """The index of this node among these names. A single name is always this node's."""
    return 0 if len(names) == 1 else find(names, own_names())


def find(names: Sequence[str], own: Sequence[str]) -> Optional[int]:
    """The index of the name that is one of `own`, with or without a domain."""
    for wanted in own:
        if wanted in names:
            return list(names).index(wanted)
    shortened = [name.partition(".")[0] for name in names]
    for wanted in own:
        if wanted.partition(".")[0] in shortened:
            return shortened.index(wanted.partition(".")[0])
    return None


def sources(addresses: List[str]) -> List[Tuple[str, str]]:
    """(relay's address, ours on the way there) for every address of the relay that this node has a route to.

    Connecting a datagram socket sends nothing; it only makes the kernel choose.
    """
    found = []
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
                found.append((address, str(probe.getsockname()[0])))
        except OSError:
            continue
    return found


def choose(found: List[List[str]], connected: str, fallback: str) -> str:
    """The address by which other nodes reach this one: that on the way to the relay, rather than a loopback address."""
    usable = [source for relay, source in found if not _loopback(source)]
    towards = [source for relay, source in found if relay == connected and not _loopback(source)]
    candidates = towards + usable + [source for _, source in found]
    return candidates[0] if candidates else fallback


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
