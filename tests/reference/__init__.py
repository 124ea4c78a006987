"""An independent float32 implementation of the decoder family in numpy, to judge the kernel by.

It shares no code with `src/` or `kernel/`: files are read and dequantised by the `gguf` package, and the mathematics
is written from the models' definitions. It leaves the kernel's own numbers (integers, packing, cache) alone.
"""
