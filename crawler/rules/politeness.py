"""When a queue may be asked again. Pure; all times in ms."""

TICK_MS = 1


def delay_ms(*, min_delay_ms: int, crawl_delay_s: float | None, delay_max_ms: int) -> int:
    """The delay of a queue: ours, or what robots.txt asks for up to a cap, whichever is longer."""
    asked = 0 if crawl_delay_s is None else min(int(crawl_delay_s * 1000), delay_max_ms)
    return max(min_delay_ms, asked)


def share_of(limit: int, sharers: int) -> int:
    """How many of the requests that an address may have open are one instance's; one at least, however many share."""
    return max(1, limit // max(1, sharers))


def wait_ms(*, delay_ms: int, factor: float, fetch_ms: int, retry_after_ms: int = 0, backoff_ms: int = 0) -> int:
    """How long to wait after the end of a request: a tick longer than asked, for clocks count whole milliseconds."""
    wait = max(delay_ms, int(factor * fetch_ms), retry_after_ms, backoff_ms)
    return wait + TICK_MS if wait else 0
