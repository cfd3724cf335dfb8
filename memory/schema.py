"""Tables of the run database. ``docs/database.md`` explains them to people who query it.

The migrations in ``memory/migrations/versions`` build exactly this; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

#: The newest schema this version of the program understands; one Alembic revision per number.
SCHEMA_VERSION = 2
#: SQLite's application id of our databases: "ORTN".
APPLICATION_ID = 0x4F52544E

metadata = MetaData()

_sha = String(64)
_id = String(64)


def _run() -> Column[str]:
    return Column("run_id", _id, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False)


runs = Table(
    "runs",
    metadata,
    Column("id", _id, primary_key=True),
    Column("method", Text, nullable=False),
    Column("target", Text, nullable=False, default=""),
    Column("seed", BigInteger, nullable=False),
    Column("proposer", Text, nullable=False, default=""),
    Column("status", String(16), nullable=False),
    Column("reason", Text, nullable=False, default=""),
    Column("run_version", Integer, nullable=False),
    Column("config_json", Text, nullable=False),
    Column("provenance_json", Text, nullable=False, default="{}"),
    Column("budget_json", Text, nullable=False, default="{}"),
    Column("result_json", Text),
    Column("created", Float, nullable=False),
    Column("ended", Float),
    Column("heartbeat", Float),
    Column("active_s", Float, nullable=False, default=0.0),
    Column("owner_json", Text, nullable=False, default=""),
    Column("stop_requested", Boolean, nullable=False, default=False),
)

candidates = Table(
    "candidates",
    metadata,
    Column("run_id", _id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("id", _id, primary_key=True),
    Column("task", Text, nullable=False),
    Column("content_sha", _sha, nullable=False),
    Column("media", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("slot", Integer, nullable=False),
    Column("notes_json", Text, nullable=False),
    Column("created", Float, nullable=False),
    UniqueConstraint("run_id", "task", "content_sha", name="uq_candidates_content"),
)

lineage = Table(
    "lineage",
    metadata,
    Column("run_id", _id, primary_key=True),
    Column("child_id", _id, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("parent_id", _id, nullable=False),
    Column("role", Text, nullable=False, default="parent"),
    ForeignKeyConstraint(["run_id", "child_id"], ["candidates.run_id", "candidates.id"], ondelete="CASCADE"),
)

proposals = Table(
    "proposals",
    metadata,
    Column("run_id", _id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("slot", Integer, primary_key=True),
    Column("task", Text, nullable=False),
    Column("ask_json", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("candidate_id", _id),
    Column("failure_kind", Text),
    Column("failure_message", Text),
    Column("log_sha", _sha),
    Column("updated", Float, nullable=False),
    ForeignKeyConstraint(["run_id", "candidate_id"], ["candidates.run_id", "candidates.id"]),
)

evaluation_settings = Table(
    "evaluation_settings",
    metadata,
    Column("sha", _sha, primary_key=True),
    Column("json", Text, nullable=False),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", _id, nullable=False),
    Column("candidate_id", _id, nullable=False),
    Column("content_sha", _sha, nullable=False),
    Column("evaluator", Text, nullable=False),
    Column("settings_sha", _sha, ForeignKey("evaluation_settings.sha"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("score", Float),
    Column("evidence", Text, nullable=False, default=""),
    Column("failure_kind", Text),
    Column("failure_message", Text),
    Column("metrics_json", Text, nullable=False, default="{}"),
    Column("log_sha", _sha),
    Column("sandbox", Text, nullable=False, default=""),
    Column("started", Float, nullable=False),
    Column("ended", Float, nullable=False),
    Column("reused_from", Integer),
    ForeignKeyConstraint(["run_id", "candidate_id"], ["candidates.run_id", "candidates.id"], ondelete="CASCADE"),
    UniqueConstraint("run_id", "candidate_id", "evaluator", "settings_sha", name="uq_evaluations_key"),
    CheckConstraint("score IS NULL OR status = 'ok'", name="ck_evaluations_score"),
    Index("ix_evaluations_content", "content_sha", "evaluator", "settings_sha"),
)

method_states = Table(
    "method_states",
    metadata,
    Column("run_id", _id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("state_json", Text, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("created", Float, nullable=False),
)

model_calls = Table(
    "model_calls",
    metadata,
    Column("id", _id, primary_key=True),
    _run(),
    Column("step", Integer),
    Column("slot", Integer),
    Column("phase", String(16), nullable=False, default=""),
    Column("model", Text, nullable=False),
    Column("reported_model", Text, nullable=False, default=""),
    Column("status", String(16), nullable=False),
    Column("cached", Boolean, nullable=False, default=False),
    Column("request_sha", _sha, nullable=False),
    Column("request_artifact", _sha),
    Column("reply_artifact", _sha),
    Column("tokens_reserved", Integer, nullable=False, default=0),
    Column("tokens_in", Integer, nullable=False, default=0),
    Column("tokens_out", Integer, nullable=False, default=0),
    Column("estimated", Boolean, nullable=False, default=False),
    Column("cost", Float),
    Column("http_calls", Integer, nullable=False, default=0),
    Column("sent_json", Text, nullable=False, default="{}"),
    Column("finish_reason", Text),
    Column("latency", Float),
    Column("failure_kind", Text),
    Column("failure_message", Text),
    Column("created", Float, nullable=False),
    Column("ended", Float),
    Index("ix_model_calls_request", "request_sha", "status"),
    Index("ix_model_calls_run", "run_id", "status"),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    _run(),
    Column("t", Float, nullable=False),
    Column("step", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("json", Text, nullable=False),
    Index("ix_events_run", "run_id", "id"),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("sha", _sha, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("media", Text, nullable=False),
    Column("created", Float, nullable=False),
)

memory_stores = Table(
    "memory_stores",
    metadata,
    Column("name", String(80), primary_key=True),
    Column("token", String(32), nullable=False),
    Column("revision", Integer, nullable=False, default=0),
    Column("deletions", Integer, nullable=False, default=0),
    Column("created", Float, nullable=False),
)

memory_items = Table(
    "memory_items",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", _id, nullable=False),
    Column("store", String(80), ForeignKey("memory_stores.name", ondelete="CASCADE"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("outcome", String(16), nullable=False, default=""),
    Column("name", Text, nullable=False, default=""),
    Column("text", Text, nullable=False),
    Column("text_sha", _sha, nullable=False),
    Column("content_sha", String(64), nullable=False, default=""),
    Column("task", Text, nullable=False, default=""),
    Column("task_sha", String(64), nullable=False, default=""),
    Column("target", Text, nullable=False, default=""),
    Column("family", Text, nullable=False, default=""),
    Column("bottleneck", Text, nullable=False, default=""),
    Column("stage", String(16), nullable=False, default=""),
    Column("evidence", Text, nullable=False, default=""),
    # Not a foreign key: what a run taught outlives the run.
    Column("run_id", Text, nullable=False, default=""),
    Column("candidate_id", Text, nullable=False, default=""),
    Column("facts_json", Text, nullable=False, default="{}"),
    Column("created", Float, nullable=False),
    Column("indexed", String(64), nullable=False, default=""),
    UniqueConstraint("id", name="uq_memory_items_id"),
    Index("ix_memory_items_store", "store", "seq"),
    Index("ix_memory_items_kind", "store", "kind", "target"),
    Index("ix_memory_items_task", "store", "task"),
    Index("ix_memory_items_run", "run_id"),
)


def _item() -> Column[str]:
    return Column("item_id", _id, ForeignKey("memory_items.id", ondelete="CASCADE"), primary_key=True)


memory_values = Table(
    "memory_values",
    metadata,
    _item(),
    Column("stage", String(16), primary_key=True),
    Column("signature", String(200), primary_key=True),
    Column("q", Float, nullable=False),
    Column("visits", Integer, nullable=False),
    Column("updated", Float, nullable=False),
)

memory_updates = Table(
    "memory_updates",
    metadata,
    _item(),
    Column("event", String(200), primary_key=True),
    Column("stage", String(16), primary_key=True),
    Column("signature", String(200), primary_key=True),
    Column("reward", Float, nullable=False),
    Column("raw", Float),
    Column("q_before", Float, nullable=False),
    Column("q_after", Float, nullable=False),
    Column("visits", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Index("ix_memory_updates_event", "event"),
)

memory_rewards = Table(
    "memory_rewards",
    metadata,
    Column("store", String(80), ForeignKey("memory_stores.name", ondelete="CASCADE"), primary_key=True),
    Column("event", String(200), primary_key=True),
    Column("stage", String(16), primary_key=True),
    Column("evidence", String(200), nullable=False),
    Column("raw", Float, nullable=False),
    Column("normalised", Float, nullable=False),
    Column("count", Integer, nullable=False),
    Column("mean", Float, nullable=False),
    Column("variance", Float, nullable=False),
    Column("created", Float, nullable=False),
)

memory_statistics = Table(
    "memory_statistics",
    metadata,
    Column("store", String(80), ForeignKey("memory_stores.name", ondelete="CASCADE"), primary_key=True),
    Column("stage", String(16), primary_key=True),
    Column("evidence", String(200), primary_key=True),
    Column("count", Integer, nullable=False),
    Column("mean", Float, nullable=False),
    Column("variance", Float, nullable=False),
    Column("updated", Float, nullable=False),
)
