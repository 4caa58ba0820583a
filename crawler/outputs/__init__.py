"""Outputs: what a crawl has found, written where people want it. A door to files and databases that are not ours.

`naming` says what a target is, `opening` opens it; a `Sink` takes rows and makes them last. `exporting` writes all
there is, once; `following` keeps targets up to date while a crawl runs.
"""
