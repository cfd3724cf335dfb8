"""Alembic migrations of the run database, run by the program itself; no ``alembic.ini`` is needed."""
