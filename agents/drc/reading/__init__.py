"""Rule sentences read into decks, without a model: the offline proposer of the DRC method.

``readings`` takes a task (sentences, layers, a description that may define derived layers in words) and returns decks,
the most probable first. The way of a sentence: ``words`` (plain spelling, quantities), ``sentence`` (rule forms; its
docstring lists them), ``definitions`` and ``phrases`` on ``layers`` (which layers are meant), ``checks`` (what the
sentence leaves open, with priors), ``proposer`` (ranking, decks).
"""

from orienteer.agents.drc.reading.proposer import Reading, readings

__all__ = ["Reading", "readings"]
