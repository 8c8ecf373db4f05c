"""User names in `connect` that have signs of their own, as OpenSSH reads them in a URI."""

import pytest

from koalapy.config.connect import ConnectError, Ssh, parse_connect


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("ssh://ann%40corp@fs0", "ann@corp"),
        ("ssh://ann%40corp.example@fs0:22", "ann@corp.example"),
        ("ssh://CORP%5Cann@fs0", "CORP\\ann"),
        ("ssh://CORP\\ann@fs0", "CORP\\ann"),
        ("ssh://50%25@fs0", "50%"),
        ("ssh://ann@fs0", "ann"),
    ],
)
def test_percent_signs_stand_for_what_openssh_takes_them_for(text: str, user: str) -> None:
    connection = parse_connect(text)
    assert isinstance(connection, Ssh)
    assert (connection.user, connection.host) == (user, "fs0")


@pytest.mark.parametrize(
    "text", ["ssh://ann%zz@fs0", "ssh://ann%@fs0", "ssh://a%0ab@fs0", "ssh://a%ffb@fs0", "ssh://a%2Fb@fs0"]
)
def test_a_percent_sign_that_stands_for_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConnectError, match="names no user"):
        parse_connect(text)


def test_a_second_at_sign_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(ConnectError) as caught:
        parse_connect("ssh://ann@corp@fs0")
    assert "%40" in caught.value.advice
