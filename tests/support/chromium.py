"""Debian's Chromium, driven by Playwright: for tests that compare with it, or look at pages in it.

    async with chromium() as browser:
        page = await browser.new_page()

Without it these tests are skipped, and say so. The product never needs it.
"""

import contextlib
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Browser

PROGRAM = Path("/usr/bin/chromium")
MISSING = "" if PROGRAM.exists() and find_spec("playwright") else "needs the packages chromium of Debian and playwright"
needs_chromium = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@contextlib.asynccontextmanager
async def chromium(hosts: str = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1") -> "AsyncIterator[Browser]":
    """A browser without a window. `hosts`: where names lead to."""
    from playwright.async_api import async_playwright

    arguments = ["--no-sandbox", f"--host-resolver-rules={hosts}"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()
