"""The options of each verb, on the command line and from Python, one record each, and the requests that follow."""
