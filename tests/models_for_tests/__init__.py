"""Small synthetic GGUF models for tests, written with the `gguf` package; they know nothing of our own reader."""
