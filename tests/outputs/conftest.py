"""A real PostgreSQL server for the tests that need one."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer, running_postgres, why_not


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Shared by all tests: each takes a database of its own."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'shardcrawl[postgresql]'")
    if reason := why_not():
        pytest.skip(reason)
    with running_postgres() as server:
        yield server
