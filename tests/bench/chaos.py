"""Chaos as a whole: events a second of the simulated world with every promise watched, over a few seeds."""

import argparse
import time

from _grid import last_line

from koalapy.chaos.plan import EVENTS
from koalapy.chaos.run import run

BOUND = 2_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--events", type=int, default=EVENTS)
    arguments = parser.parse_args()
    happened, begun = 0, time.perf_counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        result = run(seed, arguments.events)
        if result.violation is not None:
            raise SystemExit(f"seed {seed}: {result.violation}")
        happened += result.happened
    rate = happened / (time.perf_counter() - begun)
    last_line("chaos", round(rate), "events/s", BOUND, rate >= BOUND, {"events": happened, "seeds": arguments.seeds})


if __name__ == "__main__":
    main()
