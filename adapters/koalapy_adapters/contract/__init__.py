"""What every batch system's dialect must hold, as tests: `pytest --pyargs koalapy_adapters.contract --batch NAME`.

Grid side and tests only: never pushed, and nothing of koalapy imports it. Two halves. `test_commands`,
`test_capacity`, `test_head` and `test_attempts` are live: they drive the KCM's own code on a head node over the real
connection. `test_recorded` is not: it reads answers that were recorded from live runs (`--record`), whole and cut off.

target           one batch system, the connection to it, and its properties
plugin           pytest's options, and how targets become tests
parallel_runs    targets side by side, each in a thread of its own
live             one target under test: logins, tags, and what must be removed afterwards
remote_agent     runs on the head node: the KCM's BatchSystem, asked by JSON lines
remote_batch     the other end of that conversation
talk, kcm        koalad's end of a conversation with a KCM
calls            a call of BatchSystem and its answer as plain values, which travel and are recorded
"""
