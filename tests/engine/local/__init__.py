"""Tests of the local engine: scheduler, cache blocks, text, the loop, and the real model behind it."""
