"""Serve the live page on this machine, to anyone who knows its address."""

import asyncio
import base64
import hashlib
import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterable
from html import escape
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ...core.tasks.datasets.storage import cache_folder
from ..report.html_page import CSS
from .fragments import whole_report
from .runs import Runs
from .stream import Changes, Shared

PORT = 8765
_PAGE, _MORE_CSS, _SCRIPT = (
    (Path(__file__).parent / f"page.{kind}").read_text(encoding="utf-8")
    for kind in ("html", "css", "js")
)
_BEAT = 15.0  # seconds after which a connection that nobody listens to is noticed
_RETRY = "retry: 1000\n\n"


def page(folder: str) -> str:
    """Return the page that a browser loads once; `folder` is where its runs are, for people."""
    return _PAGE.format(css=CSS + _MORE_CSS, folder=escape(folder), script=_SCRIPT)


def policy() -> str:
    """Return what the page may do: run its own script, listen to its own server, no more."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def application(
    runs: Runs, token: str, poll: float = 0.5, stopping: Callable[[], bool] = lambda: False
) -> Starlette:
    """Return the application: a page, a stream of what changes, and reports to save."""
    shared = Shared(runs)
    headers = {
        "Content-Security-Policy": policy(),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
    }

    def known(request: Request) -> bool:
        return secrets.compare_digest(request.path_params["token"].encode(), token.encode())

    async def show_page(request: Request) -> Response:
        if not known(request):
            return refusal(request)
        return HTMLResponse(page(str(runs.output)), headers=headers)

    async def stream(request: Request) -> Response:
        if not known(request):
            return refusal(request)
        asked = tuple(request.query_params.getlist("run"))
        return StreamingResponse(changes(asked), media_type="text/event-stream", headers=headers)

    async def changes(asked: tuple[str, ...]) -> AsyncIterator[str]:
        sent, silent, draw = Changes(), 0.0, False
        yield _RETRY
        while not stopping():
            for text in sent.of(await run_in_threadpool(shared.look, asked, draw=draw)):
                silent = 0.0
                yield text
            draw = True
            if silent >= _BEAT:
                silent = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(poll)
            silent += poll

    async def report(request: Request) -> Response:
        if not known(request):
            return refusal(request)
        wanted = request.query_params.get("run", "")
        found = [run for run in runs.look() if run.name == wanted]
        if not found:
            return PlainTextResponse("there is no such run", 404, headers)
        run = found[0]
        await run_in_threadpool(run.read)
        text = await run_in_threadpool(whole_report, run)
        saved = {**headers, "Content-Disposition": 'attachment; filename="report.html"'}
        return HTMLResponse(text, headers=saved)

    def refusal(request: Request) -> Response:
        text = "the address needs its token: take the one that forager watch --web printed"
        return PlainTextResponse(text, 403, headers)

    return Starlette(
        routes=[
            Route("/", refusal),
            Route("/{token}/", show_page),
            Route("/{token}/events", stream),
            Route("/{token}/report", report),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
    )


def kept_token(path: Path) -> str:
    """Return this user's token; the same after a restart, so that an open page finds back."""
    try:
        found = path.read_text(encoding="utf-8").strip()
        if len(found) >= 32 and found.isalnum() and not path.stat().st_mode & 0o077:
            return found
        path.unlink()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(24)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    return token


def listening_socket(port: int) -> socket.socket:
    """Return a socket on this machine's loopback: on the port, or if none was asked for, on any."""
    for wanted in [port] if port else [PORT, 0]:
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            end.bind(("127.0.0.1", wanted))
            end.listen()  # so that a browser that is quicker than the server waits
        except OSError:
            end.close()
            if wanted in (port, 0):
                raise
        else:
            return end
    raise AssertionError


def serve(
    output: Path, named: Iterable[Path], *, port: int = 0, poll: float = 0.5, open_it: bool = False
) -> int:
    """Serve the page until Ctrl-C; return an exit code."""
    try:
        end = listening_socket(port)
    except OSError as error:
        print(f"--port {port}: {error.strerror}; choose another, or none", file=sys.stderr)
        return 2
    token = kept_token(cache_folder("") / "live-token")
    server: uvicorn.Server

    app = application(Runs(output, named), token, poll, lambda: server.should_exit)
    config = uvicorn.Config(
        app,
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    server = uvicorn.Server(config)
    number = end.getsockname()[1]
    address = f"http://127.0.0.1:{number}/{token}/"
    print(f"Live page of {output}: {address}", flush=True)
    print(
        f"From elsewhere: ssh -L {number}:127.0.0.1:{number} <this machine>. Ctrl-C ends the page"
    )
    if open_it:
        webbrowser.open(address)
    try:
        server.run(sockets=[end])
    except KeyboardInterrupt:
        return 130
    return 0
