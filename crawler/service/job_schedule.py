"""The schedule of a job as somebody changes it: what is given replaces what there was, and the rest stays."""

from msgspec.structs import replace

from crawler.rules.schedules import Schedule, as_iso, interval_of, schedule_of


def changed_schedule(
    earlier: Schedule | None,
    *,
    every: str = "",
    cron: str = "",
    at: str = "",
    timezone: str = "",
    jitter_s: float | None = None,
    is_once: bool = False,
    now_s: int,
) -> Schedule:
    """A schedule of what is given, and otherwise of the earlier one; "" and None: not given. Raises UsageError.

    `is_once`: `every` is how long from now it runs, once. An interval that is as it was keeps its times.
    """
    timezone = timezone or (earlier.timezone if earlier else "UTC")
    if jitter_s is None:
        jitter_s = earlier.jitter_s if earlier else 0.0
    if every and is_once:
        every, at = "", as_iso(now_s + interval_of(every))
    if earlier and not (every or cron or at):
        if (timezone, jitter_s) == (earlier.timezone, earlier.jitter_s):
            return earlier
        every, cron = f"{earlier.every_s}" if earlier.every_s else "", earlier.cron
        at = as_iso(earlier.at_s) if earlier.at_s else ""
    found = schedule_of(every=every, cron=cron, at=at, timezone=timezone, jitter_s=jitter_s, now_s=now_s)
    if earlier and found.every_s and found.every_s == earlier.every_s:
        found = replace(found, anchor_s=earlier.anchor_s)
    return found
