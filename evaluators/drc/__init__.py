"""Who judges decks: scores on labelled layouts, clusters by behaviour, and the benchmarks."""
