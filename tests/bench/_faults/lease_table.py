"""The table of faults of sites: what breaks, whose, over how many leases, and how it is mended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from _faults import lease_breaking as b
from _faults.lease_scene import BETWEEN, LeaseScene

Act = Callable[[LeaseScene], None]

ALL = {"north": 4, "south": 3, "west": 3}
LONGEST = "link-10m"  # the row that takes so long that tests leave it out


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One fault, which strikes so many leases of each of these lenders at once in each round.

    The borrower is the site without a cluster, or `south` over that site, if `chain`. `inject` returns when the fault
    has done its worst. `seconds`: how long the programs run once they are let go.
    """

    name: str
    fault: str
    inject: Act
    mend: Act | None = None
    lenders: Mapping[str, int] = field(default_factory=lambda: ALL)
    rounds: int = 1
    chain: bool = False
    lost_after: str = "3m"
    seconds: float = 4

    @property
    def leases(self) -> int:
        """The leases of a round."""
        return sum(self.lenders.values())

    @property
    def borrower(self) -> str:
        return "south" if self.chain else BETWEEN


ROWS = (
    LeaseRow("koalad-lender", "kill -9 of the lender's koalad", b.kill_lenders, b.lenders_up),
    LeaseRow("koalad-borrower", "kill -9 of the borrower's koalad", b.kill_borrower, b.borrower_up),
    LeaseRow(
        "koalad-between", "kill -9 of the koalad of the site between", b.kill_between, b.between_up,
        lenders={"north": 6, "west": 4}, chain=True,
    ),
    LeaseRow("link-10s", "links cut for 10 s", b.cut_for_ten_seconds, b.join_links, seconds=6),
    LeaseRow(
        "link-lost", "links cut until the lenders end their leases, with `lost_after: 1m`", b.cut_until_lost,
        b.join_links, lost_after="1m",
    ),
    LeaseRow(LONGEST, "links cut for 10 minutes", b.cut_for_ten_minutes, b.join_links),
    LeaseRow("pilot-cancelled", "the pilot's batch job is cancelled by an administrator", b.cancel_pilots),
    LeaseRow("node-lost", "a node of the lease loses its power, and comes back", b.kill_nodes, b.revive_nodes),
    LeaseRow(
        "disk-full", "the lender's shared directory full, then freed", b.fill_disk, b.free_disk,
        lenders={"south": 4}, rounds=3,
    ),
    LeaseRow("keys-replaced", "lenders and borrower replace their keys", b.rotate_keys),
)  # fmt: skip
