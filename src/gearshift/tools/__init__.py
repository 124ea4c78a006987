"""How models write tool calls and how these are read: one plain markup, which is also that of the templates whose own
format is used. It knows no wire format and no token; what holds a model to the markup is the engine's matter.
"""

from gearshift.tools.markup import BEGIN, END, described, json_head, told, written
from gearshift.tools.reading import CallReader, Kind, ReadCall

__all__ = ["BEGIN", "END", "CallReader", "Kind", "ReadCall", "described", "json_head", "told", "written"]
