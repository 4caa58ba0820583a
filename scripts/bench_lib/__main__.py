"""`scripts/bench NAME [options]` runs a benchmark; `scripts/bench NAME --help` describes it."""

import importlib
import sys
from collections.abc import Sequence

BENCHES = {  # name: its module here, and what it measures
    "constants": ("constants", "what `crawler plan` calculates with; writes crawler/views/plan.json"),
    "heavy": ("heavy", "what a page of 240 KB costs over TLS, far away, on thousands of hosts"),
    "hostile": ("hostile", "whether thousands of hostile connections slow down good sites"),
    "large": ("large", "a large crawl: its memory, and how long commands take on it"),
    "lives": ("lives", "the frontier alone: URLs added, claimed and committed for a second of CPU"),
    "memory": ("memory", "bytes of the engine's memory for a URL and for an idle domain"),
    "near": ("near", "what it takes to find near-duplicates among millions of pages"),
    "neighbours": ("neighbours", "what twelve sites that do one thing wrong cost an innocent one"),
    "night": ("night", "whether anything grows in a night with jobs, viewers, prunes and kills"),
    "peers": ("peer_runs", "what a page costs this crawler, a bare fetch loop and other crawlers"),
    "port": ("port", "a Scrapy spider and the same app for this crawler: lines, pages a second, CPU"),
    "record": ("record", "whether a change made the crawler slower, compared with the last record"),
    "ring": ("ring_model", "the partition ring at any size, computed: balance, movement, time, memory"),
    "scaling": ("scaling", "what a second process brings; what a page costs by size of the queue"),
    "soak": ("soak", "whether memory stays flat in a long crawl"),
    "start": ("start", "how long commands take to start"),
    "text": ("text", "CPU of main text, Markdown, language and fingerprint; how good main texts are"),
    "waiting": ("waiting", "what a crawl costs that waits: CPU, wake-ups, commands of the engine"),
    "work": ("work", "what a page costs, counted instead of timed, compared with the recorded values"),
}


def main(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print("usage: scripts/bench NAME [options]\n\nRuns a benchmark. NAME is one of:")
        print("\n".join(f"  {name:<12}{about}" for name, (_, about) in BENCHES.items()))
        print("\n`scripts/bench NAME --help` lists the options of one.")
        return 0
    if words[0] not in BENCHES:
        print(f"bench: '{words[0]}' is not a benchmark (use one of {', '.join(BENCHES)})", file=sys.stderr)
        return 2
    module = importlib.import_module(f"scripts.bench_lib.{BENCHES[words[0]][0]}")
    code: int = module.main(words[1:])
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
