"""Who judges: gates, comparisons, checks against cheating."""
