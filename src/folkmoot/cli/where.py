"""`folkmoot where`: which nodes have a client's session or a topic's retained message."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, json_option, named, print_json, token_option
from folkmoot.cli.error import Refusal

__all__ = ["where"]


@click.command()
@click.argument("client_id", default="", metavar="[CLIENT_ID]", help="The client whose session is meant.")
@click.option(
    "--topic", default="", show_default=False, help="The topic whose retained message is meant, instead of a client."
)
@admin_option
@token_option
@json_option
def where(client_id: str, topic: str, admin: tuple[str, ...], token: str | None, as_json: bool) -> int:
    """Say in which partition CLIENT_ID or a topic is, who leads and follows it, and who has the connection.

    Where something is follows from its name, whether it exists or not. Which node has the connection only the leader
    knows: give the addresses of several nodes, and it is asked too.
    """
    if bool(client_id) == bool(topic):
        raise Refusal("give a client id, or --topic TOPIC")
    client = connect(admin, token)
    found = client.where_topic(topic) if topic else client.where_client(client_id)
    if as_json:
        print_json(found)
        return 0
    print(f"{found['kind']} {found['name']}: partition {found['partition']}")
    print(f"leader     {found['leader'] or 'none: nobody who is here can serve it'}")
    print(f"followers  {named(found['followers'])}")
    if found["kind"] == "client":
        print(f"connected  {found['owner'] or 'no node, as far as the nodes that were asked know'}")
    return 0
