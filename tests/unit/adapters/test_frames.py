"""Frames that wait together go out together, up to a bound."""

from collections import deque

from koalapy_adapters.frames import MAX_CHUNK, Control, Decoder, encode, together


def test_what_waits_is_one_write_and_comes_out_as_it_went_in() -> None:
    waiting = deque(encode(Control({"number": number})) for number in range(100))
    data = together(waiting)
    assert not waiting
    assert Decoder().feed(data) == [Control({"number": number}) for number in range(100)]


def test_a_write_has_a_bound_but_for_a_frame_that_is_larger() -> None:
    waiting = deque([b"a" * (MAX_CHUNK + 1), b"b" * (MAX_CHUNK - 1), b"c", b"d"])
    assert together(waiting) == b"a" * (MAX_CHUNK + 1)
    assert together(waiting) == b"b" * (MAX_CHUNK - 1) + b"c"
    assert together(waiting) == b"d"
