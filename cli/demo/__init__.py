"""`make demo`: the whole way from data to served predictions, through the commands themselves."""
