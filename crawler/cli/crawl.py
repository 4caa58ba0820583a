"""`crawler crawl`: seed, crawl, end by itself."""

import argparse
import asyncio
import signal

from crawler.settings import load


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    p = commands.add_parser("crawl", help="crawl sites from seed URLs until nothing is left")
    p.add_argument("urls", nargs="*")
    p.add_argument("--allow-private", action="store_true", default=None)
    p.add_argument("--delay", type=float)
    p.add_argument("--concurrency", type=int)
    p.add_argument("--concurrency-per-queue", type=int)
    p.add_argument("--scope")
    p.add_argument("--include", action="append")
    p.add_argument("--dir")
    p.add_argument("-o", "--output")
    p.set_defaults(run=run)


def run(a: argparse.Namespace) -> int:
    settings = load(options={"fetch.allow_private": a.allow_private, "politeness.delay_s": a.delay, "archive.dir": a.dir,
      "fetch.concurrency": a.concurrency, "politeness.concurrency_per_queue": a.concurrency_per_queue, "scope.mode": a.scope, "scope.include": a.include})
    import uvloop
    return uvloop.run(_run(a, settings))


async def _run(a, settings):
    from crawler.app import open_crawl, open_instance, choose_node
    from crawler.instance.seeding import GivenUrl
    async with open_crawl(settings, create=True) as crawl:
        r = await crawl.seeder().add_all([GivenUrl("argument", u) for u in a.urls]); print(r)
        crawl = await crawl.reloaded()
        node = await choose_node(crawl, may_move=False)
        async with open_instance(crawl, node=node, until_finished=True) as instance:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, instance.stop)
            await instance.run()
            print(instance.stopped_because, instance.flow.committed, instance.flow)
        print(await crawl.stats.totals())
    if a.output:
        from crawler.archive.export import export
        export(crawl.folder, [a.output])
    return 0
