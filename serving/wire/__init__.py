"""Messages, texts and statuses as clients and files have them."""
