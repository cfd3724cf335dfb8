"""The experience memory: items, Q-values, their history, reward statistics."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _text(name: str, length: int | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.String(length) if length else sa.Text(), nullable=False)


def _number(name: str, kind: type[sa.Float[float]] | type[sa.Integer] = sa.Float) -> sa.Column[float]:
    return sa.Column(name, kind(), nullable=False)


def upgrade() -> None:
    """Add the tables of the memory; no older table changes."""
    op.create_table(
        "memory_stores",
        _text("name", 80),
        _text("token", 32),
        _number("revision", sa.Integer),
        _number("deletions", sa.Integer),
        _number("created"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "memory_items",
        _number("seq", sa.Integer),
        _text("id", 64),
        _text("store", 80),
        _text("kind", 16),
        _text("outcome", 16),
        _text("name"),
        _text("text"),
        _text("text_sha", 64),
        _text("content_sha", 64),
        _text("task"),
        _text("task_sha", 64),
        _text("target"),
        _text("family"),
        _text("bottleneck"),
        _text("stage", 16),
        _text("evidence"),
        _text("run_id"),
        _text("candidate_id"),
        _text("facts_json"),
        _number("created"),
        _text("indexed", 64),
        sa.ForeignKeyConstraint(["store"], ["memory_stores.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id", name="uq_memory_items_id"),
    )
    op.create_index("ix_memory_items_store", "memory_items", ["store", "seq"])
    op.create_index("ix_memory_items_kind", "memory_items", ["store", "kind", "target"])
    op.create_index("ix_memory_items_task", "memory_items", ["store", "task"])
    op.create_index("ix_memory_items_run", "memory_items", ["run_id"])
    op.create_table(
        "memory_values",
        _text("item_id", 64),
        _text("stage", 16),
        _text("signature", 200),
        _number("q"),
        _number("visits", sa.Integer),
        _number("updated"),
        sa.ForeignKeyConstraint(["item_id"], ["memory_items.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("item_id", "stage", "signature"),
    )
    op.create_table(
        "memory_updates",
        _text("item_id", 64),
        _text("event", 200),
        _text("stage", 16),
        _text("signature", 200),
        _number("reward"),
        sa.Column("raw", sa.Float(), nullable=True),
        _number("q_before"),
        _number("q_after"),
        _number("visits", sa.Integer),
        _number("created"),
        sa.ForeignKeyConstraint(["item_id"], ["memory_items.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("item_id", "event", "stage", "signature"),
    )
    op.create_index("ix_memory_updates_event", "memory_updates", ["event"])
    op.create_table(
        "memory_rewards",
        _text("store", 80),
        _text("event", 200),
        _text("stage", 16),
        _text("evidence", 200),
        _number("raw"),
        _number("normalised"),
        _number("count", sa.Integer),
        _number("mean"),
        _number("variance"),
        _number("created"),
        sa.ForeignKeyConstraint(["store"], ["memory_stores.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store", "event", "stage"),
    )
    op.create_table(
        "memory_statistics",
        _text("store", 80),
        _text("stage", 16),
        _text("evidence", 200),
        _number("count", sa.Integer),
        _number("mean"),
        _number("variance"),
        _number("updated"),
        sa.ForeignKeyConstraint(["store"], ["memory_stores.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("store", "stage", "evidence"),
    )


def downgrade() -> None:
    """What was learnt is not thrown away to please an older program."""
    raise NotImplementedError("schema 2 cannot be undone; restore the backup that was made before it")
