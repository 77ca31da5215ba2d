"""The process of hotrow-server: started, called, and started again."""
