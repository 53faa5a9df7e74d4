"""The command `livevirt`: run and administer."""

import click


@click.group()
def main() -> None:
    """Run virtual machines that change while they run."""
