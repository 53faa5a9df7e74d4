"""`python -m livevirt` is the command `livevirt`."""

from livevirt.cli.livevirt import main

if __name__ == "__main__":
    main()
