"""`python -m anamnesis`: what `amn` does."""

from anamnesis.cli.app import main

if __name__ == "__main__":
    main()
