"""The files that a sweep's parameters left: named by templates, found by their results, some thousand at a time."""
