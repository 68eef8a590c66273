"""Topic names and topic filters: their rules, and the tree that finds the filters that match a name.

Owns section 4.7 (topic names and filters) and the syntax of section 4.8.2 (shared subscriptions) of MQTT 5.0.
Does not check UTF-8 (the codec does), and knows nothing about sessions, retained messages or access rights.
"""

from __future__ import annotations

from folkmoot.topics.name import (
    FILTER_BYTES_MAX,
    check_filter,
    check_share,
    check_topic,
    filter_prefix,
    has_wildcard,
    matches,
    split_share,
)
from folkmoot.topics.tree import Tree

__all__ = [
    "FILTER_BYTES_MAX",
    "Tree",
    "check_filter",
    "check_share",
    "check_topic",
    "filter_prefix",
    "has_wildcard",
    "matches",
    "split_share",
]
