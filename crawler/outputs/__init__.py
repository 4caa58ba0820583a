"""Outputs: what a crawl has found, written where people want it. A door to files and databases that are not ours.

`target` says what a target is, `opening` opens it; a `Sink` takes rows and makes them last. `export` writes all
there is, once; `follow` keeps targets up to date while a crawl runs.
"""
