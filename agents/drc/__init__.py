"""Decks from design rules: proposed, told apart by layouts, and chosen by what they do."""
