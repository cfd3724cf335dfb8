"""Layouts, DRC decks and what runs them."""
