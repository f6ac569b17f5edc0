"""`python -m jackfield.cli` is the `jackfield` program."""

import sys

from jackfield.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
