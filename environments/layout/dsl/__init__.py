"""The embedded interpreter of DRC decks: a strict subset of KLayout's language on ``klayout.db``."""
