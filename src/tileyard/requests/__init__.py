"""What each verb is asked for, on the command line and from Python: its options, one record each, and what they come to."""
