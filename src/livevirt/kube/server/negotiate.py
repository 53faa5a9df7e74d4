"""Media types: what a client can read, and what it sent."""

from __future__ import annotations

import functools
from typing import NamedTuple

from livevirt.errors import NotAcceptable

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_OFFERED = (JSON, YAML)


class Form(NamedTuple):
    """How to write an answer: the media type, and which transformation of the object."""

    media: str = JSON
    as_: str = ""  # Table, PartialObjectMetadata, PartialObjectMetadataList, APIGroupDiscoveryList
    version: str = ""
    group: str = ""

    @property
    def content_type(self) -> str:
        """The Content-Type header of the answer."""
        if self.as_ == "APIGroupDiscoveryList":
            return f"{self.media};g={self.group};v={self.version};as={self.as_}"
        return self.media


PLAIN = Form()


@functools.lru_cache(maxsize=256)
def choose(accept: str, transforms: tuple[str, ...], stream: bool = False) -> Form:
    """Return the first form of an Accept header that we can make, JSON if it names none."""
    if not accept or accept in ("*/*", JSON):
        return PLAIN
    for part in accept.split(","):
        media, *parameters = (text.strip() for text in part.split(";"))
        given = dict(text.partition("=")[::2] for text in parameters)
        if media in ("*/*", "application/*"):
            media = JSON
        if media not in _OFFERED or (stream and media == YAML):
            continue
        as_ = given.get("as", "")
        if as_ and as_ not in transforms:
            continue
        if as_ and given.get("v") not in ("v1", "v1beta1", "v2", "v2beta1"):
            continue
        return Form(media, as_, given.get("v", ""), given.get("g", ""))
    raise NotAcceptable(
        f"only the following media types are accepted: {', '.join((*_OFFERED, PROTOBUF))}"
    )


@functools.lru_cache(maxsize=256)
def media_type(content_type: str) -> str:
    """Return a Content-Type without its parameters, JSON when there is none."""
    return content_type.partition(";")[0].strip().lower() or JSON
