"""An HTTP server that speaks the chat-completions protocol and misbehaves on demand."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from orienteer.agents.runtime.models import ModelFailure, ModelReply, ModelRequest, ModelSession, open_model
from orienteer.errors import BudgetReached

KEY = "sk-test-0123456789abcdef"


def completion(content: Any = "hello", **changes: Any) -> dict[str, Any]:
    """Return a correct body; ``changes`` of message, choice and body are told apart by name."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    for name in ("reasoning_content", "reasoning", "tool_calls", "refusal"):
        if name in changes:
            message[name] = changes.pop(name)
    choice = {"index": 0, "message": message, "finish_reason": changes.pop("finish_reason", "stop")}
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [choice],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
    body.update(changes)
    return body


def sse(*events: Any, done: bool = True) -> bytes:
    """Return events as a stream; strings go out as they are."""
    lines = [e if isinstance(e, str) else f"data: {json.dumps(e)}\n\n" for e in events]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


def chunk(content: str | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return one event of a stream."""
    if content is not None:
        delta["content"] = content
    return {"model": "tiny", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@dataclass
class Act:
    """One response: what the server does instead of being kind."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    media: str = "application/json"
    #: Seconds before the status line.
    wait: float = 0.0
    #: Seconds between single bytes of the body.
    drip: float = 0.0
    #: Close without an answer (with a reset).
    reset: bool = False
    #: Promise more bytes than are sent, then close.
    short: int = 0
    #: Keep the connection open after the body.
    hang: bool = False
    #: Send this many megabytes.
    megabytes: int = 0


Script = Callable[[dict[str, Any], int], Act]


def refusing(*rules: tuple[Callable[[dict[str, Any]], bool], str], status: int = 400) -> Script:
    """Return a script that refuses requests for which one of the rules (predicate, words) holds."""

    def script(body: dict[str, Any], n: int) -> Act:
        for holds, words in rules:
            if holds(body):
                return Act({"error": {"message": words, "type": "invalid_request_error"}}, status=status)
        form = body.get("response_format")
        return Act(
            completion(json.dumps({"code": "x = 1", "score": 3}) if form or "schema" in str(body["messages"]) else "hi")
        )

    return script


class Server:
    """The server's control: set ``script``, read ``requests``."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.sent_bytes = 0
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.script: Script = lambda body, n: Act(completion())
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                owner.serve(self)

            def do_GET(self) -> None:
                owner.serve(self)

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is what half of the tests are about."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def play(self, *acts: Act) -> None:
        """Answer with these acts in turn; the last one repeats."""
        self.script = lambda body, n: acts[min(n, len(acts) - 1)]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        body = json.loads(data or b"{}")
        with self.lock:
            n = len(self.requests)
            self.requests.append(body)
            self.headers.append({k.lower(): v for k, v in handler.headers.items()})
        act = self.script(body, n)
        if act.wait:
            self.stop.wait(act.wait)
        if act.reset:
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            handler.connection.close()
            handler.close_connection = True
            return
        payload = act.body if isinstance(act.body, bytes) else json.dumps(act.body).encode()
        size = act.megabytes << 20 or len(payload) + act.short
        handler.send_response(act.status)
        handler.send_header("Content-Type", act.media)
        for name, value in act.headers.items():
            handler.send_header(name, value)
        if act.hang:
            size += 1000
        if act.media == "text/event-stream":
            handler.send_header("Connection", "close")
            handler.close_connection = True
        else:
            handler.send_header("Content-Length", str(size))
        handler.end_headers()
        with contextlib.suppress(OSError):
            if act.megabytes:
                block = b" " * (1 << 20)
                for _ in range(act.megabytes):
                    handler.wfile.write(block)
                    self.sent_bytes += len(block)
            elif act.drip:
                for i in range(len(payload)):
                    handler.wfile.write(payload[i : i + 1])
                    handler.wfile.flush()
                    if self.stop.wait(act.drip):
                        break
            else:
                handler.wfile.write(payload)
                handler.wfile.flush()
            if act.hang:
                self.stop.wait(30)
            if act.short:
                handler.close_connection = True

    def close(self) -> None:
        self.stop.set()
        self.http.shutdown()
        self.http.server_close()


class MemoryLedger:
    """The ledger's contract in memory."""

    def __init__(self) -> None:
        self.answers: dict[str, ModelReply] = {}
        self.rows: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def lookup(self, request_sha: str) -> ModelReply | None:
        with self.lock:
            return self.answers.get(request_sha)

    def sent(self, request_sha: str, model: str, request: dict[str, Any], tokens_reserved: int) -> str:
        with self.lock:
            row = {"sha": request_sha, "model": model, "request": json.dumps(request), "state": "sent"}
            row["reserved"] = tokens_reserved
            self.rows.append(row)
            return str(len(self.rows) - 1)

    def done(self, call_id: str, reply: ModelReply) -> None:
        with self.lock:
            row = self.rows[int(call_id)]
            # Through JSON and UTF-8, as a database does it.
            plain = json.loads(json.dumps(reply.to_plain()).encode("utf-8"))
            row.update(state="done", reply=plain)
            self.answers[row["sha"]] = ModelReply.from_plain(plain)

    def failed(
        self,
        call_id: str,
        kind: str,
        message: str,
        tokens_in: int = 0,
        tokens_out: int = 0,
        cost: float | None = None,
        calls: int = 1,
    ) -> None:
        with self.lock:
            self.rows[int(call_id)].update(
                state="failed",
                kind=kind,
                message=message,
                tokens_in=tokens_in,
                tokens_out=tokens_out,
                cost=cost,
                calls=calls,
            )


class Budget:
    """A limit of tokens with work in flight counted."""

    def __init__(self, tokens: int) -> None:
        self.limit = tokens
        self.held = 0
        self.used = 0
        self.lock = threading.Lock()

    def reserve(self, tokens: int, cost: float | None) -> int:
        with self.lock:
            if self.used + self.held + tokens > self.limit:
                raise BudgetReached("no tokens left")
            self.held += tokens
            return tokens

    def time_left(self) -> float | None:
        return None

    def settle(self, reservation: int, tokens: int, cost: float | None) -> None:
        with self.lock:
            self.held -= reservation
            self.used += tokens


@dataclass
class Bench:
    """A server, a session on it, and everything the session told."""

    server: Server
    session: ModelSession
    ledger: MemoryLedger
    budget: Budget
    cancel: threading.Event
    events: list[tuple[str, dict[str, Any]]]

    def ask(self, text: str = "question", **options: Any) -> ModelReply:
        messages = options.pop("messages", (("system", "be short"), ("user", text)))
        return self.session.ask(ModelRequest(messages, **options))

    def failure(self, text: str = "question", **options: Any) -> ModelFailure:
        """Ask, expect a failed proposal, and see that it left no loose ends."""
        with pytest.raises(ModelFailure) as caught:
            self.ask(text, **options)
        assert all(row["state"] != "sent" for row in self.ledger.rows)
        assert self.budget.held == 0
        return caught.value

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def bench(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """Return a maker of sessions on the server, through the environment as a person would."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.delenv("ORIENTEER_PRICES", raising=False)
    opened: list[ModelSession] = []

    def make(name: str = "tiny", ledger: MemoryLedger | None = None, tokens: int = 10_000_000, **options: Any) -> Bench:
        events: list[tuple[str, dict[str, Any]]] = []
        settings = {"timeout": 20.0, "deadline": 60.0, "backoff": 0.01, "retries": 3, **options}
        model = open_model(f"openai/{name}", **settings)
        assert model is not None
        ledger = ledger or MemoryLedger()
        cancel, budget = threading.Event(), Budget(tokens)
        session = ModelSession(model, ledger, budget, cancel, lambda kind, facts: events.append((kind, facts)))
        opened.append(session)
        return Bench(server, session, ledger, budget, cancel, events)

    yield make
    server.stop.set()
    for session in opened:
        session.close()


@pytest.fixture
def kit() -> Any:
    """Return the helpers of this file; tests here are no package, so they cannot import it."""

    class Kit:
        pass

    made = Kit()
    for thing in (Act, Server, MemoryLedger, Budget, completion, sse, chunk, refusing):
        setattr(made, thing.__name__, thing)
    made.KEY = KEY  # type: ignore[attr-defined]
    return made
