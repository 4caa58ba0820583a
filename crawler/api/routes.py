"""The routing table: the application and `/openapi.json` are made from it."""

from http import HTTPStatus

from crawler.api import dead_letters, jobs, owners, pages, reads, seeds, writes
from crawler.api.route import EVENTS, JSON, Route

HTML, JAVASCRIPT, CSS, TEXT = "text/html", "text/javascript", "text/css", "text/plain"
JOBS = "/v1/users/{user}/jobs"
JOB = f"{JOBS}/{{name}}"

ROUTES: tuple[Route, ...] = (
    *(Route(method="GET", path=path, handler=pages.dashboard, media=media) for path, (_, media) in pages.FILES.items()),
    Route(method="GET", path="/login", handler=pages.login, media=HTML, is_public=True, has_effect=True),
    Route(method="GET", path="/healthz", handler=pages.healthz, media=TEXT),
    Route(method="GET", path="/readyz", handler=pages.readyz, media=TEXT),
    Route(method="GET", path="/metrics", handler=pages.metrics, media=TEXT),
    Route(method="GET", path="/openapi.json", handler=pages.openapi),
    Route(method="GET", path="/v1/session", handler=reads.session),
    Route(method="GET", path="/v1/health", handler=reads.health),
    Route(method="GET", path="/v1/crawls", handler=reads.crawls),
    Route(method="GET", path="/v1/overview", handler=reads.overview),
    Route(method="GET", path="/v1/totals", handler=reads.totals),
    Route(method="GET", path="/v1/series", handler=reads.series),
    Route(method="GET", path="/v1/events", handler=pages.events, media=EVENTS),
    Route(method="GET", path="/v1/domains", handler=reads.domains),
    Route(method="GET", path="/v1/domains/{name}", handler=reads.domain),
    Route(method="POST", path="/v1/domains/{name}/pause", handler=writes.pause),
    Route(method="POST", path="/v1/domains/{name}/resume", handler=writes.resume),
    Route(method="POST", path="/v1/domains/{name}/block", handler=writes.block),
    Route(method="POST", path="/v1/domains/{name}/unblock", handler=writes.unblock),
    Route(method="POST", path="/v1/domains/{name}/delay", handler=writes.delay),
    Route(method="POST", path="/v1/domains/{name}/boost", handler=writes.boost),
    Route(method="POST", path="/v1/domains/{name}/purge", handler=writes.purge),
    Route(method="POST", path="/v1/domains/{name}/release", handler=writes.release),
    Route(method="POST", path="/v1/pause", handler=writes.pause_all),
    Route(method="POST", path="/v1/resume", handler=writes.resume_all),
    Route(method="GET", path="/v1/explain", handler=reads.explain),
    Route(method="GET", path="/v1/history", handler=reads.history),
    Route(method="GET", path="/v1/members", handler=reads.members),
    Route(method="GET", path="/v1/takeovers", handler=owners.takeovers),
    Route(method="GET", path="/v1/ring", handler=reads.ring, is_slow=True),
    Route(method="GET", path="/v1/ring/partitions", handler=owners.partitions),
    Route(method="GET", path="/v1/ring/place", handler=reads.place),
    Route(method="GET", path="/v1/dead-letters", handler=dead_letters.page),
    Route(method="GET", path="/v1/dead-letters/summary", handler=dead_letters.summary, is_slow=True),
    Route(method="POST", path="/v1/dead-letters/retry", handler=dead_letters.retry),
    Route(method="POST", path="/v1/dead-letters/purge", handler=dead_letters.purge),
    Route(method="POST", path="/v1/seeds", handler=seeds.add, body_media=(JSON, seeds.NDJSON)),
    Route(method="GET", path="/v1/users", handler=jobs.users),
    Route(method="GET", path="/v1/jobs", handler=jobs.all_jobs),
    Route(method="GET", path=JOBS, handler=jobs.page),
    Route(method="POST", path=JOBS, handler=jobs.create, status=HTTPStatus.CREATED),
    Route(method="GET", path=JOB, handler=jobs.one),
    Route(method="PATCH", path=JOB, handler=jobs.change),
    Route(method="DELETE", path=JOB, handler=jobs.remove),
    Route(method="POST", path=f"{JOB}/run", handler=jobs.trigger),
    Route(method="POST", path=f"{JOB}/pause", handler=jobs.pause),
    Route(method="POST", path=f"{JOB}/resume", handler=jobs.resume),
    Route(method="GET", path=f"{JOB}/history", handler=jobs.history),
    Route(method="GET", path=f"{JOB}/preview", handler=jobs.next_times),
    Route(method="GET", path=f"{JOB}/failed", handler=jobs.failed),
    Route(method="POST", path=f"{JOB}/failed/retry", handler=jobs.retry),
    Route(method="POST", path=f"{JOB}/failed/dismiss", handler=jobs.dismiss),
    Route(method="GET", path="/v1/schedules/preview", handler=jobs.schedule_preview),
    Route(method="GET", path="/v1/runs/{run}", handler=jobs.run),
    Route(method="GET", path="/v1/log", handler=reads.operator_log),
)
