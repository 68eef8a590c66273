"""The tests; a package, because gmqtt installs one of this name, which Python would prefer to a folder without this.

The folders below have no such file.
"""
