"""When Python looks for garbage cycles: not while a program is imported, and seldom from then on.

Imports are containers by the ten thousand that stay: looking through them again and again takes 50 ms of a crawl's
start. The pipeline makes hardly any cycles; with Python's own threshold the looks take 5 % of a crawl.
"""

import gc

# Containers allocated between two looks; Python's own: 700.
_AT_START = 500_000  # three times what a crawl imports
_THEN = 50_000


def put_off() -> None:
    """Don't look while this program is imported. What runs for long says `look_seldom` then."""
    gc.set_threshold(_AT_START, 20, 50)


def is_put_off() -> bool:
    return gc.get_threshold()[0] == _AT_START


def look_seldom() -> None:
    """From now on; what there is now counts as needed."""
    gc.freeze()
    gc.set_threshold(_THEN, 20, 50)
