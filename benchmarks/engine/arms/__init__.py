"""Worker programs of the benchmark, one per engine. Each runs in its own process (a peer in its own environment)."""
