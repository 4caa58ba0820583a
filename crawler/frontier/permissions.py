"""The permissions that the engine's user needs: the commands of scripts and client, and whether all are given.

There is no command that tells a user what it may do. So each command is given once to a key that is there for nothing
else, in a form that changes nothing, or is taken back at once.
"""

from typing import Any

from crawler.engine.client import Engine
from crawler.errors import EngineError, EngineUnfit
from crawler.frontier.keys import CRAWLS, Keys

SHOWN = 5  # of what is missing, in a message
SCRATCH = "~permissions"
LIST_WRITTEN = f"{{{CRAWLS}}}~w"  # the key by which a replica confirms writes to the list of crawls
# In the place of a key, SCRATCH of the crawl, of a partition of it, a channel of it, and the list of all crawls.
KEY, OF_PARTITION, CHANNEL, LIST, WRITTEN = "KEY", "PARTITION", "CHANNEL", "LIST", "WRITTEN"
FORMS = """\
DEL KEY
EXISTS PARTITION
EXISTS WRITTEN
FCALL ~ 1 KEY
FUNCTION LOAD ~
GET KEY
GETRANGE KEY 0 0
HDEL KEY f
HEXISTS KEY f
HGET KEY f
HGETALL KEY
HINCRBY KEY f no-number
HKEYS KEY
HLEN KEY
HMGET KEY f
HRANDFIELD KEY
HSCAN KEY 0
HSET KEY f v no-pair
HSETNX KEY f v
UNLINK KEY
HVALS KEY
INFO server
LINDEX KEY 0
LRANGE KEY 0 0
LTRIM KEY 0 0
MGET KEY
MSET KEY v KEY
PING
PUBLISH CHANNEL ~
RENAME KEY KEY
RPUSH KEY v
UNLINK KEY
SADD KEY v
UNLINK KEY
SCAN 0 COUNT 1
SCARD LIST
SET KEY v XX
SETRANGE KEY 0 EMPTY
SISMEMBER KEY v
SMEMBERS KEY
SRANDMEMBER KEY 1
SREM KEY v
TIME
TYPE KEY
WAIT 0 1
XADD KEY NOMKSTREAM * f v
XDEL KEY 0
XLEN KEY
XRANGE KEY - +
XREVRANGE KEY + -
ZADD KEY XX 1 m
ZCARD KEY
ZCOUNT KEY 0 0
ZINCRBY KEY no-number m
ZMSCORE KEY m
ZPOPMAX KEY 1
ZRANGE KEY 0 0
ZRANGEBYLEX KEY - +
ZRANGEBYSCORE KEY 0 0
ZRANGESTORE KEY KEY 0 0
ZREM KEY m
ZREMRANGEBYRANK KEY 0 0
ZREMRANGEBYSCORE KEY 0 0
ZREVRANGE KEY 0 0
ZREVRANGEBYLEX KEY + -
ZREVRANGEBYSCORE KEY 0 0
ZSCAN KEY 0
ZSCORE KEY m
ZUNIONSTORE KEY 1 KEY
"""
WITH_ACTION = ("CLUSTER", "CONFIG", "FUNCTION")  # commands of which the second word is a permission of its own
# Used, and not tried: by their own kind of connection, of a cluster, of a URL with a database.
OTHERS = ("subscribe", "unsubscribe", "select")
OF_CLUSTERS = ("asking", "cluster|info", "cluster|slots")
WANTED = ("config|get",)  # it is assumed that all is well where nobody may look


def commands() -> list[str]:
    """All that are needed, as an ACL names them, sorted; those of clusters and those WANTED apart."""
    return sorted({*(_permission(form.split()) for form in FORMS.splitlines()), *OTHERS})


def acl_line(user: str, crawl: str) -> str:
    """The command that gives a user what a crawl needs."""
    permissions = " ".join(f"+{one}" for one in (*commands(), *OF_CLUSTERS, *WANTED))
    return (
        f"ACL SETUSER {user} on >PASSWORD ~{Keys(crawl).pattern} ~{CRAWLS} ~{LIST_WRITTEN} &{{{crawl}}}:* {permissions}"
    )


async def missing_permissions(engine: Engine, crawl: str) -> list[str]:
    """What the engine's user lacks, like "zadd" or "keys {main}:*". Raises EngineError when it does not serve."""
    keys = Keys(crawl)
    places = {
        KEY: f"{keys.tag}{SCRATCH}", OF_PARTITION: keys.of(0, SCRATCH), CHANNEL: f"{keys.hints}{SCRATCH}",
        LIST: CRAWLS, WRITTEN: LIST_WRITTEN, "EMPTY": "",
    }  # fmt: skip
    forms = [form.split() for form in FORMS.splitlines()]
    replies = await engine.replies_of([tuple(places.get(word, word) for word in form) for form in forms])
    found: dict[str, None] = {}
    for form, reply in zip(forms, replies, strict=True):
        if _is_refusal(reply):
            found[_lacking(form, str(reply), crawl)] = None
    return list(found)


async def check_permissions(engine: Engine, crawl: str) -> None:
    """Raises EngineUnfit when a permission is missing: a script stopped in its middle leaves half of what it does."""
    if missing := await missing_permissions(engine, crawl):
        raise EngineUnfit(f"{lacking_text(missing)}; 'ACL SETUSER' gives them, docs/operate/deploy.md has the line")


def lacking_text(missing: list[str]) -> str:
    """What is missing, for people."""
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return f"the user of the engine lacks permissions (NOPERM): {', '.join(missing[:SHOWN])}{more}"


def _lacking(form: list[str], reply: str, crawl: str) -> str:
    if "access a key" in reply:
        alone = {LIST: CRAWLS, WRITTEN: LIST_WRITTEN}
        return next((f"the key {key}" for word, key in alone.items() if word in form), f"keys {Keys(crawl).pattern}")
    if "channel" in reply:
        return f"channels {{{crawl}}}:*"
    return _permission(form)


def _permission(form: list[str]) -> str:
    return "|".join(form[: 1 + (form[0] in WITH_ACTION)]).lower()


def _is_refusal(reply: Any) -> bool:
    return isinstance(reply, EngineError) and "(NOPERM)" in str(reply)
