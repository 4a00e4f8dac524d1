"""Tables with several labels a row (multi-label), which are told apart from classes whose names hold a separator."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedskew.data.encoding import spelt
from fedskew.data.values import plain

BRACKETED = re.compile(r"\[(.*)\]|\{(.*)\}|\((.*)\)", re.DOTALL)
QUOTED = re.compile(r"""\s*(['"]).*\1\s*,\s*(['"]).*\2\s*""", re.DOTALL)
SETS = (";", "|")  # they join labels more often than they stand in a name
SEPARATORS = (*SETS, ",")
ONE_OF_SEVERAL = re.compile(r"(?i)(label|labels|y|target|class)([_.\- ]\w+|\d+)")


def several(names: Sequence[str]) -> list[str]:
    """The labels that are lists of labels.

    A label in brackets is one where its parts are quoted, or where others have more or fewer; "[0, 10]" and "[10, 20]"
    are ranges. A label that a separator parts is one where a part is also a label by itself, or stands at different
    places of different lists; "Doe, John" and "Doe, Jane" are names. Where ";" or "|" parts them, it is enough that
    parts of two places occur in several lists; of "animal|cat" and "animal|dog" it is one place.

    Args:
        names: Different labels.

    Returns:
        Those that are lists, in order; empty where the labels are classes.

    Example:
        >>> from fedskew.data.sources.multilabel import several
        >>> several(["cat", "cat;dog", "dog"]), several(["['a', 'b']", "['a']"]), several(["Doe, John", "Doe, Jane"])
        (['cat;dog'], ["['a', 'b']"], [])
    """
    inside = {name: "".join(filter(None, found.groups())) for name in names if (found := BRACKETED.fullmatch(name))}
    listed = [name for name in inside if "," in inside[name]]
    if len({text.count(",") for text in inside.values()}) > 1 or any(QUOTED.fullmatch(inside[name]) for name in listed):
        return listed
    for separator in SEPARATORS:
        lists = {name: [part.strip() for part in name.split(separator)] for name in names if separator in name}
        whole = {name.strip() for name in names if name not in lists}
        lists = {name: parts for name, parts in lists.items() if all(parts) and len(set(parts)) == len(parts)}
        seen = Counter((part, place) for parts in lists.values() for place, part in enumerate(parts))
        placed = Counter(part for part, _ in seen)
        places = {place for (_, place), times in seen.items() if times > 1}
        if whole & {*placed} or max(placed.values(), default=0) > 1 or (separator in SETS and len(places) > 1):
            return [*lists]
    return []


def indicators(columns: Mapping[str, Any]) -> list[str]:
    """Columns that look like one label each: label_a, label_b and so on, all of 0 and 1."""
    binary = {"0", "1", "0.0", "1.0", "False", "True", "false", "true"}
    named = [name for name in columns if ONE_OF_SEVERAL.fullmatch(name)]
    return [name for name in named if {*spelt(plain(columns[name])).tolist()} <= binary]
