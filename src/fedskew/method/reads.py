"""What the server half of an ingredient reads of clients beside the trained model: one vocabulary for all of fedskew.

`Component.reads` declares it, `fedskew methods` lists it, `--secure sums` refuses by it, and the permits of a node of
Flower are words of it.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Word = Literal["rows", "histogram", "labels", "loss", "probe", "upload", "update"]
Form = Literal["sum", "each"]
FORMS: dict[Form, str] = {"sum": "sum", "each": "each client's"}

WORDS: dict[Word, str] = {
    "rows": "how many rows the client has and takes steps on, and its learning rate",
    "histogram": "the rows of each class that the client holds",
    "labels": "which classes the client holds",
    "loss": "the loss of a model on the client's rows, outside of training",
    "probe": "gradients or statistics of the client's rows, outside of training",
    "upload": "what an ingredient sends after training",
    "update": "the client's own update, where the method alone needs no more than the weighted mean",
}


class Read(NamedTuple):
    """One thing that server hooks read of clients.

    An upload is declared by the ingredient that sends it, whoever reads it.

    Example:
        >>> print(Read("histogram", "sum"), "|", Read("upload", "each", "cluster of the client"))
        histogram (sum) | cluster of the client (each client's)
    """

    word: Word
    form: Form
    """sum: the sum over the participants suffices; each: what each client has is read one by one"""
    what: str = ""
    """more exactly than the word"""
    by: Literal["one", "update", "average", "size"] = "one"
    """of an upload that is summed, what it is multiplied by: 1, the weight of updates or of averages, the rows"""

    def __str__(self) -> str:
        return f"{self.what or self.word} ({FORMS[self.form]})"


def suffices(reads: Iterable[Read]) -> str:
    """What must leave a client beside its model: words that are read one by one, else "sum" or "nothing".

    Example:
        >>> suffices([]), suffices([Read("rows", "sum")]), suffices([Read("rows", "sum"), Read("histogram", "each")])
        ('nothing', 'sum', 'histogram')
    """
    reads = tuple(reads)
    each = {r.word for r in reads if r.form == "each"}
    each -= {"rows", "labels"} if "histogram" in each else set()  # which tells them
    return ", ".join(word for word in WORDS if word in each) or ("sum" if reads else "nothing")
