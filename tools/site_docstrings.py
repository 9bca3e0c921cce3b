"""Makes docstrings readable for mkdocstrings, which ``mkdocs.yml`` has load this file as an extension of griffe."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["Readable"]

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?(?:lakedex\.)?")


class Readable(Extension):  # type: ignore[misc]
    """Names the section of examples as griffe does, and takes out the roles of Sphinx and the marks of doctest."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            text = _ROLE.sub("`", obj.docstring.value).replace("  # doctest: +SKIP", "")
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
