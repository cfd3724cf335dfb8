"""Alembic's entry: runs the migrations on the connection that ``memory.rundb`` hands over."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="schema_version", transactional_ddl=True)
# The caller holds the transaction, so that schema and version appear together or not at all.
context.run_migrations()
