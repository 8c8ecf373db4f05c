"""Posts a notification to a webhook, and judges from its answer or error whether it was taken."""

import logging
import ssl

import httpx

from koalapy.model.errors import Reason
from koalapy.model.notification import Outcome, Webhook
from koalapy.runtime.notifications.content import USER_AGENT

_PHASE_S = 10.0  # to connect, and to write or read anything
_NOT_TAKEN = {408, 425, 429, 500, 503}  # the server reports that it has not handled the request
_MAY_BE_TAKEN = {502, 504}  # of a gateway, which may have passed the request on
_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_UNUSABLE = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_AGAIN = "koalad tries again, with longer and longer waits between."
_ONCE = "It is not sent again, since it may have arrived."

logging.getLogger("httpx").setLevel(logging.WARNING)  # its lines for each request have the whole URL


async def post(to: Webhook, document: bytes, identity: str, trust: ssl.SSLContext) -> tuple[Outcome, Reason | None]:
    """Post a document. Returns the outcome and, unless it was sent, the reason, which never quotes the URL.

    No redirect is followed, and the body of the answer is not read. The caller bounds the time of the whole call.
    `identity` lets the server drop a request that it had before. `trust`: the authorities for HTTPS.
    """
    headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT, "Idempotency-Key": identity}
    async with httpx.AsyncClient(timeout=_PHASE_S, follow_redirects=False, verify=trust) as client:
        try:
            async with client.stream("POST", to.url, content=document, headers=headers) as response:
                return _judge(to, response)
        except _NOT_CONNECTED as error:
            return Outcome.NOT_TAKEN, _reason(to, f"could not be reached ({error or type(error).__name__})", _AGAIN)
        except _UNUSABLE as error:
            return Outcome.REFUSED, _reason(to, f"cannot be used ({type(error).__name__})", "Correct its URL.")
        except httpx.HTTPError as error:
            return Outcome.UNKNOWN, _reason(to, f"gave no answer ({type(error).__name__})", _ONCE)


def _judge(to: Webhook, response: httpx.Response) -> tuple[Outcome, Reason | None]:
    status = response.status_code
    if 200 <= status < 300:
        return Outcome.SENT, None
    answered = f"answered with HTTP {status}"
    if status in _NOT_TAKEN:
        return Outcome.NOT_TAKEN, _reason(to, answered, _AGAIN)
    if status in _MAY_BE_TAKEN:
        return Outcome.UNKNOWN, _reason(to, answered, _ONCE)
    if 300 <= status < 400:
        return Outcome.REFUSED, _reason(to, f"{answered}, a redirect, which is not followed", "Give its final URL.")
    return Outcome.REFUSED, _reason(to, answered, "Check its URL, and whether its server takes a POST of JSON.")


def _reason(to: Webhook, what: str, advice: str) -> Reason:
    return Reason("webhook_failed", "transient", f"The {to} {what}.", advice)
