"""Gearshift: a self-hosted inference service in which speed is a gear of one flagship model."""

__version__ = "0.1.0"
