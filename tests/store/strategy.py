"""Hypothesis strategies for what rows hold."""

from __future__ import annotations

from hypothesis import strategies as st

from folkmoot.store.message import Message
from folkmoot.store.row import CursorRow, QueueRow, SessionRow, SubscriptionRow, WillRow

__all__ = ["cursors", "damages", "messages", "names", "queue_rows", "sessions", "subscriptions", "times", "wills"]

times = st.integers(0, 2**62)
names = st.text(st.characters(codec="utf-8"), max_size=12)
bits = st.booleans()
qos = st.integers(0, 2)
u32s = st.integers(0, 0xFFFF_FFFF)

messages = st.builds(
    Message,
    topic=st.binary(min_size=1, max_size=12),
    payload=st.binary(max_size=20),
    qos=qos,
    retain=bits,
    properties=st.binary(max_size=12),
    publisher=names,
    created_us=times,
    expires_us=times,
)
sessions = st.builds(
    SessionRow,
    version=st.sampled_from([3, 4, 5]),
    expiry_s=u32s,
    ends_us=times,
    queue_floor=times,
    username=names,
    token=times,
    begun=st.booleans(),
)
subscriptions = st.builds(SubscriptionRow, options=st.integers(0, 255), identifier=st.integers(0, 268_435_455))
wills = st.builds(WillRow, delay_s=u32s, due_us=times, message=messages, token=times)
cursors = st.builds(
    CursorRow, kind=st.integers(0, 1), positions=st.lists(st.integers(0, 2**63), max_size=5), key=st.binary(max_size=9)
)
# One has its message, the other names a body.
inline_rows = st.builds(
    lambda qos, retain, sent, identifiers, group, message: QueueRow(
        qos, retain, sent, identifiers, group, 0, message.size, message
    ),
    qos,
    bits,
    bits,
    st.binary(max_size=400),
    st.binary(max_size=12),
    messages,
)
body_rows = st.builds(
    lambda qos, retain, sent, identifiers, group, body, size: QueueRow(
        qos, retain, sent, identifiers, group, body, size, None
    ),
    qos,
    bits,
    bits,
    st.binary(max_size=400),
    st.binary(max_size=12),
    st.integers(1, 2**64 - 1),
    u32s,
)
queue_rows = st.one_of(inline_rows, body_rows)

# What happens to bytes on a bad disk: cut short, a byte changed, a piece missing, a piece from elsewhere.
damages = st.lists(
    st.one_of(
        st.tuples(st.just("cut"), st.integers(0, 200), st.just(b"")),
        st.tuples(st.just("set"), st.integers(0, 200), st.binary(min_size=1, max_size=1)),
        st.tuples(st.just("drop"), st.integers(0, 200), st.just(b"")),
        st.tuples(st.just("add"), st.integers(0, 200), st.binary(max_size=8)),
    ),
    min_size=1,
    max_size=4,
)
