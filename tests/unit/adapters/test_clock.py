"""The clocks of both halves: what they count, and how they notice that the host has slept."""

import sys
import time

import pytest
from koalapy_adapters import clock
from koalapy_adapters.clock import SECOND, SleepWatch

from koalapy.runtime.clock import SystemClock


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no CLOCK_BOOTTIME")
def test_time_goes_on_while_the_host_sleeps() -> None:
    """By the one clock of Linux that counts it; its number is what Python 3.6 has to go by."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    elapsed = clock.elapsed()
    assert before <= elapsed <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert time.clock_gettime(7) >= elapsed
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    assert abs(clock.slept() / SECOND - asleep) < 1, "the two clocks are read one after the other"


def test_both_clocks_begin_with_the_systems_time_and_never_run_backwards() -> None:
    koalads, before = SystemClock(), time.time()
    readings = [clock.now(), koalads.now(), clock.now(), koalads.now()]
    assert readings[0] <= readings[2]
    assert readings[1] <= readings[3]
    assert abs(readings[1] / SECOND - before) < 60
    assert koalads.slept() == 0


def test_a_sleep_is_noticed_once_and_whole() -> None:
    slept = [5 * SECOND]
    watch = SleepWatch(lambda: slept[0])
    assert watch.look() == 0, "what was before it looked is nothing to it"
    slept[0] += 3600 * SECOND
    assert watch.look() == 3600 * SECOND
    assert watch.look() == 0


def test_less_than_two_seconds_are_no_sleep_until_they_add_up() -> None:
    slept = [0]
    watch = SleepWatch(lambda: slept[0])
    slept[0] += 2 * SECOND - 1
    assert watch.look() == 0
    slept[0] += 1
    assert watch.look() == 2 * SECOND


def test_a_reading_that_was_held_up_makes_no_sleep_later() -> None:
    """A process that is stopped between its two readings sees less than was slept."""
    slept = [10 * SECOND]
    watch = SleepWatch(lambda: slept[0])
    slept[0] = 4 * SECOND
    assert watch.look() == 0
    slept[0] = 10 * SECOND
    assert watch.look() == 0
