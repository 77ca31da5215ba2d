"""Messages, texts and statuses in the forms that clients and files use."""
