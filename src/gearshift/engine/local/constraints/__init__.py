"""Answers that must fit a schema or a grammar: what a constraint allows at the next position of a sequence.

Grammars are compiled and followed by llguidance; here they meet the tokens of a model and the drafts of a sequence.
Whose tokens may be drafted and kept is decided by the lane.
"""

from gearshift.engine.local.constraints.grammars import Grammars, Tokenize
from gearshift.engine.local.constraints.matcher import Mask, Matcher, mask_words

__all__ = ["Grammars", "Mask", "Matcher", "Tokenize", "mask_words"]
