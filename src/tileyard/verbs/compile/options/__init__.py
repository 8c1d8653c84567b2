"""What a user may ask for, declared once."""
