"""Tests, laid out as the rooms they test; packages, so that one may import the reference of another."""
