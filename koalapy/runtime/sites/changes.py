"""Changes of a site's neighbours while koalad runs: by command, and by a grid file that is read again."""

import json
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

import structlog

from koalapy.config import Site
from koalapy.config.site import Invitation, read_invitation, with_neighbours
from koalapy.model.errors import RequestError
from koalapy.model.neighbour import Relation
from koalapy.runtime.current_grid import replace_file
from koalapy.runtime.sites.certificate import make_identity, write_identity
from koalapy.runtime.sites.link import Address
from koalapy.runtime.sites.links import SiteLinks

_LOG = structlog.get_logger()
_SOURCE = "the command"
_ANY = ("0.0.0.0", "::")  # not an address of one host
FILE = "neighbours.json"
Values = Mapping[str, Mapping[str, str]]  # by neighbour its values by key, as a grid file has them


class SiteChanges:
    """The neighbours of one site. Any thread may call it; every call blocks until its change is in force."""

    def __init__(self, site: Site, links: SiteLinks, state_directory: Path) -> None:
        """`site`: as the grid file has it. Raises RequestError if the file of added neighbours cannot be used."""
        self.links = links
        self._file, self._state = site, state_directory
        self._added = _load(state_directory)
        self._site = with_neighbours(site, self._added, str(state_directory / FILE))
        self._lock = threading.Lock()

    # ---- queries

    @property
    def addresses(self) -> dict[str, tuple[Relation, Address]]:
        """The relation and address of each neighbour."""
        return {
            name: (each.relation, Address(url=each.url, pins=(each.pin,)))
            for name, each in self._site.neighbours.items()
        }

    def is_of_file(self, name: str) -> bool:
        """Return whether the grid file has this neighbour."""
        return name in self._file.neighbours

    def invitation(self, guest: str, relation: Relation, url: str | None = None) -> Invitation:
        """Return what `guest` needs to make this site its neighbour. `relation`: what `guest` is to this site.

        `url`: where this site is reached, if it is not at its `listen`. Raises RequestError for this site's own
        name, and KoalaError if its key cannot be read.
        """
        own = self._site.name
        if guest.casefold() == own.casefold():
            raise RequestError("own_name", f"{guest} is this site itself.", "Name the site that is to join.")
        return Invitation(own, guest, relation.reverse, self.links.identity().pin, url or self._own_url())

    def _own_url(self) -> str | None:
        address = self._site.listens_on
        if address is None:
            return None
        host = socket.getfqdn() if address.host in _ANY else address.host
        host = f"[{host}]" if ":" in host else host
        return f"https://{host}:{self.links.port}"

    # ---- changes

    def join(self, line: str, replace: bool = False) -> Invitation:
        """Make the site of the line a neighbour, which is kept over restarts. Returns the line to answer with.

        `replace`: take the line's key in place of another one. Raises RequestError, or OurError if the file cannot be
        written; then nothing has changed.
        """
        invitation = read_invitation(line)
        name = invitation.site
        with self._lock:
            self._check(invitation, replace)
            added = {**self._added, name: invitation.values}
            others = {each: values for each, values in added.items() if each != name}
            base = with_neighbours(self._file, others, _SOURCE)
            self._use(added, with_neighbours(base, {name: invitation.values}, f"{_SOURCE}'s line"))
        return self.invitation(name, invitation.relation)

    def _check(self, invitation: Invitation, replace: bool) -> None:
        name, known = invitation.site, self._site.neighbours.get(invitation.site)
        if invitation.guest != self._site.name:
            message = f"This line is for a site {invitation.guest}, and this one is {self._site.name}."
            raise RequestError("other_site", message, f"Ask {name} for a line: `koala sites invite {self._site.name}`.")
        if known is not None and self.is_of_file(name) and known.pin != invitation.pin:
            message = f"The grid file has {name} as a neighbour, with another key."
            raise RequestError("of_grid_file", message, "Change its `pin` there, then `koala reload`.")
        if known is not None and known.pin != invitation.pin and not replace:
            message = f"{name} is a neighbour already, with another key."
            advice = "If its people confirm that it has a new one: `koala sites join --replace LINE`."
            raise RequestError("other_key", message, advice)

    def remove(self, name: str) -> None:
        """End the link with a neighbour, and forget what is known of it. Raises KoalaError; then nothing changes."""
        with self._lock:
            if name not in self._site.neighbours:
                known = ", ".join(sorted(self._site.neighbours)) or "none"
                raise RequestError("no_such_neighbour", f"There is no neighbour {name}.", f"Known: {known}.")
            if self.is_of_file(name):
                message = f"The neighbour {name} is in the grid file."
                raise RequestError("of_grid_file", message, "Remove it there, then `koala reload`.")
            added = {each: values for each, values in self._added.items() if each != name}
            self._use(added, with_neighbours(self._file, added, _SOURCE))

    def rotate(self) -> list[Invitation]:
        """Replace this site's key. Returns the line that each neighbour has to join now. Raises KoalaError."""
        with self._lock:
            write_identity(self.links.site.certificate, make_identity(self._site.name), replace=True)
            _LOG.info("key_replaced", site=self._site.name, pin=self.links.identity().pin)
            self.links.renew_sessions()
            return [self.invitation(name, each.relation) for name, each in self._site.neighbours.items()]

    def check(self, site: Site) -> None:
        """Raises RequestError if the neighbours of a grid file cannot be used with those that were added."""
        with_neighbours(site, self._added, FILE)

    def read_again(self, site: Site) -> None:
        """Use the neighbours of a grid file that was read again. Raises KoalaError."""
        with self._lock:
            added = {name: values for name, values in self._added.items() if name not in site.neighbours}
            found = with_neighbours(site, added, FILE)
            self._file = site
            self._use(added, found)

    def _use(self, added: Values, site: Site) -> None:
        if added != self._added:
            replace_file(self._state / FILE, {"neighbours": added})
        self._added, self._site = added, site
        self.links.use(self.addresses)


def _load(state_directory: Path) -> Values:
    """Return the neighbours that were added by command, from their file; without a file there are none.

    Raises RequestError if it cannot be read.
    """
    path = state_directory / FILE
    try:
        found = json.loads(path.read_text())["neighbours"]
        return {str(name): {str(key): str(each) for key, each in values.items()} for name, values in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{path} with the neighbours that were added by command cannot be read: {error}."
        raise RequestError(
            "unreadable_neighbours", message, "Correct it, or remove it and join these sites again."
        ) from error
