"""The mutants of `make mutants` fit the code, so that moved code does not leave them behind."""

from tests.mutants import MUTANTS, ROOT, files_with


def test_text_of_each_mutant_occurs_once_in_the_code() -> None:
    assert {mutant.before: files for mutant in MUTANTS if len(files := files_with(mutant.before)) != 1} == {}


def test_tests_of_each_mutant_exist() -> None:
    paths = {path for mutant in MUTANTS for path in mutant.tests.split()}
    assert [path for path in paths if not (ROOT / "tests" / path).exists()] == []
