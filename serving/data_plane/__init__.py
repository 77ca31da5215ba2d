"""The process hotrow-server: started, called and restarted."""
