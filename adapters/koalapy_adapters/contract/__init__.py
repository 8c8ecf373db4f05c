"""The contract of every batch system's dialect, as tests: `pytest --pyargs koalapy_adapters.contract --batch NAME`.

It belongs to the grid side and to tests: koalad never pushes it, and nothing of koalapy imports it. `test_commands`,
`test_capacity`, `test_head` and `test_attempts` are live: they drive the KCM's own code on a head node over the real
connection. `test_recorded` is not: it reads answers that were recorded from live runs (`--record`), whole and cut off.

- target: one batch system, the connection to it, and its properties
- plugin: pytest's options, and how targets become tests
- parallel_runs: targets side by side, each in a thread of its own
- live: one target under test, with its logins and tags, and what must be removed afterwards
- remote_agent: takes requests as JSON lines on the head node, and calls the KCM's BatchSystem there
- remote_batch: sends these requests from the grid side
- dialogue, kcm: koalad's end of a session with a KCM
- calls: a call of BatchSystem and its answer as plain values, which are sent and recorded
"""
