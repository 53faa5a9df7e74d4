"""Migration of stored objects after a CustomResourceDefinition got another storage version.

kube-apiserver stores an object in the storage version that was in force when it was last written,
and lists in `status.storedVersions` which versions its storage may contain. A version may only be
removed from a definition once it is not in that list. So every object is written once, unchanged,
and then the list is trimmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from livevirt.errors import ApiError, Conflict, NotFound
from livevirt.kube.client.interface import Client, if_unchanged
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object

_PAGE = 500  # objects per request


def storage_version(definition: Object) -> str:
    """Return the version in which objects are stored from now on."""
    [found] = [each["name"] for each in definition["spec"]["versions"] if each["storage"]]
    return str(found)


def outdated(definition: Object) -> list[str]:
    """Return the other versions in which objects may still be stored."""
    stored = (definition.get("status") or {}).get("storedVersions") or []
    return [each for each in stored if each != storage_version(definition)]


async def migrate(client: Client, kinds: Iterable[Kind], report: Callable[[str], None]) -> None:
    """Rewrite the objects of kinds whose storage has older versions, and trim their list.

    An object that the rules refuse keeps its stored version; so does the list, and the report names
    the object.
    """
    for kind in kinds:
        try:
            definition = await client.get(core.CRD, kind.resource)
        except NotFound:
            continue
        if not (old := outdated(definition)):
            continue
        count, refused = await _rewrite(client, kind)
        for name, reason in refused:
            report(f"{kind.singular} {name} stays stored as {' or '.join(old)}: {reason}")
        if not refused:
            await _trim(client, definition)
            version = storage_version(definition)
            report(
                f"{kind.plural}: stored {count} objects as {version} instead of {', '.join(old)}"
            )


async def _rewrite(client: Client, kind: Kind) -> tuple[int, list[tuple[str, str]]]:
    """Write every object unchanged; return how many there were, and which were refused."""
    found, refused = await _every(client, kind), []
    for obj in found:
        name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
        try:
            await client.patch(kind, name, namespace, if_unchanged(obj, {}))
        except (NotFound, Conflict):
            pass  # deleted or written since it was read
        except ApiError as error:
            if error.status_code >= 500:
                raise
            refused.append((f"{namespace}/{name}" if namespace else name, str(error)))
    return len(found), refused


async def _every(client: Client, kind: Kind) -> list[Object]:
    """Return the metadata of all objects, read before the first write: pages expire."""
    found: list[Object] = []
    continue_ = ""
    while True:
        page = await client.list(kind, limit=_PAGE, continue_=continue_)
        for obj in page.items:
            meta = obj["metadata"]
            names = ("name", "namespace", "uid", "resourceVersion")
            found.append({"metadata": {each: meta[each] for each in names if each in meta}})
        if not (continue_ := page.continue_):
            return found


async def _trim(client: Client, definition: Object) -> None:
    """Set the list of stored versions, unless the definition has changed meanwhile."""
    status = {"status": {"storedVersions": [storage_version(definition)]}}
    patch = if_unchanged(definition, status)
    await client.patch(core.CRD, definition["metadata"]["name"], "", patch, subresource="status")
