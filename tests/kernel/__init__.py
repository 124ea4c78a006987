"""Tests of the compiled kernel: numbers, invariance, ISA paths and hostile input."""
