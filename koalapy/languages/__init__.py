"""Job descriptions as text, read into requests: one module a language, found by its registered name. No I/O."""
