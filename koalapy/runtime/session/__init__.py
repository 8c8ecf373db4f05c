"""A session over one open connection to a KCM: frames, requests and answers, and time-outs."""
