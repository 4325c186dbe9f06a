"""`python -m limpet`: the command line where scripts are not on the path."""

from limpet.cli.main import main

if __name__ == "__main__":
    main()
