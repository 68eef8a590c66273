"""A pipeline in a file that is as small as one can be: a number on each topic, into one table."""

from __future__ import annotations

__all__ = ["SMALL"]

SMALL = """\
name: p
sources:
  in: {stream: s, decode: [{topic: "a/{b}", view: v, format: number}]}
cluster: {url: "127.0.0.1:1"}
sinks: [{name: out, from: v, delta: out}]
"""
