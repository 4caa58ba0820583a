"""Every pure function that takes bytes of a site, with tokens of its grammar: the growth test's table and the fuzzer's.

A function is called with inputs made of its tokens, up to `bytes_max` long. It may raise what `raises` lists, no more.
A new function that reads what a site sends gets a row in exchanges.py or pages.py.
"""

import itertools

from tests.growth import exchanges, pages
from tests.growth.target import Target
from tests.handlers.users_code import run_alone

TARGETS = {target.name: target for target in itertools.chain(exchanges.rows(), pages.rows())}
# For the fuzzer alone: each byte is a step, and what one step costs has nothing to do with their number.
CODE = {
    "users_code": Target(
        name="users_code", function=run_alone, tokens=tuple(bytes([n]) for n in range(256)), bytes_max=200,
        is_timed=False,
    )
}  # fmt: skip
