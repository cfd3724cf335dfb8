"""A whole run on an endpoint: what the real database and artifact store hold afterwards."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import sys
from pathlib import Path

import pytest
import zstandard

from orienteer.agents.runtime.config import Budgets, RunConfig
from orienteer.agents.runtime.engine import start_run
from orienteer.errors import EndpointError


@pytest.fixture
def toys(monkeypatch):
    spec = importlib.util.spec_from_file_location("endpoint_toys", Path(__file__).with_name("endpoint_toys.py"))
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "endpoint_toys", module)
    spec.loader.exec_module(module)
    return module


def contents(home):
    """Yield every file below a folder, artifacts unpacked."""
    for path in home.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            yield path, data
            if data[:4] == b"\x28\xb5\x2f\xfd":
                yield path, zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 24)


@pytest.mark.parametrize("ends", ["done", "refused"])
def test_the_key_is_in_no_file_of_a_run(server, kit, tmp_path, monkeypatch, toys, ends):
    monkeypatch.setenv("OPENAI_API_KEY", kit.KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)

    def script(body, n):
        if n == 1:
            return kit.Act({"error": {"message": f"busy, {kit.KEY}"}}, status=500)
        if n == 2 and ends == "refused":
            return kit.Act({"error": {"message": f"revoked {kit.KEY}"}}, status=401)
        return kit.Act(kit.completion(json.dumps({"number": n, "note": f"marker {kit.KEY}"}), reasoning=kit.KEY))

    server.script = script
    home, events = tmp_path / "home", []
    config = RunConfig(
        "endpoint_toys:Asker",
        model="openai/tiny",
        model_options={"backoff": 0.01},
        workers=1,
        home=home,
        handle_signals=False,
    )
    try:
        report = start_run(config, on_event=lambda *event: events.append(repr(event)))
        assert ends == "done" and report.status == "done"
        assert len(server.requests) == 4
    except EndpointError as error:
        assert ends == "refused" and kit.KEY not in f"{error!r}{error}"
        assert "revoked [key]" in str(error)
    seen = list(contents(home))
    assert server.headers[0]["authorization"].endswith(kit.KEY)
    assert any(b"marker [key]" in data for _, data in seen)
    assert not [path for path, data in seen if kit.KEY.encode() in data]
    assert not [event for event in events if kit.KEY in event]


def test_the_time_budget_ends_a_call_in_flight(server, kit, tmp_path, monkeypatch, toys):
    monkeypatch.setenv("OPENAI_API_KEY", kit.KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    # Never silent for long, never done.
    server.play(kit.Act(b" " * 1000, drip=0.05))
    config = RunConfig(
        "endpoint_toys:Asker",
        model="openai/tiny",
        workers=2,
        home=tmp_path / "home",
        handle_signals=False,
        budgets=Budgets(time=1.5),
    )
    report = start_run(config)
    assert (report.status, report.exit_code) == ("budget", 4) and "time" in report.reason
    assert len(server.requests) == 2
    rows = sqlite3.connect(tmp_path / "home" / "runs.sqlite").execute("SELECT status FROM model_calls")
    assert set(rows) == {("failed",)}


def test_the_time_budget_ends_a_wait_between_attempts_and_no_endpoint_is_blamed(
    server, kit, tmp_path, monkeypatch, toys
):
    monkeypatch.setenv("OPENAI_API_KEY", kit.KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    server.play(kit.Act({"error": {"message": "busy"}}, status=503, headers={"Retry-After": "20"}))
    config = RunConfig(
        "endpoint_toys:Asker",
        model="openai/tiny",
        workers=1,
        home=tmp_path / "home",
        handle_signals=False,
        budgets=Budgets(time=1),
    )
    report = start_run(config)
    assert report.status == "budget" and "time" in report.reason
    assert len(server.requests) == 1
