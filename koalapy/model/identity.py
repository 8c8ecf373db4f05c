"""Names of jobs, their attempts, and the tag by which a batch system shows an attempt of ours."""

import re
from functools import lru_cache
from typing import NamedTuple, NewType

JobId = NewType("JobId", int)
Tag = NewType("Tag", str)
InstanceId = NewType("InstanceId", str)

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter that reads like a digit
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]  # of ten bits each: a tag is made per attempt
_JOB_BITS, _COMPONENT_BITS, _NUMBER_BITS = 24, 10, 11
MAX_JOBS, MAX_COMPONENTS, MAX_ATTEMPTS = 1 << _JOB_BITS, 1 << _COMPONENT_BITS, 1 << _NUMBER_BITS
FIRST_LAUNCHER, LAUNCHERS_END = (
    MAX_JOBS // 2,
    MAX_JOBS // 4 * 3,
)  # the third quarter of the ids of jobs is for Launchers
INSTANCE_LENGTH, _ATTEMPT_LENGTH = 5, 9
_TAG = re.compile(f"k[{_ALPHABET}]{{{INSTANCE_LENGTH + _ATTEMPT_LENGTH}}}")


class AttemptId(NamedTuple):
    """An attempt: `7.0.2` is the second one of component 0 of job 7.

    A Launcher is the only attempt of its number. `p12` is the twelfth of a store.
    """

    job: JobId
    component: int
    number: int

    def __str__(self) -> str:
        if self.job >= FIRST_LAUNCHER:
            return f"p{self.job - FIRST_LAUNCHER + 1}"
        return f"{self.job}.{self.component}.{self.number}"


def launcher_id(number: int) -> AttemptId:
    """Return the id of the Launcher of this number, which is at least FIRST_LAUNCHER."""
    return AttemptId(JobId(number), 0, 1)


def launcher_named(text: str) -> AttemptId | None:
    """Return the Launcher of a text such as `p12`; None for any other text."""
    if not text.startswith("p") or not text[1:].isdecimal() or not text[1:].isascii():
        return None
    found = launcher_id(FIRST_LAUNCHER + int(text[1:]) - 1)
    return found if found.job < LAUNCHERS_END and str(found) == text else None


def instance_id(entropy: bytes) -> InstanceId:
    """Return a store's name: five base-32 characters of the given bytes, of which there are at least four."""
    return InstanceId(_base32(int.from_bytes(entropy, "big") % (1 << 5 * INSTANCE_LENGTH), INSTANCE_LENGTH))


@lru_cache(maxsize=1 << 12)
def tag_of(instance: InstanceId, attempt: AttemptId) -> Tag:
    """Return the batch job's name: `k`, 5 characters of the store, 9 of the attempt.

    These 15 characters are within Torque's limit, and follow Grid Engine's rules.
    """
    packed = (attempt.job << _COMPONENT_BITS | attempt.component) << _NUMBER_BITS | attempt.number
    return Tag(f"k{instance}{_base32(packed, _ATTEMPT_LENGTH)}")


def tags_of(instance: InstanceId, job: JobId) -> tuple[Tag, Tag]:
    """Return the first and the last tag that an attempt of the job can have.

    In text order, all its tags lie between.
    """
    last = AttemptId(job, MAX_COMPONENTS - 1, MAX_ATTEMPTS - 1)
    return tag_of(instance, AttemptId(job, 0, 0)), tag_of(instance, last)


def origin_of_site(neighbour: str) -> str:
    """Return the name of a neighbour as an origin of events, which no cluster can have."""
    return f"site:{neighbour}"


def site_of(origin: str) -> str:
    """Return the neighbour of an origin for which `is_site` holds."""
    return origin.partition(":")[2]


def is_site(origin: str) -> bool:
    """Return whether this origin of events is a neighbouring site, and no cluster."""
    return origin.startswith("site:")


def is_tag(name: str) -> bool:
    """Return whether a batch job of this name could be koalapy's, of any store."""
    return _TAG.fullmatch(name) is not None


def attempt_of(tag: Tag) -> tuple[InstanceId, AttemptId]:
    """Return the store and the attempt that a tag names. Raises ValueError for any other text."""
    if not is_tag(tag):
        raise ValueError(f"{tag!r} is not a tag of koalapy")
    packed = 0
    for character in tag[1 + INSTANCE_LENGTH :]:
        packed = packed << 5 | _ALPHABET.index(character)
    packed, number = divmod(packed, MAX_ATTEMPTS)
    job, component = divmod(packed, MAX_COMPONENTS)
    return InstanceId(tag[1 : 1 + INSTANCE_LENGTH]), AttemptId(JobId(job), component, number)


def _base32(number: int, length: int) -> str:
    pairs, rest = divmod(length, 2)
    text = "".join([_PAIRS[number >> shift & 1023] for shift in range(10 * (pairs - 1), -1, -10)])
    return _ALPHABET[number >> 10 * pairs & 31] + text if rest else text
