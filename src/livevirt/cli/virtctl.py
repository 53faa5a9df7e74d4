"""The command `virtctl`: what VM owners type."""

import click


@click.group()
def main() -> None:
    """Control virtual machines."""
