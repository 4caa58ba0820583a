"""`scripts/chaos`: crawls of a generated web, again and again, while processes, the network and the engine fail.

Prints what happened and what came of it. Exit code 0: all held; 1: something did not, with the command that repeats it.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.fleet import TIED, EngineHost, Place, ended_by_signals, running_host
from tests.chaos.lease_watch import LeaseWatch
from tests.chaos.rounds import HOMES, Round
from tests.chaos.verdict import Verdict, as_text, judge, left_in_engine
from tests.crawl.lab import DNS_SERVER, QUICK
from tests.support.processes import Nursery, nursery
from tests.support.proxy import tcp_proxy
from tests.support.serving import GeneratedSite, serve_web

APP = Path(__file__).with_name("app.py")
PARTITIONS = 64
GUESTS = 1
HOSTS = ("north", "east", "south", "south", "west")  # of the places in order; same host, same folder
SETTINGS = QUICK | {
    "CRAWLER_CRAWL_PARTITIONS": str(PARTITIONS),
    "CRAWLER_SCOPE_MODE": "any",
    "CRAWLER_FETCH_CONCURRENCY": "16",
    "CRAWLER_FETCH_TOTAL_TIMEOUT_S": "6",
    "CRAWLER_INTERNALS_FRONTIER_VISIBILITY_TIMEOUT_S": "15",
    "CRAWLER_LOG_LEVEL": "info",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do; `first` is the number of the first round, to begin where something went wrong."""

    seed: str
    seconds: float
    first: int = 1
    pace_s: tuple[float, float] = (0.5, 5.0)
    fault_s_max: float = 30.0
    domains: tuple[int, int] = (10, 16)
    pages: tuple[int, int] = (10, 60)
    delay_s: tuple[float, float] = (0.1, 0.3)
    keep: bool = False
    quiet: bool = False


def run(plan: Plan) -> Verdict:
    """All rounds, and what they add up to. Stops at the first round that shows a violation."""
    total, until, number = Verdict(), time.monotonic() + plan.seconds, plan.first
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    say = (lambda _: None) if plan.quiet else (lambda line: print(line, flush=True))
    with ended_by_signals(), nursery(SETTINGS) as programs:
        try:
            with running_host(programs, folder) as engine, name_server(programs) as dns:
                programs.environment |= {"CRAWLER_DNS_NAMESERVERS": dns}
                while True:
                    verdict = one_round(plan, number, engine, programs, folder, until, say)
                    total.add(verdict)
                    number += 1
                    if verdict.violations or time.monotonic() >= until:
                        break
        finally:
            if total.violations or plan.keep:
                print(f"files: {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{as_text(total, number - plan.first)}")
    for text in total.violations:
        print(f"VIOLATION  {text}")
    if total.violations:
        print(f"again: scripts/chaos --seed {plan.seed} --round {number - 1} --minutes {plan.seconds / 60:g}")
    return total


@contextmanager
def name_server(programs: Nursery) -> Iterator[str]:
    """Every name under .test is here."""
    command = [sys.executable, "-P", str(TIED), sys.executable, str(DNS_SERVER), "*.test=127.0.0.1"]
    program = programs.start(*command)
    yield program.wait_for(r"^\S+:\d+$")[0]
    program.kill()


def one_round(
    plan: Plan, number: int, engine: EngineHost, programs: Nursery, folder: Path, until: float, say: object
) -> Verdict:
    dice = random.Random(f"{plan.seed}/{number}/shape")
    delay_s = round(dice.uniform(*plan.delay_s), 3)
    shape = {"domains": dice.randint(*plan.domains), "pages": dice.randint(*plan.pages)}
    crawl, home = f"chaos-{number}", folder / f"round-{number}"
    has_app = number % 2 == 1
    programs.environment |= {
        "CRAWLER_POLITENESS_DELAY_S": str(delay_s),
        "CRAWLER_HANDLERS_APP": f"{APP}:app" if has_app else "",
    }
    with ExitStack() as stack:
        site = stack.enter_context(serve_web(seed=dice.randrange(1 << 30), **shape))
        places = [place_of(n, crawl, home, engine, programs, stack) for n in range(HOMES + GUESTS)]
        seed(programs, engine, home, crawl, site)
        watch = LeaseWatch(engine.socket, crawl, PARTITIONS)
        watch.start()
        stack.callback(watch.close)
        shown = f"{shape['domains']} domains, {len(site.web.expected().committed)} pages, {delay_s} s apart"
        say(f"round {number}: {shown}{', with an app' if has_app else ''}")
        log = Round(
            crawl, seed=f"{plan.seed}/{number}", site=site, engine=engine, places=places, watch=watch, until=until,
            pace_s=plan.pace_s, fault_s_max=plan.fault_s_max, say=say,
        ).run()  # fmt: skip
        folders = sorted({place.folder for place in places if place.folder.exists()})
        starts = {place.node: place.starts for place in places}
        verdict = judge(
            log, site, folders, watch, delay_s=delay_s, partitions=PARTITIONS, starts=starts, has_app=has_app
        )
        with engine.client() as client:
            verdict.charge("things left in the engine", left_in_engine(client, crawl, PARTITIONS))
        verdict.charge("findings of `crawler audit`", audit(programs, engine, folders, crawl, site))
        if verdict.violations or plan.keep:
            shutil.copy(site._log, home / "requests.jsonl")
    seconds = f"{log.mended - log.began:.0f} s of faults, finished {log.ended - log.mended:.0f} s later"
    say(f"round {number}: {len(log.incidents)} faults, {verdict.pages} pages, {seconds}; "
        f"{len(verdict.violations)} violations")  # fmt: skip
    for place in places:
        if place.state not in ("out", "finished"):
            place.kill()
    return verdict


def place_of(n: int, crawl: str, home: Path, engine: EngineHost, programs: Nursery, stack: ExitStack) -> Place:
    proxy = stack.enter_context(tcp_proxy(engine.url))
    return Place(f"node-{n}", HOSTS[n], home / HOSTS[n], proxy, crawl, programs)


def seed(programs: Nursery, engine: EngineHost, home: Path, crawl: str, site: GeneratedSite) -> None:
    place = ["--redis", engine.url, "--dir", str(home / HOSTS[0]), "--name", crawl]
    program = programs.crawler("seed", *place, *site.web.seeds)
    if program.wait(60):
        raise RuntimeError(program.err)


def audit(programs: Nursery, engine: EngineHost, folders: Sequence[Path], crawl: str, site: GeneratedSite) -> list[str]:
    """What the crawler's own audit has to say; nothing when all is clean."""
    places = [part for folder in folders for part in ("--dir", str(folder))]
    engine_of = ["--redis", engine.url, "--name", crawl]
    program = programs.crawler("audit", *places, *engine_of, "--web-log", str(site._log))
    return [] if program.wait(300) == 0 else [program.out, program.err]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=5.0, metavar="M", help="how long faults come (default 5)")
    parser.add_argument("--seed", default="", metavar="S", help="what decides the webs and the faults (default: new)")
    parser.add_argument("--round", type=int, default=1, metavar="N", help="begin with this round of the seed")
    parser.add_argument("--keep", action="store_true", help="keep all files; they are kept after a violation anyway")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the figures at the end")
    given = parser.parse_args(arguments)
    chosen = given.seed or str(random.randrange(10**6))
    print(f"seed {chosen}", flush=True)
    plan = Plan(seed=chosen, seconds=60 * given.minutes, first=given.round, keep=given.keep, quiet=given.quiet)
    return 1 if run(plan).violations else 0


if __name__ == "__main__":
    sys.exit(main())
