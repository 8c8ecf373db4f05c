"""koalad's side of a connection to a KCM, as both worlds have it: words, clocks, and what waits for an answer. Pure."""
