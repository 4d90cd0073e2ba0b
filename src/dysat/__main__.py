"""`python -m dysat` is `dysat`."""

from dysat.cli import main

if __name__ == "__main__":
    main()
