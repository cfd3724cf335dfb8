"""Layouts made to tell decks apart, from what the decks themselves measure; no model is needed."""
