"""Recorded inferences as files of other tools' formats."""
