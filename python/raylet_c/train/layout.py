"""Sizes of the engine's buffers, without the engine: what model.py builds and explain.py tells."""

QUANT_ALIGN = 128  # the same where messages are quantised: blocks of one scale do not hold parts of two parameters
ALIGN = 32  # elements between pieces: whole 64-byte lines in 16-bit types
RING_SLOTS = 2  # gathered units at a time, of those that share memory
RING_BUCKETS = 2  # packed gradients at a time (GPU)


def up(n: int, to: int = ALIGN) -> int:
    return -(-n // to) * to
