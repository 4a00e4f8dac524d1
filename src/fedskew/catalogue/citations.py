"""Papers as a line and as BibTeX; and fedskew itself."""

import re
from functools import cache
from importlib.resources import files

from fedskew import __version__
from fedskew.errors import unknown


@cache
def papers() -> dict[str, str]:
    """The BibTeX entry of every paper by its key, as the file has it: a field a line, closed by a line "}"."""
    text = files("fedskew.catalogue").joinpath("papers.bib").read_text(encoding="utf-8")
    return {entry[1]: entry[0] for entry in re.finditer(r"^@\w+\{(\w+),\n.*?^\}", text, re.M | re.S)}


def short(key: str) -> str:
    """ "McMahan et al. 2017, Communication-Efficient Learning ... (AISTATS)"; a key that is unknown is given back."""
    if key not in papers():
        return key  # a user's own component may cite in its own words
    fields = re.findall(r"^  \w+ = \{(.*)\},$", papers()[key], re.M)
    authors, title, venue, year = fields  # in this order
    first, *others = authors.split(" and ")
    names = first.strip("{}").split(",")[0] + (" et al." if others else "")
    return f"{names} {year}, {title[1:-1]} ({venue})"


def software() -> str:
    """The BibTeX entry of fedskew itself; CITATION.cff says the same, and a test compares."""
    lines = [
        ("author", "{The fedskew developers}"),
        ("title", "{fedskew: federated learning when labels are skewed}"),
        ("version", __version__),
        ("note", "Python library, Apache-2.0"),
    ]
    return "\n".join(["@software{fedskew,", *(f"  {name} = {{{value}}}," for name, value in lines), "}"])


def bibtex(key: str) -> str:
    """The BibTeX entry of a key. Raises ConfigError for an unknown one."""
    if key not in papers():
        raise unknown("reference", key, papers())
    return papers()[key]
