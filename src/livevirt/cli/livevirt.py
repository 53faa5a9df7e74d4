"""The command `livevirt`: run and administer."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import click

from livevirt import __version__
from livevirt.cli import cluster, frame, process
from livevirt.kube.objects import quantity
from livevirt.paths import DataDir, default_data_dir
from livevirt.settings import Settings


def _data(given: Path | None) -> DataDir:
    return DataDir((given or default_data_dir()).absolute())


class Commands(frame.LazyGroup):
    """What administrators type; the rest of the commands is below."""

    LAZY: ClassVar[dict[str, str]] = {
        "exec": "livevirt.cli.exec:exec_",
        "image": "livevirt.cli.image",
        "volume": "livevirt.cli.volume",
        "demo": "livevirt.cli.demo",
        "service": "livevirt.cli.service",
        "rollback": "livevirt.cli.rollback",
        "completion": "livevirt.cli.completion:livevirt",
        "controller": "livevirt.cli.controller",
        "node": "livevirt.cli.node",
        "webhook": "livevirt.cli.webhook",
        "api": "livevirt.cli.api",
        "install": "livevirt.cli.install",
        "uninstall": "livevirt.cli.install:uninstall",
    }


def _capacity(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, str]:
    found = {}
    for part in filter(None, (value or "").split(",")):
        name, _sep, amount = part.partition("=")
        try:
            positive = quantity.parse(amount) > quantity.ZERO
        except quantity.QuantityError:
            positive = False
        if name not in ("cpu", "memory") or not positive:
            raise click.BadParameter(f"{part!r} is not cpu=AMOUNT or memory=AMOUNT")
        found[name] = amount
    return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="livevirt")
def cli() -> None:
    """Run virtual machines that change while they run.

    \b
    livevirt up --detach              # start, in the background
    export KUBECONFIG=/var/lib/livevirt/kubeconfig
    kubectl get nodes
    livevirt down                     # stop; guests run on
    """


@cli.command()
@process.data_dir_option
@click.option(
    "--listen", default="127.0.0.1:6443", show_default=True, callback=frame.address,
    metavar="HOST:PORT", help="Where to serve the API; port 0 takes any free one.",
)  # fmt: skip
@click.option(
    "--nodes", default=1, show_default=True, type=click.IntRange(1, 99),
    help="How many logical nodes this machine plays.",
)  # fmt: skip
@click.option(
    "--node-capacity", callback=_capacity, metavar="cpu=…,memory=…",
    help="What each node offers (default: the machine divided by the nodes).",
)  # fmt: skip
@click.option(
    "--image-store", type=click.Path(path_type=Path, file_okay=False), default=None,
    help="Where images are kept (default: images/ of the default data directory).",
)  # fmt: skip
@click.option(
    "--catalog/--no-catalog", default=True, show_default=True,
    help="Whether to install the common instance types and preferences.",
)  # fmt: skip
@click.option(
    "--detach", is_flag=True, help="Return once the API answers; go on in the background."
)
@click.option(
    "--log-level", default="info", show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]), help="How much to log.",
)  # fmt: skip
def up(
    data_dir: Path | None,
    listen: tuple[str, int],
    nodes: int,
    node_capacity: dict[str, str],
    image_store: Path | None,
    catalog: bool,
    detach: bool,
    log_level: str,
) -> None:
    """Start the API server, the controllers and the node agent.

    \b
    livevirt up                                   # in the foreground, Ctrl-C stops it
    livevirt up --detach --data-dir /tmp/lv       # somewhere else, in the background
    livevirt up --listen 127.0.0.1:0              # on any free port
    livevirt up --nodes 2 --node-capacity cpu=4,memory=8Gi
    livevirt up --no-catalog                      # with instance types of your own only
    """
    data = _data(data_dir)
    host, port = listen
    settings = Settings(
        str(data.root), host, port, log_level, nodes, node_capacity,
        str(image_store.absolute()) if image_store else "", catalog,
    )  # fmt: skip
    if detach:
        process.detach(data, settings)
    else:
        process.run(settings)


@cli.command()
@process.data_dir_option
@click.option(
    "--guests", type=click.Choice(["keep", "stop"]), default="keep", show_default=True,
    help="Whether running guests go on without the server or are stopped first.",
)  # fmt: skip
def down(data_dir: Path | None, guests: str) -> None:
    """Stop the server of a data directory.

    Guests run on by default, and the next `livevirt up` finds them again.

    \b
    livevirt down
    livevirt down --guests stop --data-dir /tmp/lv
    """
    process.stop(_data(data_dir), stop_guests=guests == "stop")


@cli.command()
@process.data_dir_option
@cluster.flags(without=("-n",))
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="How to print the status of a cluster.",
)  # fmt: skip
def status(data_dir: Path | None, output: str) -> None:
    """Show whether the server runs, and where; or the state of livevirt on a Kubernetes cluster.

    A cluster is shown if --kubeconfig, --context or KUBECONFIG names one: versions, components,
    leader, certificates, problems and how to fix them. Exits with 1 if there is a problem.

    \b
    livevirt status --data-dir /tmp/lv
    livevirt status --kubeconfig FILE
    """
    from livevirt.cli import cluster_status

    data = _data(data_dir)
    access = None if data_dir else cluster_status.chosen_cluster(data)
    if access is None:
        process.show(data)
    else:
        cluster_status.show(access, output)


@cli.command()
@click.option(
    "--webhook-url", default="", metavar="URL",
    help="How kube-apiserver reaches the webhook (default: by its Service in the cluster).",
)  # fmt: skip
def crds(webhook_url: str) -> None:
    """Print KubeVirt's CustomResourceDefinitions as livevirt serves them.

    `livevirt webhook` converts instance types between their versions.

    \b
    livevirt crds > crds.yaml
    livevirt crds | kubectl apply --server-side -f -
    """
    from livevirt.cluster.crds import definitions
    from livevirt.cluster.webhook_manifests import Endpoint

    frame.print_yaml(definitions(Endpoint(webhook_url)))


def main() -> None:
    """Run the command."""
    frame.run(cli)
