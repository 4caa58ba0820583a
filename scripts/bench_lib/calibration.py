"""The calibration loop of the engine: a fixed load on a server with the embedded engine's program.

    python -m scripts.bench_lib.calibration        prints the CPU seconds that the server took

It stores pages with links as a frontier without the crawler's own scripts would: one Lua function finds the new links
of a page and queues them, with the append-only file on. It shares only the server's program with the crawler, so its
cost is the speed of the machine for an engine today.
"""

import contextlib
import random
import sys
import time
from collections.abc import Iterator

import redis

from tests.support.engine import running_engine

PAGES = 2_000
LINKS = 50
QUEUES = 60
NAMES = 30_000  # so one link in five is new
AT_ONCE = 8  # pages in a pipeline
PAUSE_S = 0.004  # between pipelines, as a crawler is busy with pages: an engine that has to wake up costs more
LIBRARY = """#!lua name=calibration
redis.register_function('page', function(keys, args)
  for n, link in ipairs(args) do
    if redis.call('HSETNX', keys[1], link, n) == 1 then
      redis.call('ZADD', keys[2], n, link)
    end
  end
  redis.call('HINCRBY', keys[3], 'pages', 1)
  return redis.call('ZRANGE', keys[2], 0, 0)
end)
"""


def main() -> int:
    persistent = running_engine("--appendonly", "yes", "--appendfsync", "everysec")
    with persistent as engine, contextlib.closing(engine.client()) as server:
        server.function_load(LIBRARY)
        for pipeline in loads(server):
            pipeline.execute()
            time.sleep(PAUSE_S)
        found = int(server.hget("counts", "pages") or 0)  # type: ignore[arg-type]
        cpu = server.info("cpu")
    print(cpu["used_cpu_user"] + cpu["used_cpu_sys"])
    return 0 if found == PAGES else 1


def loads(server: redis.Redis) -> Iterator[redis.client.Pipeline]:
    """The same at each run."""
    chance = random.Random(1)
    for first in range(0, PAGES, AT_ONCE):
        pipeline = server.pipeline(transaction=False)
        for page in range(first, min(first + AT_ONCE, PAGES)):
            queue = page % QUEUES
            links = [f"/section/page-{chance.randrange(NAMES)}.html" for _ in range(LINKS)]
            pipeline.fcall("page", 3, f"seen:{queue}", f"queue:{queue}", "counts", *links)
        yield pipeline


if __name__ == "__main__":
    sys.exit(main())
