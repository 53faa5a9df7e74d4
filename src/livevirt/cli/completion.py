"""`livevirt completion` and `virtctl completion`: command completion for a shell."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")


def _command(program: str) -> click.Command:
    """Return the command `completion` of a program."""

    @click.command(
        "completion",
        help=f"""Print a script that completes commands and flags in a shell.

        \b
        source <({program} completion bash)             # in this shell; or from ~/.bashrc
        source <({program} completion zsh)              # after compinit; or from ~/.zshrc
        {program} completion fish | source              # or from ~/.config/fish/config.fish
        """,
    )
    @click.argument("shell", type=click.Choice(_SHELLS))
    def completion(shell: str) -> None:
        from click.shell_completion import get_completion_class

        maker = get_completion_class(shell)
        assert maker is not None
        root = click.get_current_context().find_root().command
        # The variable by which the script asks click for completions: click derives it from the
        # program's name.
        click.echo(maker(root, {}, program, f"_{program.upper()}_COMPLETE").source())

    return completion


livevirt = _command("livevirt")
virtctl = _command("virtctl")
