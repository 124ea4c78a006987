"""Tests of the engines and of the protocol between them and the service."""
