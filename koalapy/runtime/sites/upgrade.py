"""The HTTP/1.1 request that begins a link: it is upgraded to frames, which go both ways. Nothing else is served."""

from http import HTTPStatus

import h11

from koalapy.runtime.sites.tls import TlsChannel, Untrusted

LINK = "/v1/site/link"
UPGRADE = "koala-site"
_MOST = 16 << 10  # bytes of a request's or an answer's head
_READ = 1 << 16


def ask(channel: TlsChannel, host: str) -> None:
    """Ask the other side to upgrade the connection. Raises Untrusted if it does anything else, OSError if it is cut."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST)
    headers = [("Host", host), ("Connection", "Upgrade"), ("Upgrade", UPGRADE)]
    channel.write(http.send(h11.Request(method="GET", target=LINK, headers=headers)) or b"")
    answer = _next(http, channel)
    if not isinstance(answer, h11.InformationalResponse) or answer.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        raise Untrusted("no_site", "It does not answer as a koalad's site does.")
    channel.push_back(http.trailing_data[0])


def answer(channel: TlsChannel) -> None:
    """Answer a request for an upgrade, or refuse any other one. Raises Untrusted, and OSError if it is cut."""
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST)
    request = _next(http, channel)
    if not isinstance(request, h11.Request):
        raise Untrusted("garbage", "It did not send a request in HTTP.")
    http.next_event()  # the end of the request, which has no body
    target = request.target.decode("ascii", "replace")
    wanted = {value.lower() for name, value in request.headers if name == b"upgrade"}
    if request.method != b"GET" or target != LINK or wanted != {UPGRADE.encode()}:
        status = HTTPStatus.NOT_FOUND if target != LINK else HTTPStatus.UPGRADE_REQUIRED
        refusal = h11.Response(status_code=status, headers=[("Content-Length", "0"), ("Connection", "close")])
        channel.write((http.send(refusal) or b"") + (http.send(h11.EndOfMessage()) or b""))
        raise Untrusted("other_request", f"It asked for {target[:100]!r}, which is not served here.")
    headers = [("Connection", "Upgrade"), ("Upgrade", UPGRADE)]
    switch = h11.InformationalResponse(status_code=HTTPStatus.SWITCHING_PROTOCOLS, headers=headers)
    channel.write(http.send(switch) or b"")
    channel.push_back(http.trailing_data[0])


def _next(http: h11.Connection, channel: TlsChannel) -> object:
    """Return the first event of the other side. Raises Untrusted for what is not HTTP, OSError if it is cut."""
    while True:
        try:
            event = http.next_event()
        except h11.RemoteProtocolError as error:
            raise Untrusted("garbage", f"It did not send HTTP: {error}.") from error
        if event is not h11.NEED_DATA:
            return event
        data = channel.read(_READ)
        if not data:
            raise ConnectionError("it closed the connection")
        http.receive_data(data)
