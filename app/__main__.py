"""``python -m app``."""

from app.core.cli import main

main()
