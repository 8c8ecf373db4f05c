"""One standing connection to a KCM, whoever talks over it: frames, requests and their answers, and silence."""
