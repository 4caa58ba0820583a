"""Throws random mixes of tokens at every function that reads a site's bytes. See `scripts/fuzz --help`.

A finding is an exception that the function's row does not list, more CPU time than the bound, time that grows faster
than the input, or more memory than the bound. Each is written to a file that the same command takes as --input.
"""

import argparse
import logging
import random
import sys
import time
import traceback
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.growth.growing import STEP_RATIO_MAX
from tests.growth.mixing import input_of
from tests.growth.target import Target
from tests.growth.targets import CODE, TARGETS
from tests.support.growth import cpu_s

CALL_S_MAX = 1.5  # of CPU, for the longest input
JUDGED_S = 0.05  # calls that take less are not measured again for their growth
LENGTHENED = 4  # inputs are up to this many times as long as those of the growth test
SAMPLED_PARTS = 100
MEMORY_BYTES_MAX = 64 * 1024 * 1024  # besides FACTOR times the input: a limit of 10 MiB and what is made of it
MEMORY_FACTOR = 250
TRACED_EVERY = 16  # calls; tracing makes them some times as slow


class Finding(NamedTuple):
    target: str
    what: str
    data: bytes


def main() -> int:
    arguments = _arguments()
    logging.disable(logging.CRITICAL)
    known = {**TARGETS, **CODE}
    targets = [known[name] for name in arguments.target or known]
    if arguments.input:
        data = arguments.input.read_bytes()
        found = [
            found for target in targets for traced in (False, True) if (found := judged(target, data, traced=traced))
        ]
        return _reported(found, arguments.out)
    random_ = random.Random(arguments.seed)
    print(f"seed {arguments.seed}, {len(targets)} targets, {arguments.minutes:g} min", flush=True)
    end = time.monotonic() + 60 * arguments.minutes
    tried: Counter[str] = Counter()
    worst: dict[str, float] = {}
    found: list[Finding] = []
    while time.monotonic() < end and len(found) < arguments.findings_max:
        target = targets[tried.total() % len(targets)]
        size = random_.randint(1, target.bytes_max * (LENGTHENED if random_.random() < 0.2 else 1))
        data = input_of(target, random_, size)
        tried[target.name] += 1
        began = time.thread_time()
        finding = judged(target, data, traced=tried[target.name] % TRACED_EVERY == 0)
        worst[target.name] = max(worst.get(target.name, 0.0), time.thread_time() - began)
        if finding and not any((finding.target, finding.what[:60]) == (one.target, one.what[:60]) for one in found):
            found.append(finding)
            print(f"found: {finding.target}: {finding.what}", flush=True)
    for name, count in tried.items():
        print(f"{name:16} {count:7,} inputs, slowest {worst[name] * 1000:.0f} ms")
    return _reported(found, arguments.out)


def quarters_of(data: bytes) -> tuple[bytes, bytes, bytes]:
    """The first and the last quarter, and the beginnings of a hundred parts: as a rule one of them means what the whole
    means. A robots.txt may begin with nothing but comments, and its end has no User-agent line.
    """
    quarter, part = len(data) // 4, max(len(data) // SAMPLED_PARTS, 4)
    sampled = b"".join(data[at : at + part // 4] for at in range(0, len(data), part))
    return data[:quarter], data[-quarter:], sampled


def judged(target: Target, data: bytes, *, traced: bool) -> Finding | None:
    """What is wrong with this call."""
    try:
        if traced:
            tracemalloc.start()
            target.call(data)
            peak, allowed = tracemalloc.get_traced_memory()[1], MEMORY_BYTES_MAX + MEMORY_FACTOR * len(data)
            return Finding(target.name, f"memory: {peak:,} bytes for {len(data):,}", data) if peak > allowed else None
        took_s = cpu_s(target.call, data)
        if took_s > CALL_S_MAX:
            took_s = cpu_s(target.call, data)
        if took_s > CALL_S_MAX:
            return Finding(target.name, f"time: {took_s:.1f} s for {len(data):,} bytes", data)
        if target.is_timed and took_s > JUDGED_S and len(data) >= target.bytes_max // 2:
            quarter_s = max(min(cpu_s(target.call, part) for _ in range(3)) for part in quarters_of(data))
            took_s = min(cpu_s(target.call, data) for _ in range(3))
            if took_s > JUDGED_S and took_s / max(quarter_s, 1e-9) > STEP_RATIO_MAX:
                said = f"growth: {quarter_s * 1000:.1f} ms for a quarter -> {took_s * 1000:.0f} ms"
                return Finding(target.name, said, data)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())[:100]
        return Finding(target.name, f"{type(error).__name__} at {where.name}:{where.lineno}: {said}", data)
    finally:
        tracemalloc.stop()
    return None


def _reported(found: list[Finding], folder: Path) -> int:
    for number, finding in enumerate(found):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{finding.target.replace(', ', '-')}-{number}.bin"
        file.write_bytes(finding.data)
        print(f"{finding.target}: {finding.what}")
        print(f"    scripts/fuzz --target '{finding.target}' --input {file}")
    print(f"{len(found)} findings" if found else "no findings")
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the inputs")
    parser.add_argument(
        "--target", action="append", choices=[*TARGETS, *CODE], metavar="NAME", help="only this; repeatable"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="give a target this input only")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"), metavar="FOLDER", help="for inputs found")
    parser.add_argument("--findings-max", type=int, default=50, help="stop after so many (default: 50)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
