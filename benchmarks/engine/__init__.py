"""The engine benchmark: Gearshift beside its peers, in turns, on the same machine and the same weights."""
