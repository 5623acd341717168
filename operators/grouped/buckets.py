"""Buckets of a large group's rows: about as many as each has rows, so a change costs the square root of the group."""

from __future__ import annotations

import numpy as np

from ...core.rows.exact_integers import Int64s

__all__ = ["BITS", "LOW", "ROWS_OF_BUCKET", "bucket_of", "buckets_for", "every_bucket", "mixed", "pairs", "place_of"]

BITS = 20
"""The maximum number of buckets of a group, as a power of two."""
LOW = (1 << BITS) - 1
"""The mask of the bucket in a pair: see :func:`pairs`."""

ROWS_OF_BUCKET = 256
"""A group with fewer rows is in one bucket."""


def buckets_for(rows: Int64s, bits: Int64s) -> Int64s:
    """Return the number of buckets of groups by their numbers of rows, as a power of two.

    It remains as before (`bits`) unless that is too small, or four times too large.
    """
    some = np.log2(np.maximum(rows, 1))
    # Of small groups a bucket has some hundred rows; a large group has as many buckets as a bucket has rows.
    wanted = np.ceil(np.minimum(np.maximum(some - np.log2(ROWS_OF_BUCKET), 0), some / 2)).astype(np.int64)
    wanted = np.minimum(wanted, BITS)
    return np.where((wanted > bits) | (wanted < bits - 1), wanted, bits)


def pairs(group: Int64s, bucket: Int64s) -> Int64s:
    """Return one number for each pair of a group's position and a bucket."""
    return (group << BITS) | bucket


def every_bucket(groups: Int64s, bits: Int64s) -> Int64s:
    """Return the pairs of groups and each of their buckets."""
    sizes = np.int64(1) << bits
    begins = np.cumsum(sizes) - sizes
    return pairs(np.repeat(groups, sizes), np.arange(int(sizes.sum())) - np.repeat(begins, sizes))


def bucket_of(hashes: Int64s, bits: Int64s) -> Int64s:
    """Return each row's bucket: the highest bits of its hash."""
    shift = np.minimum(64 - bits, 63).astype(np.uint64)
    return np.where(bits == 0, 0, (hashes.view(np.uint64) >> shift).astype(np.int64))


def place_of(numbers: Int64s, bucket: Int64s) -> Int64s:
    """Return the number by which a bucket's rows are found; for bucket 0, it is the group's own."""
    return np.where(bucket == 0, numbers, mixed(numbers ^ mixed(bucket)))


def mixed(numbers: Int64s) -> Int64s:
    """Return a hash of integers: the last steps of splitmix64."""
    bits = numbers.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (bits ^ (bits >> np.uint64(31))).view(np.int64)
