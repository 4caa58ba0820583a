"""Every pure function that takes bytes of a site, with tokens of its grammar: the growth test's table and the fuzzer's.

A function is called with inputs made of its tokens, up to `bytes_max` long. It may raise what `raises` lists, no more.
A new function that reads what a site sends gets a row in exchanges.py or pages.py.
"""

import itertools

from tests.growth import exchanges, pages

TARGETS = {target.name: target for target in itertools.chain(exchanges.rows(), pages.rows())}
