"""What the scope of a crawl was at each version: who judges links later must not take what came in afterwards."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from crawler.engine.client import Engine as Connection
from crawler.errors import ConflictError
from crawler.frontier.keys import Keys
from crawler.frontier.record import Crawls, ScopeHistory, record_of
from crawler.frontier.scripts import library
from crawler.routing.recent_urls import RecentUrls
from crawler.routing.router import Router
from crawler.rules.scope import ScopeRules
from crawler.settings import ScopeSettings, load
from tests.support.engine import Engine


@pytest.fixture
async def crawls(engine: Engine) -> AsyncIterator[Crawls]:
    door = Connection(engine.url, library())
    await door.connect()
    yield Crawls(door, Keys("t"))
    await door.close()


async def test_a_crawl_that_the_engine_lost_is_said_to_be_lost_with_what_brings_it_back(crawls: Crawls) -> None:
    record = await crawls.create_or_load(load(environment={}))
    assert (await crawls.shared())[0].begun_at == record.begun_at
    await crawls._engine.command("FLUSHALL")
    for ask in (crawls.shared, lambda: crawls.versions(record)):
        with pytest.raises(ConflictError, match=r"lost the crawl 't' .* 'crawler rebuild' restores it"):
            await ask()


async def test_each_root_has_the_version_it_came_with_and_keeps_it(crawls: Crawls) -> None:
    await crawls.create_or_load(load(environment={}))
    assert await crawls.history() == ScopeHistory(roots={}, rules=())
    await crawls.add_roots(["domain:a.test", "domain:b.test"])
    await crawls.add_roots(["domain:b.test", "domain:c.test"])
    await crawls.add_roots(["domain:a.test"])
    history = await crawls.history()
    assert history.roots == {"domain:a.test": 1, "domain:b.test": 1, "domain:c.test": 2}
    assert await crawls.version() == 2


async def test_rules_that_were_replaced_are_kept_with_the_version_up_to_which_they_held(crawls: Crawls) -> None:
    await crawls.create_or_load(load(environment={}, options={"scope.depth_max": 1}))
    await crawls.add_roots(["domain:a.test"])
    await crawls.change_settings({"scope.depth_max": 5})
    assert (await crawls.history()).rules == ((1, ScopeSettings(depth_max=1)),)
    assert await crawls.version() == 2


async def test_a_router_takes_over_newer_rules_never_older_ones_and_forgets_no_root(crawls: Crawls) -> None:
    """A root that this instance added is known here before it is read; an answer that was slow is older than it."""
    await crawls.create_or_load(load(environment={}))
    await crawls.add_roots(["domain:a.test"])
    slow = await crawls.shared()
    router = Router(slow[0], ScopeRules.of(slow[0].scope, slow[1]), RecentUrls(0))
    await crawls.add_roots(["domain:b.test"])
    router.scope = router.scope.with_roots(["domain:b.test"])
    router.follow(*slow)
    assert router.scope.allows("http://b.test/")
    changed = msgspec.structs.replace(slow[0], version=2, scope=ScopeSettings(depth_max=3))
    router.follow(changed, slow[1])
    router.follow(*slow)
    assert (router.version, router.scope.depth_max) == (2, 3)
    assert router.scope.allows("http://b.test/")


@pytest.mark.parametrize("scope", [None, 1, [], {"mode": "site"}, {"unknown": 1}])
def test_what_is_no_scope_is_no_record(scope: object) -> None:
    whole = {"layout": 1, "partitions": 1, "begun_at": 1.0, "queue_by": "host", "run": 0, "hash_key": "", "scope": {}}
    assert record_of(whole).partitions == 1
    for stored in (whole | {"scope": scope}, {key: value for key, value in whole.items() if key != "scope"}):
        with pytest.raises(msgspec.ValidationError):
            record_of(stored)
