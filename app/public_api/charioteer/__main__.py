"""``python -m charioteer``."""

from charioteer import main

main()
