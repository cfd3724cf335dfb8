"""Rule sentences read into decks, without a model: the offline proposer of the DRC method.

``readings`` takes a task (sentences, layers, a description that may define derived layers in words) and returns decks,
the most probable first. The way of a sentence: ``words`` (plain spelling, quantities), ``sentence`` (what stands beside
the rule), ``special`` and ``measured`` (its form; the forms stand in ``statement``), ``definitions`` and ``phrases``
on ``layers`` (which layers are meant), ``checks`` (what the sentence leaves open, with priors), ``proposer`` (ranking,
decks).

Limits, told in the reading's ``why`` where they matter: nets are not told apart; words that explain nothing are listed;
a missing "minimum" or "maximum" is assumed to be a minimum. Not read, with a ``UsageError``: numbers of vias, ends of
lines, distances of centres, stacked vias, cell names, lambda, maxima of space and enclosure, antenna ratios with diodes
or perimeters, two limits under different conditions in one sentence.
"""

from orienteer.agents.drc.reading.proposer import Reading, readings

__all__ = ["Reading", "readings"]
