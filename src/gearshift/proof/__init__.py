"""Evidence for the promise that a gear changes speed and nothing else: `prove` runs one set of prompts in all gears
inside this process and compares, `race` runs one turn in all gears on a running server, side by side.
"""
