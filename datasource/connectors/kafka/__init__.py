"""Kafka: topics whose partitions are feeds."""

from __future__ import annotations

from .connector import KafkaConnector
from .options import KafkaOptions

__all__ = ["KafkaConnector", "KafkaOptions"]
