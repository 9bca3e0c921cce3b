"""Names of the options of ``format("lakedex")``: matched in any case, and refused with the nearest known one.

Spark hands a data source its options in lower case, and adds some of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from lakedex.errors import OptionError

__all__ = ["is_sparks_own", "matched", "split_storage", "switch"]


_SPARKS_OWN = frozenset(
    {
        "collation", "comment", "created_time", "external", "is_managed_location", "owner", "provider",
        "serialization.format", "table_type", "transient_lastddltime",
    }
)  # fmt: skip
"""Options that Spark adds to those of a table in its session catalog (``V2SessionCatalog``, ``TableCatalog``)."""


def is_sparks_own(name: str) -> bool:
    """Whether Spark adds this option by itself, to reads and writes of a table in its session catalog."""
    return name.lower() in _SPARKS_OWN or name.lower().startswith(("option.", "view.", "spark.sql."))


_STORAGE = "storage."


def split_storage(options: Mapping[str, str]) -> tuple[dict[str, str] | None, dict[str, str]]:
    """Options of the store, ``storage.aws_region``, by name without the prefix, and the others.

    Returns:
        None for options of the store if there are none.
    """
    own = {name[len(_STORAGE) :].lower(): v for name, v in options.items() if name.lower().startswith(_STORAGE)}
    return own or None, {name: v for name, v in options.items() if not name.lower().startswith(_STORAGE)}


def matched(
    options: Mapping[str, str],
    fields: Mapping[str, str],
    *,
    others: str | None = None,
    names: Collection[str] | None = None,
) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Sort options by the fields that they set.

    Args:
        options: as Spark gives them.
        fields: name of an option → field; several names may set one field, to one value.
        others: prefix of names that somebody else knows; None for none.
        names: of ``fields``, the names to list where no name is near an unknown one; None for all.

    Returns:
        Field → name of the option and value, and the options with the prefix.

    Raises:
        OptionError: an unknown option, or two that contradict each other.
    """
    known = {name.lower(): (name, field) for name, field in fields.items()}
    found: dict[str, tuple[str, str]] = {}
    rest: dict[str, str] = {}
    for given, value in options.items():
        lower = given.lower()
        if lower in known:
            name, field = known[lower]
            before = found.setdefault(field, (name, value))
            if before[1] != value:
                both = f"options {before[0]}={before[1]!r} and {name}={value!r}"
                raise OptionError(f"{both}: give one of them", option=name)
        elif others is not None and lower.startswith(others):
            rest[lower] = value
        elif not is_sparks_own(given):
            near = difflib.get_close_matches(lower, list(known), n=1, cutoff=0.6)
            hint = (
                f"did you mean {known[near[0]][0]!r}?"
                if near
                else f"there are: {', '.join(fields if names is None else names)}"
            )
            raise OptionError(f"unknown option {given!r} of format('lakedex'); {hint}", option=given)
    return found, rest


def switch(name: str, value: str) -> bool:
    """The value of an option that is true or false."""
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name}={value!r}: give 'true' or 'false'", option=name)
    return value.strip().lower() == "true"
