"""`folkmoot where`: shows which nodes have a client's session or a topic's retained message."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, json_option, named, print_json, token_option
from folkmoot.cli.error import Refusal

__all__ = ["where"]


@click.command()
@click.argument("client_id", default="", metavar="[CLIENT_ID]", help="The client id of the session.")
@click.option(
    "--topic", default="", show_default=False, help="The topic of a retained message, instead of a client id."
)
@admin_option
@token_option
@json_option
def where(client_id: str, topic: str, admin: tuple[str, ...], token: str | None, as_json: bool) -> int:
    """Show the partition of CLIENT_ID or of a topic, its leader and followers, and the node with the connection.

    The partition follows from the name, whether the session or message exists or not. Only the leader knows which node
    has the connection: give the addresses of several nodes, so that the leader is asked too.
    """
    if bool(client_id) == bool(topic):
        raise Refusal("give a client id, or --topic TOPIC")
    client = connect(admin, token)
    found = client.where_topic(topic) if topic else client.where_client(client_id)
    if as_json:
        print_json(found)
        return 0
    print(f"{found['kind']} {found['name']}: partition {found['partition']}")
    print(f"leader     {found['leader'] or 'none: no member can serve it'}")
    print(f"followers  {named(found['followers'])}")
    if found["kind"] == "client":
        print(f"connected  {found['owner'] or 'no node, as far as the queried nodes know'}")
    return 0
