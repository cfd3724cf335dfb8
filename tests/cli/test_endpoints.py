"""Model endpoints that cannot serve, through the real command and a real HTTP server."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

TOY = "cli_toys:Count"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked += 1
        status, content, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.asked = 0
    threading.Thread(target=made.serve_forever, daemon=True).start()
    made.env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{made.server_port}/v1", "OPENAI_API_KEY": "sk-secret-12345"}
    yield made
    made.shutdown()
    made.server_close()


def good(text="7"):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    document = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return 200, "application/json", json.dumps(document).encode()


@pytest.fixture(scope="module", autouse=True)
def dead(shared):
    """A run against a port where nobody listens; it gives up after some seconds, while other tests run."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{taken.getsockname()[1]}/v1", "OPENAI_API_KEY": "k"}
        process = shared.start("run", TOY, "--model", "openai/m", "--json", env=env)
        yield process, env
        process.kill()
        process.communicate()


@pytest.fixture(scope="module", autouse=True)
def silent(shared):
    """A doctor whose Docker engine and whose endpoint take the call and say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        env = {"DOCKER_HOST": f"tcp://{where}", "OPENAI_BASE_URL": f"http://{where}/v1", "OPENAI_API_KEY": "k"}
        process = shared.start("doctor", "--json", env=env)
        yield process
        process.kill()
        process.communicate()


REFUSED = {
    "wrong key": ((401, "application/json", b'{"error": {"message": "bad key"}}'), "OPENAI_API_KEY"),
    "no such model": ((404, "application/json", b'{"error": {"message": "model m does not exist"}}'), "model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_endpoint_that_refuses_ends_the_run_and_it_goes_on_with_a_better_one(agent, server, name):
    server.answer, says = REFUSED[name]
    ended = agent("run", TOY, "--model", "openai/m", env=server.env)
    assert ended.code == 6 and says in ended.line, ended
    assert "sk-secret" not in ended.err
    assert "agent runs resume" in ended.err
    failed = agent("runs", "ls", "--json").document["runs"][0]
    assert failed["status"] == "failed" and failed["reason"]
    server.answer = good()
    resumed = agent("runs", "resume", failed["id"], "--json", env=server.env)
    assert resumed.code == 0, resumed.err
    assert resumed.document["result"] == {"seen": 3}
    calls = agent("runs", "show", "last", "--json").document["model_calls"]
    assert [call["status"] for call in calls] == ["failed", "done", "done", "done"]


def test_garbage_is_a_failed_proposal_with_its_reason_not_a_crash(agent, server):
    server.answer = (200, "text/html", b"<html>\x00\xff it works!</html>")
    ended = agent("run", TOY, "--model", "openai/m", "--set", "steps=1", env=server.env)
    assert ended.code in (0, 6) and "Traceback" not in ended.err, ended
    shown = agent("runs", "show", "last")
    assert shown.code == 0 and "one" in shown.out and "none" in shown.out, shown.out
    document = agent("runs", "show", "last", "--json").document
    assert [p["status"] for p in document["proposals"]] == ["failed"] and document["proposals"][0]["failure_kind"]


def test_an_address_that_is_none(agent):
    ended = agent("run", TOY, "--model", "openai/m", env={"OPENAI_BASE_URL": "not a url", "OPENAI_API_KEY": "k"})
    assert ended.code == 2 and "OPENAI_BASE_URL" in ended.line


def test_what_a_run_cost_is_shown(agent, server):
    server.answer = good("9")
    ended = agent("run", TOY, "--model", "openai/m", env=server.env)
    assert ended.code == 0 and "model calls: 3 (15 + 3 tokens, price unknown)" in ended.out, ended
    assert "model calls" in agent("runs", "show", "last").out
    assert agent("run", TOY, "--model", "openai/m", "--tokens", "0", env=server.env).code == 4


def test_a_dead_endpoint_ends_the_run_with_the_cure(agent, dead):
    process, env = dead
    ended = agent.finish(process)  # it has tried for a while, and patiently
    assert ended.code == 6 and ended.document["error"]["exit_code"] == 6, ended
    assert "OPENAI_BASE_URL" in ended.line and ended.document["run"] in ended.line
    seen = {c["name"]: c for c in agent("doctor", "--json", env=env).document["checks"]}
    assert seen["endpoint"]["works"] is False and seen["endpoint"]["cure"]


def test_the_doctor_does_not_wait_for_what_does_not_answer(agent, silent):
    ended = agent.finish(silent)
    seen = {c["name"]: c for c in ended.document["checks"]}
    assert ended.code == 0
    for name in ("docker engine", "endpoint"):
        assert seen[name]["works"] is False and seen[name]["cure"], seen[name]


def test_the_doctor_reports_what_is_late(tmp_path):
    from orienteer.agents.doctor import examine

    checks = examine(tmp_path, deadline=0.0)
    assert {c["area"] for c in checks} == {
        "python",
        "store",
        "sandbox",
        "memory",
        "compiler",
        "device",
        "layout",
        "model",
    }
    assert any("did not answer" in c["detail"] for c in checks)
