"""What every batch system's dialect must hold, as tests: `pytest --pyargs koalapy_adapters.contract --batch NAME`.

Grid side and tests only: never pushed, and nothing of koalapy imports it. Two halves. `test_commands`,
`test_capacity`, `test_head` and `test_attempts` are live: they drive the KCM's own code on a head node over the real
connection. `test_recorded` is not: it reads answers that were recorded from live runs (`--record`), whole and cut off.

row          one batch system, the way to it, and what it is like
plugin       pytest's options, and how rows become tests
lanes        rows side by side, each in a thread of its own
live         one row while it is tried: logins, tags, and whatever has to be tidied up
servant      runs on the head node: the KCM's BatchSystem, asked by JSON lines
far          the other end of that
talk, kcm    koalad's end of a conversation with a KCM
calls        a call of BatchSystem and its answer, as plain values: what travels, and what is recorded
"""
