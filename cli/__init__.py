"""The command line `platform`: one file a command, started from `main`."""
