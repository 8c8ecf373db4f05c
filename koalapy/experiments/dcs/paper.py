"""The DCS paper's systems, its five experiments and their measurements (sections 4.1, 4.3 and 4.4)."""

from typing import NamedTuple

JOBS, COMPONENTS = 40, 4
PROCESSORS_PER_NODE = 2

SYSTEMS = {  # nodes; the paper counts processors
    "144+64": {"vu": 72, "delft": 32},
    "144+3x64": {"vu": 72, "delft": 32, "leiden": 32, "uva": 32},
    "144+4x64": {"vu": 72, "delft": 32, "leiden": 32, "uva": 32, "utrecht": 32},
}
WHOLE = "144+4x64"  # all of DAS-2, which the paper's own experiments did not have


class Case(NamedTuple):
    """One batch: jobs of `kind` whose components have `size` processors each."""

    system: str
    size: int
    kind: str
    queue: str
    placement: str


class Measured(NamedTuple):
    """Seconds, as average and standard deviation, as given under a figure of the paper."""

    figure: str
    response: tuple[float, float]
    run: tuple[float, float]
    overhead: tuple[float, float]


MEASURED = {
    Case("144+3x64", 8, "unordered", "fcfs", "worst-fit"): Measured(
        "figure 2", (377.2, 177.2), (79.4, 29.8), (32.9, 17.8)
    ),
    Case("144+64", 8, "unordered", "fcfs", "worst-fit"): Measured(
        "figure 3, top", (581.3, 295.2), (102.1, 12.5), (25.4, 3.5)
    ),
    Case("144+64", 4, "unordered", "fcfs", "worst-fit"): Measured(
        "figure 3, bottom", (267.2, 108.2), (76.8, 17.0), (26.9, 3.2)
    ),
    Case("144+64", 8, "ordered", "fcfs", "worst-fit"): Measured(
        "figure 4, top", (1135.2, 611.1), (87.8, 10.0), (21.9, 3.4)
    ),
    Case("144+64", 8, "mixed", "fpfs", "worst-fit"): Measured(
        "figure 4, bottom", (634.7, 335.3), (92.4, 15.6), (25.3, 6.5)
    ),
}
