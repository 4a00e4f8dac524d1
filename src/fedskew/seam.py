"""What a package beside fedskew may use of studies, stores and records, beside the public names of `fedskew`.

`papers/` of the repository is built on these names, on `fedskew.errors`, and on `fedskew.cli.seam` for its commands.
They are public: a name leaves as docs/versions.md says.
"""

from fedskew.config.experiment import Experiment, repeatable
from fedskew.config.recorded import Run
from fedskew.config.words import Pair, as_word
from fedskew.data.sources.readers import read_table
from fedskew.records.files import write_atomic
from fedskew.records.sheets import csv_text
from fedskew.records.summary import FITTED, TAIL, fitted_name
from fedskew.records.typed import Natural, Real, Row, entries, fault_of
from fedskew.settings import check_device
from fedskew.studies.address import asked
from fedskew.studies.archiving import reuse_archived
from fedskew.studies.arguments import Entry, full, options_of_table, seeds_of, words_of
from fedskew.studies.lines import files_of
from fedskew.studies.scores import FEWEST, NO_VERDICT, TWO_TESTS, WITHIN, Equivalence, equivalence, reach, t_interval
from fedskew.studies.shipped import names as shipped_names
from fedskew.studies.shipped import shipped
from fedskew.studies.spec import Cell, Spec, check_names, instead, read_spec, spec_of, table_from, without
from fedskew.studies.store import read_archives
from fedskew.studies.study import Study

__all__ = [
    "FEWEST", "FITTED", "NO_VERDICT", "TAIL", "TWO_TESTS", "WITHIN", "Cell", "Entry", "Equivalence", "Experiment",
    "Natural", "Pair", "Real", "Row", "Run", "Spec", "Study", "as_word", "asked", "check_device",
    "check_names", "csv_text", "entries", "equivalence", "fault_of", "files_of", "fitted_name", "full", "instead",
    "options_of_table", "reach", "read_archives", "read_spec", "read_table", "repeatable", "reuse_archived", "seeds_of",
    "shipped", "shipped_names", "spec_of", "t_interval", "table_from", "without", "words_of", "write_atomic",
]  # fmt: skip
