"""The routing table: the application and `/openapi.json` are made from it."""

from http import HTTPStatus

from aiohttp import web

from crawler.api import dead_letters, handlers, jobs, operators, pages, seeds
from crawler.api.call import Call, NoBody, NoQuery
from crawler.api.route import EVENTS, JSON, Route

HTML, JAVASCRIPT, CSS, TEXT = "text/html", "text/javascript", "text/css", "text/plain"
JOBS = "/v1/users/{user}/jobs"
JOB = f"{JOBS}/{{name}}"


async def openapi(call: Call[NoQuery, NoBody]) -> web.Response:
    """The description of this API."""
    from crawler.api.openapi import document

    return web.Response(body=document(ROUTES, call.context.root), content_type="application/json")


ROUTES: tuple[Route, ...] = (
    *(Route(method="GET", path=path, handler=pages.dashboard, media=media) for path, (_, media) in pages.FILES.items()),
    Route(method="GET", path="/login", handler=pages.login, media=HTML, is_public=True, has_effect=True),
    Route(method="GET", path="/healthz", handler=pages.healthz, media=TEXT, is_public=True),
    Route(method="GET", path="/readyz", handler=pages.readyz, media=TEXT),
    Route(method="GET", path="/metrics", handler=pages.metrics, media=TEXT),
    Route(method="GET", path="/openapi.json", handler=openapi),
    Route(method="GET", path="/v1/session", handler=handlers.session),
    Route(method="GET", path="/v1/health", handler=handlers.health),
    Route(method="GET", path="/v1/crawls", handler=handlers.crawls),
    Route(method="GET", path="/v1/overview", handler=handlers.overview),
    Route(method="GET", path="/v1/totals", handler=handlers.totals),
    Route(method="GET", path="/v1/series", handler=handlers.series),
    Route(method="GET", path="/v1/events", handler=pages.events, media=EVENTS),
    Route(method="GET", path="/v1/domains", handler=handlers.domains),
    Route(method="GET", path="/v1/domains/{name}", handler=handlers.domain),
    Route(method="POST", path="/v1/domains/{name}/pause", handler=operators.pause),
    Route(method="POST", path="/v1/domains/{name}/resume", handler=operators.resume),
    Route(method="POST", path="/v1/domains/{name}/block", handler=operators.block),
    Route(method="POST", path="/v1/domains/{name}/unblock", handler=operators.unblock),
    Route(method="POST", path="/v1/domains/{name}/delay", handler=operators.delay),
    Route(method="POST", path="/v1/domains/{name}/boost", handler=operators.boost),
    Route(method="POST", path="/v1/domains/{name}/purge", handler=operators.purge),
    Route(method="POST", path="/v1/domains/{name}/release", handler=operators.release),
    Route(method="POST", path="/v1/pause", handler=operators.pause_all),
    Route(method="POST", path="/v1/resume", handler=operators.resume_all),
    Route(method="GET", path="/v1/explain", handler=handlers.explain),
    Route(method="GET", path="/v1/history", handler=handlers.history),
    Route(method="GET", path="/v1/members", handler=handlers.members),
    Route(method="GET", path="/v1/takeovers", handler=handlers.takeovers),
    Route(method="GET", path="/v1/ring", handler=handlers.read_ring, is_slow=True),
    Route(method="GET", path="/v1/ring/partitions", handler=handlers.partitions),
    Route(method="GET", path="/v1/ring/place", handler=handlers.place),
    Route(method="GET", path="/v1/dead-letters", handler=dead_letters.page),
    Route(method="GET", path="/v1/dead-letters/summary", handler=dead_letters.summary, is_slow=True),
    Route(method="POST", path="/v1/dead-letters/retry", handler=dead_letters.retry),
    Route(method="POST", path="/v1/dead-letters/purge", handler=dead_letters.purge_dead_letters),
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
    Route(method="GET", path="/v1/log", handler=handlers.operator_log),
)
