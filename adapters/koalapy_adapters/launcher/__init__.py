"""The Launcher: on one node, inside a batch job, it runs parameters of a sweep one after another (CCGrid 2009, 5.1)."""
